"""Networks whose inputs leave extents open: imported, saved, loaded and run with several numbers for them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx
import pytest
from onnx import NodeProto, TensorProto, helper

import tpuconvert as tc
from tests.support.onnx.models import graph_of, model, ramp, save_model
from tests.support.onnx.reference import evaluate
from tpuconvert.__main__ import main
from tpuconvert.frontends.onnx import load
from tpuconvert.frontends.onnx.open_extent_problems import _hint
from tpuconvert.frontends.open_extents import OpenExtent, OpenExtentError, extents_array
from tpuconvert.schema.errors import UnsupportedError, UsageError
from tpuconvert.schema.graph.graph import Port
from tpuconvert.schema.types import Array

Given = tuple[Sequence[NodeProto], dict[str, Array]]


def i64(*numbers: int) -> Array:
    return np.array(numbers, np.int64)


def node(op: str, inputs: str, output: str, **attributes: Any) -> NodeProto:
    return helper.make_node(op, inputs.split(), [output], name=output, **attributes)


def symbolic_model(
    nodes: Sequence[NodeProto], constants: dict[str, Array], *shape: int | str | None
) -> onnx.ModelProto:
    """A model from x to y with an input of this shape."""
    proto = model(nodes, {"x": ramp(1)}, ["y"], constants, opset=17)
    proto.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", TensorProto.FLOAT, shape))
    proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, None))
    return proto


def classifier() -> onnx.ModelProto:
    """Two branches, pooled, joined, flattened by -1, and classified."""
    nodes = [
        node("Conv", "x w1 b1", "c1", pads=[1, 1, 1, 1]), node("Relu", "c1", "r1"),
        node("MaxPool", "r1", "p1", kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", "p1 w2", "c2", pads=[1, 1, 1, 1], group=2), node("Add", "c2 p1", "s"),
        node("AveragePool", "p1", "a", kernel_shape=[3, 3], pads=[1, 1, 1, 1]), node("Concat", "s a", "j", axis=1),
        node("GlobalAveragePool", "j", "g"), node("Reshape", "g flat", "f"), node("Gemm", "f w3 b3", "l", transB=1),
        node("Softmax", "l", "y", axis=-1),
    ]  # fmt: skip
    constants = {
        "w1": ramp(4, 3, 3, 3, seed=1), "b1": ramp(4, seed=2), "w2": ramp(4, 2, 3, 3, seed=3), "flat": i64(-1, 8),
        "w3": ramp(5, 8, seed=4), "b3": ramp(5, seed=5),
    }  # fmt: skip
    return symbolic_model(nodes, constants, "N", 3, 8, 8)


def exported_view() -> onnx.ModelProto:
    """``x.view(x.size(0), -1)`` as exporters write it, once with a division of the size."""
    nodes = [
        node("Shape", "x", "size"), node("Gather", "size zero", "n", axis=0), node("Unsqueeze", "n front", "n1"),
        node("Concat", "n1 rest", "target", axis=0), node("Reshape", "x target", "flat"),
        node("Mul", "n1 two", "n2"), node("Div", "n2 two", "n3"), node("Cast", "n3", "n4", to=TensorProto.INT64),
        node("Concat", "n4 rows", "back", axis=0), node("Reshape", "flat back", "y"),
    ]  # fmt: skip
    constants = {"zero": np.array(0), "front": i64(0), "rest": i64(-1), "two": i64(2), "rows": i64(6, 2)}
    return symbolic_model(nodes, constants, "N", 3, 4)


def mixer() -> onnx.ModelProto:
    """Matmuls by constant matrices on both sides, as in a layer on patches of an image."""
    nodes = [
        node("LayerNormalization", "x g b", "n"), node("MatMul", "n w1", "m"), node("Add", "m b1", "h"),
        node("Erf", "h", "e"), node("Mul", "h e", "act"), node("MatMul", "act w2", "o"), node("Add", "x o", "s"),
        node("Transpose", "s", "t", perm=[0, 2, 1]), node("MatMul", "t w3", "u"), node("Softmax", "u", "p", axis=1),
        node("Sum", "p t p", "z"), node("Unsqueeze", "z one", "wide"), node("Squeeze", "wide one", "y"),
    ]  # fmt: skip
    constants = {
        "g": ramp(8, seed=1), "b": ramp(8, seed=2), "w1": ramp(8, 6, seed=3), "b1": ramp(6, seed=4), "one": i64(1),
        "w2": ramp(6, 8, seed=5), "w3": ramp(5, 5, seed=6),
    }  # fmt: skip
    return symbolic_model(nodes, constants, "batch", 5, 8)


def attention() -> onnx.ModelProto:
    """Products of computed operands, two heads, open in samples and tokens."""
    nodes = [
        node("Shape", "x", "size"), node("Slice", "size zero two", "lead"),
        node("Concat", "lead split", "heads", axis=0),
        *(node("MatMul", f"x w{k}", f"m{k}") for k in "qkv"), *(node("Reshape", f"m{k} heads", k) for k in "qkv"),
        node("Transpose", "q", "qt", perm=[0, 2, 1, 3]), node("Transpose", "k", "kt", perm=[0, 2, 3, 1]),
        node("Transpose", "v", "vt", perm=[0, 2, 1, 3]), node("MatMul", "qt kt", "scores"),
        node("Div", "scores root", "scaled"), node("Softmax", "scaled", "p", axis=-1), node("MatMul", "p vt", "o"),
        node("Transpose", "o", "ot", perm=[0, 2, 1, 3]), node("Concat", "lead width", "joined", axis=0),
        node("Reshape", "ot joined", "of"), node("Add", "of x", "sum"), node("LayerNormalization", "sum g b", "y"),
    ]  # fmt: skip
    constants = {"zero": i64(0), "two": i64(2), "split": i64(2, 4), "width": i64(8), "root": np.float32([2])}
    weights = {f"w{k}": ramp(8, 8, seed=index, low=-1, high=1) for index, k in enumerate("qkv")}
    return symbolic_model(
        nodes, {**constants, **weights, "g": ramp(8, seed=4), "b": ramp(8, seed=5)}, "batch", "tokens", 8
    )


def upscaler() -> onnx.ModelProto:
    """Symbolic in the batch only; crop the edges, repeat the rest, reverse the rows."""
    nodes = [
        node("Slice", "x low high axes", "cut"), node("Resize", "cut none scales", "wide", mode="linear"),
        node("Slice", "wide last first rows back", "turned"), node("ReduceMean", "turned", "m", axes=[1], keepdims=1),
        node("Sub", "turned m", "d"), node("Flatten", "d", "y"),
    ]  # fmt: skip
    constants = {
        "low": i64(0, 1, 1), "high": i64(2**31 - 1, 5, -1), "axes": i64(0, 2, 3), "none": np.float32([]),
        "scales": np.float32([1, 1, 2, 2]), "last": i64(-1), "first": i64(-(2**31)), "rows": i64(2), "back": i64(-1),
    }  # fmt: skip
    return symbolic_model(nodes, constants, None, 2, 6, 6)


def image_model() -> onnx.ModelProto:
    """Symbolic in all axes except channels: insert and remove unit axes, convolve images of any size."""
    nodes = [
        node("Squeeze", "x one", "s"), node("Conv", "s w", "c", pads=[1, 1, 1, 1], strides=[2, 2]),
        node("Unsqueeze", "c zero", "u"), node("Squeeze", "u zero", "v"),
        node("MaxPool", "v", "p", kernel_shape=[2, 2]), node("Sigmoid", "p", "y"),
    ]  # fmt: skip
    constants = {"one": i64(1), "zero": i64(0), "w": ramp(4, 3, 3, 3)}
    return symbolic_model(nodes, constants, "N", 1, 3, "H", "W")


def recurrent() -> onnx.ModelProto:
    """Both directions, open in sequences: an LSTM without initial states, and a GRU that begins with its last state."""
    sizes = {"l": 4, "g": 3}
    nodes = [
        node("LSTM", "x lw lr lb", "ly lh", hidden_size=3, direction="bidirectional"),
        node("Transpose", "ly", "t", perm=[0, 2, 1, 3]), node("Reshape", "t rows", "rows_of_both"),
        node("GRU", "rows_of_both gw gr gb  lh", "gy", hidden_size=3, direction="bidirectional"),
        node("ReduceSum", "gy one", "y", keepdims=0),
    ]  # fmt: skip
    nodes[0].output[:] = ["ly", "lh"]
    nodes[3].input[:] = ["rows_of_both", "gw", "gr", "gb", "", "lh"]
    constants: dict[str, Array] = {"rows": i64(0, 0, 6), "one": i64(1)}
    for name, gates in sizes.items():
        width = 2 if name == "l" else 6
        constants[f"{name}w"] = ramp(2, gates * 3, width, seed=1, low=-1, high=1)
        constants[f"{name}r"] = ramp(2, gates * 3, 3, seed=2, low=-1, high=1)
        constants[f"{name}b"] = ramp(2, gates * 6, seed=3, low=-1, high=1)
    return symbolic_model(nodes, constants, 4, "N", 2)


def repeated_constants_model() -> onnx.ModelProto:
    """Forms of exporters for a class token, a mask and a state of zeros: constants repeated for each sample."""
    nodes = [
        node("Shape", "x", "size"), node("Slice", "size zero one", "n"),
        node("Concat", "n ones token_width", "tokens", axis=0), node("Expand", "token tokens", "t"),
        node("Concat", "t x", "joined", axis=1), node("Concat", "n three four", "filled", axis=0),
        node("ConstantOfShape", "filled", "minus", value=helper.make_tensor("", TensorProto.FLOAT, [1], [-3.0])),
        node("Mul", "n two", "n2"), node("Concat", "n2 one", "pairs", axis=0), node("Tile", "bias pairs", "b"),
        node("Reshape", "b per_sample", "b2"), node("ReduceSum", "b2 one", "b3"),
        node("Add", "joined b3", "s"), node("Where", "mask s minus", "masked"),
        node("Transpose", "x", "x2", perm=[0, 2, 1]), node("MatMul", "masked x2", "m"),
        node("Softmax", "m", "y", axis=-1),
    ]  # fmt: skip
    constants: dict[str, Array] = {
        "zero": i64(0), "one": i64(1), "ones": i64(1), "two": i64(2), "three": i64(3), "four": i64(4),
        "token_width": i64(4), "token": ramp(1, 1, 4, seed=5), "bias": ramp(1, 4, seed=6),
        "per_sample": i64(-1, 2, 4), "mask": np.tril(np.ones((1, 3, 4), bool)),
    }  # fmt: skip
    return symbolic_model(nodes, constants, "N", 2, 4)


def lookups() -> onnx.ModelProto:
    """Lookups by positions in both axes, sums of all elements before, and slices that end at an extent minus 1."""
    nodes = [
        node("Shape", "x", "size"), node("Gather", "size zero", "n", axis=0), node("Gather", "size one", "t", axis=0),
        node("Range", "zero n one", "a"), node("Range", "zero t one", "b"), node("Unsqueeze", "a at_end", "a1"),
        node("Unsqueeze", "b front", "b1"), node("Max", "a1 b1", "both"), node("Shape", "both", "wide"),
        node("Expand", "a1 wide", "a2"), node("Expand", "b1 wide", "b2"), node("Unsqueeze", "a2 last", "a3"),
        node("Unsqueeze", "b2 last", "b3"), node("Concat", "a3 b3", "index", axis=-1), node("GatherND", "x index", "g"),
        *(node("CumSum", f"g {axis}", f"s{k}", exclusive=k % 2, reverse=k // 2)
          for k, axis in enumerate(("one", "zero", "one", "zero"))),
        node("Sum", "s0 s1 s2 s3", "s"), node("Concat", "x s", "long", axis=1), node("Shape", "long", "long_size"),
        node("Gather", "long_size at_end", "both_t", axis=0), node("Sub", "both_t at_end", "before_last"),
        node("Slice", "long at_end before_last at_end", "y"),
    ]  # fmt: skip
    constants = {"zero": np.array(0), "one": np.array(1), "front": i64(0), "at_end": i64(1), "last": i64(-1)}
    return symbolic_model(nodes, constants, "N", "T")


NETWORKS = {
    "lookups": (lookups, [(1, 4), (3, 2), (2, 5)]),
    "image": (image_model, [(1, 1, 3, 6, 7), (2, 1, 3, 9, 5)]),
    "classifier": (classifier, [(1, 3, 8, 8), (4, 3, 8, 8)]),
    "view": (exported_view, [(1, 3, 4), (5, 3, 4)]),
    "mixer": (mixer, [(1, 5, 8), (3, 5, 8)]),
    "upscaler": (upscaler, [(1, 2, 6, 6), (3, 2, 6, 6)]),
    "attention": (attention, [(1, 5, 8), (3, 7, 8)]),
    "recurrent": (recurrent, [(4, 1, 2), (4, 3, 2)]),
    "repeated": (repeated_constants_model, [(1, 2, 4), (3, 2, 4)]),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_runs_with_several_numbers_after_saving_and_loading(name: str, tmp_path: Path) -> None:
    make, shapes = NETWORKS[name]
    proto = make()
    tc.convert(save_model(proto, tmp_path)).save(tmp_path / "net.tpum")
    for backend in ("auto", "reference"):
        with tc.Session(tc.load(tmp_path / "net.tpum"), backend=backend) as session:
            assert any(isinstance(extent, str) for extent in session.inputs[0].shape)
            for seed, shape in enumerate(shapes):
                x = ramp(*shape, seed=seed)
                (expected,) = evaluate(proto, ["y"], {"x": x})
                np.testing.assert_allclose(session.run({"x": x})["y"], expected, atol=2e-5, rtol=2e-4)


@pytest.mark.parametrize("backend", ["native", "reference"])
@pytest.mark.parametrize("element", [TensorProto.FLOAT, TensorProto.INT64], ids=["float", "integer"])
def test_a_constant_as_long_as_an_open_extent_depends_on_no_element(backend: Any, element: int, tmp_path: Path) -> None:
    filler = helper.make_tensor("", element, [1], [7])
    nodes = [node("Shape", "x", "s"), node("ConstantOfShape", "s", "y", value=filler)]
    proto = symbolic_model(nodes, {}, "N", 4)
    proto.graph.output[0].type.tensor_type.elem_type = element
    x = np.float32([[np.nan, 1, 2, 3], [np.inf, 1, 2, 3], [-np.inf, 1, 2, 3]])
    with tc.Session(tc.convert(save_model(proto, tmp_path)), backend=backend) as session:
        np.testing.assert_array_equal(session.run({"x": x})["y"], np.full((3, 4), 7))


def test_keeps_symbolic_names_of_inputs_and_outputs(tmp_path: Path) -> None:
    converted = tc.convert(
        save_model(classifier(), tmp_path), source_options=tc.SourceOptions(input_shapes={"x": ("samples", 3, 8, 8)})
    )
    with tc.Session(converted) as session:
        assert session.inputs[0].shape == ("samples", 3, 8, 8)
        assert session.outputs[0].shape == ("samples", 5)
        with pytest.raises(UsageError, match=r"the model takes \[samples=2, 3, 8, 8\]"):
            session.run({"x": ramp(2, 3, 8, 9)})
    pinned = tc.convert(
        save_model(classifier(), tmp_path), source_options=tc.SourceOptions(input_shapes={"x": (2, 3, 8, 8)})
    )
    assert pinned.graph.output_ports[0].shape == (2, 5)


def test_quantized_with_one_sample_at_a_time_and_run_with_several(tmp_path: Path) -> None:
    path = save_model(classifier(), tmp_path)
    samples = [ramp(1, 3, 8, 8, seed=seed) for seed in range(12)]
    several = tc.convert(path, quantize="int8", calibration=samples)
    single = tc.convert(
        path, quantize="int8", calibration=samples, source_options=tc.SourceOptions(input_shapes={"x": (1, 3, 8, 8)})
    )
    assert several.quantize == "int8" and several.graph.input_ports[0].shape == ("N", 3, 8, 8)
    several.save(tmp_path / "several.tpum")
    backends: tuple[Literal["auto", "reference"], ...] = ("auto", "reference")
    for backend in backends:
        with tc.Session(tmp_path / "several.tpum", backend=backend) as open_one:
            together = open_one.run({"x": np.concatenate(samples[:3])})["y"]
        with tc.Session(single, backend=backend) as fixed:
            one_by_one = [fixed.run({"x": sample})["y"] for sample in samples[:3]]
        np.testing.assert_allclose(together, np.concatenate(one_by_one), rtol=1e-6)  # softmax is computed in float


def test_attention_in_int8_with_an_open_batch_is_that_of_single_samples(tmp_path: Path) -> None:
    path = save_model(attention(), tmp_path)
    samples = [ramp(1, 5, 8, seed=seed, low=-1, high=1) for seed in range(12)]
    several = tc.convert(
        path, quantize="int8", calibration=samples, source_options=tc.SourceOptions(input_shapes={"x": ("batch", 5, 8)})
    )
    single = tc.convert(
        path, quantize="int8", calibration=samples, source_options=tc.SourceOptions(input_shapes={"x": (1, 5, 8)})
    )
    assert [node.op.name for node in several.graph.nodes].count("matrix_mul_v2") == 5  # two products without weights
    several.save(tmp_path / "several.tpum")
    with tc.Session(tmp_path / "several.tpum") as open_one, tc.Session(single) as fixed:
        together = open_one.run({"x": np.concatenate(samples[:3])})["y"]
        one_by_one = [fixed.run({"x": sample})["y"] for sample in samples[:3]]
    np.testing.assert_array_equal(together, np.concatenate(one_by_one))


def test_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    save_model(
        symbolic_model([node("Conv", "x w", "y")], {"w": ramp(2, 3, 3, 3)}, "N", 3, "H", "W"), tmp_path, "net.onnx"
    )
    assert main(["check", "net.onnx"]) == 0
    assert "extents of the inputs that stay symbolic: N, H, W" in capsys.readouterr().out
    assert main(["convert", "net.onnx", "--input-shapes", "x=N,3,H,16", "--verify"]) == 2  # H needs samples
    assert main(["convert", "net.onnx", "--input-shapes", "x=N,3,9,16", "--verify"]) == 0
    assert main(["inspect", "net.tpum"]) == 0
    assert "float32[N, 3, 9, 16]" in capsys.readouterr().out
    assert main(["bench", "net.tpum", "--runs", "1", "--warmup", "0"]) == 0
    np.savez("x.npz", x=ramp(4, 3, 9, 16))
    assert main(["run", "net.tpum", "x.npz", "--output", "y.npz"]) == 0
    assert main(["convert", "net.onnx", "--input-shapes", "x=N,3,2+2,16"]) == 2
    assert "is not a shape" in capsys.readouterr().err


# Operators that need a number


def conversion_error(proto: onnx.ModelProto, folder: Path, **options: Any) -> UnsupportedError:
    with pytest.raises(UnsupportedError) as caught:
        load(save_model(proto, folder), **options)
    return caught.value


def test_one_error_names_extent_tensor_node_and_what_to_type(tmp_path: Path) -> None:
    nodes = [
        node("Relu", "x", "r"), node("Trilu", "r", "sums"), node("Trilu", "sums", "t"),
        node("Relu", "t", "u"), node("Squeeze", "u", "y"),
    ]  # fmt: skip
    proto = symbolic_model(nodes, {}, "N", 3, "T")
    proto.graph.value_info.append(helper.make_tensor_value_info("sums", TensorProto.FLOAT, ("N", 3, "T")))
    proto.graph.value_info.append(helper.make_tensor_value_info("t", TensorProto.FLOAT, ("N", 3, "T")))
    error = conversion_error(proto, tmp_path)
    assert [(problem.kind.id, problem.op, problem.node) for problem in error.problems] == [
        ("TC3104", "Trilu", "sums"),
        ("TC3104", "Squeeze", "y"),
    ]
    assert "'T' has to be a number: 'r' has the shape [N, 3, T]; also for Trilu 't'" in str(error)
    assert "'N' has to be a number: 'u' has the shape [N, 3, T]" in str(error)
    assert str(error).count("replace what is in angle brackets by numbers:  --input-shapes x=1,3,<T>") == 1
    graph = graph_of(proto, tmp_path, input_shapes={"x": (2, 3, 4)})
    assert graph.outputs[0].shape == (2, 3, 4)
    one_left = conversion_error(proto, tmp_path, input_shapes={"x": ("N", 3, 4)})
    assert "state a number, for example:  --input-shapes x=1,3,4" in str(one_left)


def test_hint_has_the_inputs_only_and_both_extents_of_an_image(tmp_path: Path) -> None:
    nodes = [node("Trilu", "x", "s"), node("Relu", "s", "y")]
    proto = symbolic_model(nodes, {}, "N", 3, "H", "W")
    proto.graph.value_info.append(helper.make_tensor_value_info("s", TensorProto.FLOAT, ("N", 3, "H", "W")))
    assert str(conversion_error(proto, tmp_path)).splitlines()[-1].endswith("  --input-shapes x=N,3,<H>,<W>")


CONSTANTS = {"c": ramp(3, 4), "n": i64(3, 4), "five": ramp(5, 4), "sizes": i64(7, 2), "depth": np.array(3)}


@pytest.mark.parametrize(
    "nodes",
    [
        pytest.param([node("Reshape", "x n", "y")], id="a number in its place"),
        pytest.param([node("Add", "x five", "y")], id="as long as a constant"),
        pytest.param([node("Resize", "x  sizes", "y")], id="resized"),
        pytest.param([node("Split", "x", "y", axis=0)], id="cut into parts"),
        pytest.param([node("Shape", "x", "s"), node("Range", "zero s one", "y")], id="a range of numbers"),
        pytest.param([node("EyeLike", "x", "y")], id="a diagonal"),
    ],
)
def test_nothing_else_than_a_number_will_do(nodes: list[NodeProto], tmp_path: Path) -> None:
    proto = symbolic_model(nodes, {**CONSTANTS, "zero": i64(0), "one": i64(1), "three": i64(3)}, "N", 4)
    for item in proto.graph.node:
        if item.op_type == "Resize":
            item.input[:] = ["x", "", "", "sizes"]
        if item.op_type == "Split":
            item.output[:] = ["y", "z"]
    error = conversion_error(proto, tmp_path)
    assert {problem.kind.id for problem in error.problems} == {"TC3104"}
    assert "N' has to be a number" in str(error)
    assert "--input-shapes x=1,4" in str(error)


# The arithmetic


def test_sums_products_and_exact_quotients_stay_open() -> None:
    n, m = OpenExtent("N"), OpenExtent("M")
    assert [str(item) for item in (n + 1, 2 * n, n * m * 3, (6 * n) // 3, n * 1.0, abs(n))] == [
        "N+1", "2*N", "3*M*N", "2*N", "N", "N",
    ]  # fmt: skip
    assert n - n == 0 and n // n == 1 and (4 * n) % 2 == 0 and n * 0 == 0
    assert n == n and n != 0 and n != -1 and n > 0 and n >= 1 and not n < 1 and 2 * n != 1
    assert extents_array([n, 3])[0] is n
    assert extents_array([n // n, 3]).dtype == np.int64


@pytest.mark.parametrize(
    "question",
    [
        lambda n: n == 1, lambda n: n != 5, lambda n: n < 3, lambda n: n > 1, lambda n: n <= 1, lambda n: n // 2,
        lambda n: n % 2, lambda n: -n, lambda n: 5 - n, lambda n: n / 2, lambda n: n * 0.5,
        lambda n: n - OpenExtent("M"), lambda n: n == OpenExtent("M"), lambda n: n - 1 >= 0, bool, int, float, range,
        lambda n: np.zeros((n, 2)), lambda n: np.array([1, n], np.int64), lambda n: [0, 1][n], lambda n: abs(n - 1),
    ],
)  # fmt: skip
def test_what_only_the_number_answers(question: Any) -> None:
    with pytest.raises(OpenExtentError, match="has to be a number"):
        question(OpenExtent("N"))


def test_other_formats_have_no_open_extents(repository: Path) -> None:
    source = next((repository / "examples" / "digits").glob("*.tflite"))
    with pytest.raises(UsageError, match="only ONNX models can keep extents open"):
        tc.convert(source, source_options=tc.SourceOptions(input_shapes={"input": ("N", 28, 28, 1)}))


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint16, np.int16, np.int32, np.uint32, np.int64])
def test_extents_keep_the_type_of_their_cast(dtype: Any) -> None:
    """8 and 16 bits wrap around; results of data movement have the type, too."""
    code = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    hundred = {"k": np.array(100, dtype)}
    nodes = [
        node("Size", "x", "size"), node("Cast", "size", "c", to=code), node("Add", "c k", "sum"),
        node("Mul", "c k", "product"), node("Sub", "c k", "difference"), node("Transpose", "c", "moved"),
        node("Identity", "c", "same"),
    ]  # fmt: skip
    proto = symbolic_model([*nodes, node("Identity", "c", "y")], hundred, "N", 3)
    names = ["c", "sum", "product", "difference", "moved", "same"]
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    with tc.Session(tc.convert(proto)) as session:
        found = session.run({"x": np.zeros((70, 3), np.float32)})
    with np.errstate(over="ignore"):
        size = np.array(210).astype(dtype)
        expected = dict(
            zip(names, [size, size + dtype(100), size * dtype(100), size - dtype(100), size, size], strict=True)
        )
    for name, value in expected.items():
        assert (found[name].dtype, found[name].tolist()) == (np.dtype(dtype), value.tolist()), name


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float32])
@pytest.mark.parametrize(
    ("op", "inputs"), [("Clip", "s - three"), ("Clip", "s three"), ("Clip", "s three many"), ("Min", "s three"),
                       ("Max", "s many"), ("Sub", "s s"), ("Neg", "s")]
)  # fmt: skip
def test_functions_of_one_extent(op: str, inputs: str, dtype: Any) -> None:
    """Formulas of rank 0, also those that are numbers, in the type of the cast."""
    names = [name.replace("-", "") for name in inputs.split()]
    code = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    function = helper.make_node(op, names, ["y"])
    constants = {"three": np.array(3, dtype), "many": np.array(100, dtype)}
    proto = symbolic_model(
        [node("Size", "x", "size"), node("Cast", "size", "s", to=code), function], constants, "N", 12
    )
    proto.graph.output[0].CopyFrom(onnx.ValueInfoProto(name="y"))
    with tc.Session(tc.convert(proto)) as session:
        for rows in (1, 2, 20):
            x = np.zeros((rows, 12), np.float32)
            (expected,) = evaluate(proto, None, {"x": x})
            found = session.run({"x": x})["y"]
            assert (found.dtype, found.tolist()) == (np.dtype(dtype), np.asarray(expected).tolist())


def test_what_to_type_has_names_in_place_of_sums() -> None:
    """``--input-shapes`` takes names and numbers; exporters of decoders write the extent of a mask as a sum."""
    ports = [Port("mask", "int64", (1, "past+new")), Port("ids", "int64", ("N", "new"))]
    assert _hint(ports, {"N"}) == "state a number, for example:  --input-shapes ids=1,new"
    named = _hint([Port("x", "float32", ("N", "past+new"))], {"N"})
    assert named == "state a number, for example:  --input-shapes x=1,past_new"
