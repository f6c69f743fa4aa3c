"""The comparison with the source: metrics computed by hand, and injected faults."""

import math
from collections.abc import Iterator

import numpy as np
import pytest

from tests.support.networks.compared_graphs import verify
from tests.support.networks.small_models import SHAPE, model_of, scaled_and_shifted
from tpuconvert.samples.random_samples import random_feeds
from tpuconvert.schema.errors import ThresholdError, UsageError
from tpuconvert.schema.graph.graph import Graph, Port
from tpuconvert.schema.ops.arithmetic_with_scalar import Adds
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.types import DType, QuantParams, Scalar, TensorType
from tpuconvert.verify.difference import Difference
from tpuconvert.verify.oracle import OracleError, Statement
from tpuconvert.verify.verification import NamedLimit, Thresholds


def difference(wanted: list[float], got: list[float]) -> Difference:
    found = Difference("t")
    found.add(np.array(wanted, np.float32), np.array(got, np.float32))
    return found


def test_numbers_by_hand() -> None:
    found = difference([3, 4, 0], [3, 4, 5])
    assert found.max_absolute == 5
    assert found.relative == 5 / 4  # the range is 4 - 0
    assert found.cosine == pytest.approx(25 / (5 * math.sqrt(50)))  # a.b = 9 + 16, |a| = 5, |b|^2 = 50
    assert found.sqnr == 0.0  # power 25 against power 25


def test_no_difference() -> None:
    found = difference([1, 2], [1, 2])
    assert (found.max_absolute, found.relative, found.cosine, found.sqnr) == (0, 0, pytest.approx(1), math.inf)
    assert difference([0, 0], [0, 0]).cosine == 1.0


def test_samples_add_up() -> None:
    once = difference([3, 4, 0, 1], [3, 4, 5, 1])
    twice = difference([3, 4], [3, 4])
    twice.add(np.array([0.0, 1.0]), np.array([5.0, 1.0]))
    assert (once.relative, once.cosine, once.sqnr) == (twice.relative, twice.cosine, twice.sqnr)


def test_values_that_are_not_finite() -> None:
    same = difference([math.inf, math.nan, 1], [math.inf, math.nan, 1])
    assert (same.max_absolute, same.sqnr) == (0, math.inf)
    other = difference([1, 1], [math.nan, 1])
    assert (other.max_absolute, other.cosine, other.sqnr) == (math.inf, 0, -math.inf)
    assert other.to_dict()["max_absolute"] is None  # JSON has no infinity


def test_clipped_values_are_counted() -> None:
    found = Difference("t")
    quant = QuantParams.per_tensor(1.0, 0, DType.INT8)  # from -128 to 127, half a step more on both sides
    real = np.array([-129, -128.4, 0, 127.4, 128, 1000], np.float32)
    found.add(real, quant.dequantize(quant.quantize(real)), quant)
    assert found.clipped_share == 3 / 6
    per_channel = QuantParams((1.0, 2.0), (0, 0), DType.INT8, 1)
    other = Difference("t")
    other.add(np.array([[200, 200]], np.float32), np.array([[127, 200]], np.float32), per_channel)
    assert other.clipped_share == 1 / 2


def test_noise_is_counted_where_it_comes_in() -> None:
    """Two steps: the first one adds noise of a tenth of the power. The second one repeats it and adds none."""
    source, wrong = scaled_and_shifted(2.0, 0.0), scaled_and_shifted(2.5, 0.0)
    result = verify(source, source, model_of(wrong, quantize="int8"), FEEDS)
    added = {layer.name: (layer.reads, layer.added) for layer in result.layers}
    assert added == {"x": ((), 0.0), "product": (("x",), pytest.approx(1 / 16)), "y": (("product",), pytest.approx(0))}
    assert result.worst[0].name == "product"


FEEDS = [{"x": np.array([[-1, 0, 1, 2]], np.float32)}, {"x": np.array([[5, 6, 7, 8]], np.float32)}]


def test_same_model() -> None:
    result = verify(scaled_and_shifted(), scaled_and_shifted(), model_of(scaled_and_shifted()), FEEDS)
    assert [layer.name for layer in result.layers] == ["x", "product", "y"]
    assert {layer.stage for layer in result.layers} == {"same"}
    assert result.samples == 2
    assert result.first is None
    result.check_limits(Thresholds(max_difference=0.0, min_cosine=0.999999, min_sqnr=200.0))


@pytest.mark.parametrize(("scale", "shift", "first"), [(2.5, 1.0, "product"), (2.0, 1.5, "y")])
def test_fault_is_found_where_it_is(scale: float, shift: float, first: str) -> None:
    wrong = scaled_and_shifted(scale, shift)
    result = verify(scaled_and_shifted(), scaled_and_shifted(), model_of(wrong), FEEDS)
    assert result.first is not None
    assert (result.first.name, result.first.stage) == (first, "legalize")
    with pytest.raises(ThresholdError) as caught:
        result.check_limits(Thresholds(max_difference=1e-4))
    assert f"'{first}'" in caught.value.hint
    assert "output 'y'" in str(caught.value)
    assert caught.value.exit_code == 5


def test_fault_of_the_optimizer_is_called_so() -> None:
    wrong = scaled_and_shifted(2.5)
    result = verify(scaled_and_shifted(), wrong, model_of(scaled_and_shifted(2.5)), FEEDS)
    assert result.first is not None
    assert (result.first.name, result.first.stage) == ("product", "optimize")


def test_integers_are_compared_by_what_they_stand_for() -> None:
    def graph(dtype: DType, quant: QuantParams | None) -> Graph:
        g = Graph("g")
        x = g.input("x", TensorType(dtype, (1, 2)), Port("x", dtype.numpy.name, (1, 2), quant), quant)
        y = g.add(Permute(order=(0, 1)), x, name="y")
        y.quant = quant
        g.output(y, Port("y", dtype.numpy.name, (1, 2), quant))
        return g

    scale = QuantParams.per_tensor(0.5, 10, DType.INT8)
    annotated = Graph("g")
    x = annotated.input("x", TensorType(DType.FLOAT32, (1, 2)), Port("x", "int8", (1, 2), scale))
    annotated.output(annotated.add(Permute(order=(0, 1)), x, name="y"), Port("y", "int8", (1, 2), scale))
    feeds = [{"x": np.array([[10, 30]], np.int8)}]
    result = verify(annotated, annotated, model_of(graph(DType.INT8, scale), quantize="int8"), feeds)
    assert [layer.name for layer in result.layers] == ["x", "y"]
    assert all(layer.max_absolute == 0 for layer in result.layers)
    assert result.layers[1].range == 10.0  # (30 - 10) * 0.5 - 0


def test_channels_first_twin_is_compared_with_its_axes_put_back() -> None:
    source, final = Graph("g"), Graph("g")
    for g, name in ((source, "t"), (final, "t:nchw")):
        x = g.input("x", TensorType(DType.FLOAT32, (1, 2, 2, 3)))
        order = (0, 1, 2, 3) if name == "t" else (0, 3, 1, 2)
        y = g.add(Permute(order=order), x, name=name)
        back = y if name == "t" else g.add(Permute(order=(0, 2, 3, 1)), y, name="y")
        g.output(back, Port("y", "float32", (1, 2, 2, 3)))
    feeds = [{"x": np.arange(12, dtype=np.float32).reshape(1, 2, 2, 3)}]
    result = verify(source, source, model_of(final), feeds)
    assert [(layer.name, layer.max_absolute) for layer in result.layers] == [("x", 0), ("t", 0)]
    assert result.unmatched == 1  # 'y' exists only in the final graph


def test_a_reshaped_tensor_is_compared_in_its_own_shape() -> None:
    source, final = Graph("g"), Graph("g")
    for g in (source, final):
        x = g.input("x", TensorType(DType.FLOAT32, (1, 2, 3)))
        if g is final:
            rows = g.add(Adds(Scalar.f32(1.0)), g.add(Reshape((2, 3)), x, name="x:reshaped"), name="t:reshaped")
            t = g.add(Reshape((1, 2, 3)), rows, name="t")
        else:
            t = g.add(Adds(Scalar.f32(0.5)), x, name="t")
        g.output(t, Port("t", "float32", (1, 2, 3)))
    feeds = [{"x": np.arange(6, dtype=np.float32).reshape(1, 2, 3)}]
    result = verify(source, source, model_of(final), feeds)
    found = [(layer.name, layer.op, layer.max_absolute) for layer in result.layers]
    assert found == [("x", "input", 0), ("t", "adds", 0.5)]
    assert result.layers[1].reads == ("x",), "the reshapes are not where it came from"
    assert result.unmatched == 0


def test_other_outputs_are_refused() -> None:
    other = scaled_and_shifted()
    other.output_ports[0] = Port("z", "float32", SHAPE)
    with pytest.raises(UsageError, match="the outputs differ"):
        verify(scaled_and_shifted(), scaled_and_shifted(), model_of(other), FEEDS)


def test_no_samples() -> None:
    with pytest.raises(UsageError, match="no samples"):
        verify(scaled_and_shifted(), scaled_and_shifted(), model_of(scaled_and_shifted()), [])


def test_random_feeds_have_the_declared_types_and_repeat() -> None:
    ports = [Port("a", "float32", (2, 3)), Port("b", "uint8", (4,)), Port("c", "int64", (1,)), Port("d", "bool", ())]
    first, again = random_feeds(ports, 2), random_feeds(ports, 2)
    assert [(name, array.dtype.name, array.shape) for name, array in first[0].items()] == [
        ("a", "float32", (2, 3)),
        ("b", "uint8", (4,)),
        ("c", "int64", (1,)),
        ("d", "bool", ()),
    ]
    assert all(np.array_equal(one[name], two[name]) for one, two in zip(first, again, strict=True) for name in one)


def test_random_feeds_take_one_sample_and_need_other_extents() -> None:
    (feed,) = random_feeds([Port("x", "float32", ("N", 3)), Port("mask", "float32", (5, "N"))], 1)
    assert {name: array.shape for name, array in feed.items()} == {"x": (1, 3), "mask": (5, 1)}
    for shape in (("N", "H"), ("T",)):
        with pytest.raises(UsageError, match="no fixed shape"):
            random_feeds([Port("x", "float32", shape)], 1)


def statements(scale: float = 2.0, shift: float = 1.0, rounds: bool = False) -> list[Statement]:
    """Statements of another engine about ``scaled_and_shifted``."""
    tensors = [{"y": feed["x"] * scale + shift, "product": feed["x"] * scale} for feed in FEEDS]
    return [Statement(found, ("y",), rounds) for found in tensors]


def test_another_engine_agrees() -> None:
    graph = scaled_and_shifted()
    result = verify(graph, graph, model_of(scaled_and_shifted()), FEEDS, oracle=("engine 1", iter(statements())))
    assert result.opinion is not None
    assert [item.name for item in result.opinion.tensors] == ["product", "y"]
    assert result.to_dict()["opinion"] == {
        "engine": "engine 1",
        "tensors": 2,
        "outputs": 1,
        "is_exact": True,
        "largest_difference": 0.0,
        "problem": "",
        "exactness": None,
        "samples": 2,
        "contradictions": [],
    }
    assert result.first is None
    result.check_limits(Thresholds(max_difference=0.0))


@pytest.mark.parametrize(("scale", "shift", "first"), [(2.5, 1.0, "product"), (2.0, 1.5, "y")])
def test_fault_of_the_import_is_called_so(scale: float, shift: float, first: str) -> None:
    """The model equals the source graph, and both are wrong."""
    graph = scaled_and_shifted()
    result = verify(
        graph, graph, model_of(scaled_and_shifted()), FEEDS, oracle=("engine 1", iter(statements(scale, shift)))
    )
    assert result.first is not None
    assert (result.first.name, result.first.stage) == (first, "import")
    with pytest.raises(ThresholdError, match="as engine 1 computes it, output 'y'") as caught:
        result.check_limits(Thresholds(max_difference=1e-4))
    assert f"appears at '{first}'" in caught.value.hint
    assert "stage import" in caught.value.hint


def test_an_engine_that_cannot_run_the_source_is_no_failure() -> None:
    def refuses() -> Iterator[Statement]:
        raise OracleError("no such operator")
        yield

    graph = scaled_and_shifted()
    result = verify(graph, graph, model_of(scaled_and_shifted()), FEEDS, oracle=("engine 1", refuses()))
    assert result.opinion is not None
    assert (result.opinion.tensors, result.opinion.problem) == ((), "no such operator")
    result.check_limits(Thresholds(max_difference=0.0))
    assert result.opinion.samples == 0


def test_an_engine_that_rounds_is_asked_about_outputs_alone() -> None:
    graph = scaled_and_shifted()
    result = verify(
        graph, graph, model_of(scaled_and_shifted()), FEEDS, oracle=("e", iter(statements(2.1, rounds=True)))
    )
    assert result.opinion is not None
    assert (result.opinion.tensors, result.opinion.is_exact) == ((), False)
    assert result.first is None
    result.check_limits(Thresholds(max_difference=0.0))
    wrong = verify(graph, graph, model_of(scaled_and_shifted()), FEEDS, oracle=("e", iter(statements(-2, rounds=True))))
    with pytest.raises(ThresholdError, match="output 'y': cosine"):
        wrong.check_limits(Thresholds(max_difference=0.0))


def test_outputs_of_a_signature_are_found_by_their_place() -> None:
    graph = scaled_and_shifted()
    renamed = [Statement({"serving:0": item.tensors["y"] + 1}, ("serving:0",)) for item in statements()]
    result = verify(graph, graph, model_of(scaled_and_shifted()), FEEDS, oracle=("e", iter(renamed)))
    with pytest.raises(ThresholdError, match="as e computes it, output 'y'"):
        result.check_limits(Thresholds(max_difference=0.0))


def test_limits_by_name() -> None:
    graph = scaled_and_shifted()
    result = verify(graph, graph, model_of(scaled_and_shifted(2.0001)), FEEDS)
    result.check_limits(Thresholds(max_difference=1.0), [NamedLimit.parse("prod*:sqnr=60")])
    with pytest.raises(ThresholdError, match=r"tensor 'product': SQNR in dB .* is below 120") as caught:
        result.check_limits(Thresholds(max_difference=1.0), [NamedLimit.parse("p?oduct:sqnr=120,cosine=0.5")])
    assert "'y'" not in str(caught.value)
    with pytest.raises(UsageError, match=r"fits 'z\*'"):
        result.check_limits(Thresholds(), [NamedLimit.parse("z*:cosine=0")])


@pytest.mark.parametrize(
    "text", ["conv", "conv:", ":sqnr=3", "conv:loudness=3", "conv:sqnr=loud", "conv:sqnr=1,cosine"]
)
def test_what_is_no_limit(text: str) -> None:
    with pytest.raises(UsageError, match="is not a limit"):
        NamedLimit.parse(text)


def test_a_limit_for_names_with_colons() -> None:
    assert NamedLimit.parse("t:nchw:difference=0.5,cosine=0.9") == NamedLimit("t:nchw", Thresholds(0.5, 0.9))
