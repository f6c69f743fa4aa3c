"""Constants that are NaN or infinite: rejected with tensor, node and index, unless the infinity has a meaning."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

import tpuconvert as tc
from tests.support.caffe.networks import layer, with_input, write_text, write_weights
from tests.support.networks.data_models import names
from tests.support.tflite.models import T, serialize, single
from tools.accuracy.datasets import entries, input_shapes, model_files
from tpuconvert.conversion.final_checks import check_finite
from tpuconvert.conversion.options.options import Options
from tpuconvert.conversion.source import Source
from tpuconvert.conversion.source_loading import load_source
from tpuconvert.schema.arithmetic.finite import is_finite
from tpuconvert.schema.errors import UnsupportedError, UsageError

NAN, INF = float("nan"), float("inf")
WEIGHT = np.random.default_rng(0).normal(size=(4, 3, 3, 3)).astype(np.float32)
CAUSAL = np.where(np.tri(8) > 0, 0.0, -INF).astype(np.float32)


def with_(array: np.ndarray, **changes: float) -> np.ndarray:
    """Return a copy with elements set: ``i1_2=NAN`` sets [1, 2]."""
    changed = array.copy()
    for place, value in changes.items():
        changed[tuple(map(int, place[1:].split("_")))] = value
    return changed


def network(
    folder: Path, nodes: Sequence[NodeProto], constants: Mapping[str, object], shape: Sequence[int] = (1, 3, 8, 8)
) -> Path:
    """Write an ONNX file with input x and output y."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    initializers = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    graph = helper.make_graph(list(nodes), "g", [x], [y], initializers)
    path = folder / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def node(op: str, reads: str, makes: str = "y", name: str = "", **attributes: object) -> NodeProto:
    return helper.make_node(op, reads.split(), [makes], name=name or f"the_{op}", **attributes)


CONV = node("Conv", "x w")
ZERO, LOWEST = np.float32(0), np.float32(-INF)
MASK_SELECTS = [node("Greater", "x z", "c"), node("Where", "c x n", "t")]
HALVES = [
    node("Cast", "w", "h", to=TensorProto.FLOAT16),
    node("Cast", "h", "f", "back", to=TensorProto.FLOAT),
    node("Conv", "x f"),
]
NORMALIZED = [node("Conv", "x w", "t"), node("BatchNormalization", "t s s s v")]
FACTOR = [node("Mul", "x k", "t"), node("Softmax", "t")]
SHIFT = [node("Add", "x b", "t"), node("Relu", "t")]
ADDED = [node("Add", "x m", "t"), node("Softmax", "t")]
RESHAPED = [node("Add", "x m", "t"), node("Reshape", "t s", "u"), node("Softmax", "u")]
PADDED = [node("Pad", "x p v", "t"), node("MaxPool", "t", kernel_shape=[3, 3])]
CASES = {
    "weight": ([CONV], {"w": with_(WEIGHT, i1_2_0_1=NAN, i3_0_0_0=INF)}),
    "bias": ([node("Conv", "x w b")], {"w": WEIGHT, "b": np.float32([0, 1, INF, 2])}),
    "variance": (NORMALIZED, {"w": WEIGHT, "s": np.ones(4, np.float32), "v": np.float32([1, 1, 1, NAN])}),
    "folded weight": (
        [node("Mul", "w k", "wk"), node("Conv", "x wk")],
        {"w": with_(WEIGHT, i0_0_2_2=NAN), "k": np.float32(2)},
    ),
    "0 / 0": (
        [node("Div", "w k", "wk", "quotient"), node("Conv", "x wk")],
        {"w": with_(WEIGHT, i0_0_0_0=0.0), "k": np.zeros((4, 1, 1, 1), np.float32)},
    ),
    "overflow of binary16": (HALVES, {"w": with_(WEIGHT, i0_1_0_0=1e6)}),
    "scalar": ([node("Mul", "x k")], {"k": np.float32(NAN)}),
    "factor before a softmax": (FACTOR, {"k": np.float32([INF] * 8)}),
    "shift without a softmax": (SHIFT, {"b": np.float32([1, INF, 0, 0, 0, 0, 0, 0])}),
    "selected NaN": ([*MASK_SELECTS, node("Relu", "t")], {"z": ZERO, "n": np.float32(NAN)}),
}
REFUSED = {
    "weight": ("Conv", r"^'w' .* NaN at \[1, 2, 0, 1\], 2 of 108"),
    "bias": ("Conv", r"^'b' .* infinity at \[2\], 1 of 4"),
    "variance": ("BatchNormalization", r"^'v' .* NaN at \[3\]"),
    "folded weight": ("Conv", r"^'w' .* NaN at \[0, 0, 2, 2\], 1 of 108 .* becomes 'wk'"),
    "0 / 0": ("Conv", r"^'wk' .* NaN at \[0, 0, 0, 0\], 108 of 108 .* computed by Div 'quotient' from finite"),
    "overflow of binary16": ("Conv", r"^'f' .* infinity at \[0, 1, 0, 0\], 1 of 108 .* computed by Cast 'back'"),
    "scalar": ("Mul", r"^'k' is NaN"),
    "factor before a softmax": ("Mul", r"^'k' .* infinity at \[0\], 8 of 8"),
    "shift without a softmax": ("Add", r"^'b' .* infinity at \[1\], 1 of 8"),
    "selected NaN": ("Where", r"^'n'"),
}
ACCEPTED = {
    "selected by a mask": ([*MASK_SELECTS, node("Softmax", "t")], {"z": ZERO, "n": LOWEST}),
    "masked logits": ([*MASK_SELECTS, node("Identity", "t")], {"z": ZERO, "n": LOWEST}),
    "added mask": (ADDED, {"m": CAUSAL}),
    "mask and positions": (ADDED, {"m": CAUSAL + np.arange(8, dtype=np.float32)}),
    "mask before a reshape": (RESHAPED, {"m": CAUSAL + 1, "s": np.int64([3, 8, 8])}),
    "bounds": ([node("Clip", "x low high")], {"low": np.float32(-1), "high": np.float32(INF)}),
    "maximum": ([node("Max", "x low")], {"low": LOWEST}),
    "comparison": ([node("Less", "x m", "c"), node("Cast", "c", to=TensorProto.FLOAT)], {"m": CAUSAL}),
    "padding before max-pooling": (PADDED, {"p": np.int64([0, 0, 1, 1, 0, 0, 1, 1]), "v": LOWEST}),
    "dead code": ([node("Relu", "x"), node("Mul", "x k", "unused")], {"k": np.float32(NAN)}),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refuses_with_tensor_node_and_index(name: str, tmp_path: Path) -> None:
    op, pattern = REFUSED[name]
    with pytest.raises(UnsupportedError, match="not finite") as caught:
        tc.convert(network(tmp_path, *CASES[name]))
    (problem,) = caught.value.problems
    assert (problem.kind.id, problem.op, problem.node) == ("TC3108", op, f"the_{op}")
    assert re.search(pattern, problem.message), problem.message


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepts_infinities_with_a_meaning(name: str, tmp_path: Path) -> None:
    nodes, constants = ACCEPTED[name]
    tc.convert(network(tmp_path, nodes, constants))


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    nodes = [node("Conv", "x w b", "t"), node("Mul", "t k")]
    constants = {"w": with_(WEIGHT, i0_0_0_0=NAN), "b": np.float32([INF] * 4), "k": np.full((4, 1, 1), NAN, np.float32)}
    with pytest.raises(UnsupportedError) as caught:
        tc.convert(network(tmp_path, nodes, constants))
    assert [problem.message.split()[0] for problem in caught.value.problems] == ["'w'", "'b'", "'k'"]


def test_option_accepts_them_in_float_only(tmp_path: Path) -> None:
    path = network(tmp_path, [CONV], {"w": with_(WEIGHT, i1_0_0_0=NAN)})
    model = tc.convert(path, source_options=tc.SourceOptions(allow_non_finite=True))
    with tc.Session(model) as session:
        (y,) = session.run({"x": np.ones((1, 3, 8, 8), np.float32)}).values()
    assert np.isnan(y[:, 1]).all()
    assert np.isfinite(y[:, [0, 2, 3]]).all()
    with pytest.raises(UsageError, match="integers have no NaN"):
        tc.convert(
            path,
            source_options=tc.SourceOptions(allow_non_finite=True),
            quantize="int8",
            calibration=[np.ones((1, 3, 8, 8), np.float32)],
        )
    with pytest.raises(UnsupportedError, match="not finite"):
        tc.convert(path, quantize="int8", calibration=[np.ones((1, 3, 8, 8), np.float32)])


def test_infinity_of_folded_constants_is_refused(tmp_path: Path) -> None:
    """sinh(100) overflows FLOAT32. The frontend does not evaluate sinh, the optimizer folds it."""
    nodes = [node("Sinh", "k", "s"), node("Mul", "x s")]
    path = network(tmp_path, nodes, {"k": np.float32([1, 2, 3, 4, 5, 6, 100, 8])})
    with pytest.raises(UnsupportedError, match=r"has infinity at .*computed by") as caught:
        tc.convert(path)
    assert [problem.kind.id for problem in caught.value.problems] == ["TC3108"]


def test_tflite_constants_have_the_index_of_the_file(tmp_path: Path) -> None:
    """The file stores OHWI, the graph OIHW."""
    weight = with_(np.ones((4, 3, 3, 2), np.float32), i1_2_0_1=NAN)
    subgraph = single(
        "CONV_2D",
        [T(shape=(1, 8, 8, 2), type="FLOAT32"), T(data=weight), T(data=np.zeros(4, np.float32))],
        [T(shape=(1, 6, 6, 4), type="FLOAT32")],
        "Conv2DOptions",
        padding=1,
        strideH=1,
        strideW=1,
        dilationHFactor=1,
        dilationWFactor=1,
    )
    path = tmp_path / "net.tflite"
    path.write_bytes(serialize(subgraph))
    with pytest.raises(UnsupportedError, match="not finite") as caught:
        tc.convert(path)
    (problem,) = caught.value.problems
    assert (problem.kind.id, problem.op) == ("TC3108", "CONV_2D")
    assert "'y' [4, 3, 3, 2] has NaN at [1, 2, 0, 1], 1 of 72 elements" in problem.message


def test_caffe_constants_have_the_name_of_their_layer(tmp_path: Path) -> None:
    text = layer("InnerProduct", "inner_product_param { num_output: 2 }", name="ip")
    weights = write_weights(tmp_path, {"ip": [np.float32([[0, 1, NAN, 3], [0, 1, 2, 3]]), np.float32([0, INF])]})
    with pytest.raises(UnsupportedError, match="not finite") as caught:
        tc.convert(write_text(tmp_path, with_input((1, 4), text)), weights)
    assert [(item.op, item.node) for item in caught.value.problems] == [("InnerProduct", "ip")] * 2
    first, second = (item.message for item in caught.value.problems)
    assert first.startswith("'ip, blob 0' [2, 4] has NaN at [0, 2], 1 of 8")
    assert second.startswith("'ip, blob 1' [2] has infinity at [1], 1 of 2")


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_quick_test_sees_every_place(dtype: type) -> None:
    """Sums of huge numbers overflow, infinities of both signs sum to NaN, and views have strides."""
    largest = np.finfo(dtype).max
    for size in (1, 7, (1 << 18) + 5):
        array = np.full(size, largest, dtype)
        assert is_finite(array)
        for place in {0, size // 2, size - 1}:
            for value in (NAN, INF, -INF):
                array[place] = value
                assert not is_finite(array)
                array[place] = largest
    square = np.ones((6, 4), dtype)
    square[5, 1] = INF
    assert not is_finite(square.T)
    assert is_finite(square[:, 2:])
    assert not is_finite(np.broadcast_to(dtype(NAN), (1 << 20, 1 << 10)))
    assert is_finite(np.zeros((0, 3), dtype))


@pytest.mark.slow
@pytest.mark.parametrize("name", names())
def test_no_false_alarm_on_trained_models(name: str, data_root: Path) -> None:
    entry = entries(data_root)[name]
    source, weights = model_files(data_root, entry)
    graph = load_source(Source(source, weights), Options(input_shapes=dict(input_shapes(entry) or {})))
    check_finite(graph)
