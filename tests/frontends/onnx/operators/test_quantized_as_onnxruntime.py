"""Quantized models give ONNX Runtime's integers.

Bound: equal, or one step apart where the exact result is a tie within the rounding error of float32. How many such
results a case may have is stated with it; where none is stated, every integer is equal. Scales are arbitrary
numbers, as calibration gives them: between round decimals or powers of two ties would be the rule.
"""

import functools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import tpuconvert as tc
from tests.support.onnx.models import model, save_model
from tests.support.paired import paired
from tpuconvert.frontends.onnx.operators.microsoft import DOMAIN
from tpuconvert.schema.types import Array

onnxruntime = pytest.importorskip("onnxruntime", reason="needs onnxruntime: install tpuconvert[oracles]")

Bytes = type[np.uint8] | type[np.int8]
BYTES: tuple[Bytes, ...] = (np.uint8, np.int8)
PAIRS = ((np.uint8, np.int8), (np.uint8, np.uint8), (np.int8, np.int8))
"""Types of activation and weight that ONNX Runtime multiplies."""

NEAR_TIES = 0.001
"""Largest share of results that may differ by one step because of ties in float32."""


def integers(dtype: Any, *shape: int, seed: int = 0) -> Array:
    limits = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(limits.min, limits.max + 1, shape).astype(dtype)


def scales(count: int, low: float, high: float, seed: int = 0) -> Array:
    return np.random.default_rng(seed).uniform(low, high, count).astype(np.float32)


def node(op: str, inputs: Sequence[str], output: str = "y", domain: str = "", **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, list(inputs), [output], name=f"{op}_{output}", domain=domain, **attributes)


def q(x: str, y: str, name: str, **attributes: Any) -> onnx.NodeProto:
    return node("QuantizeLinear", [x, f"{name}_scale", f"{name}_zero"], y, **attributes)


def dq(x: str, y: str, name: str, **attributes: Any) -> onnx.NodeProto:
    return node("DequantizeLinear", [x, f"{name}_scale", f"{name}_zero"], y, **attributes)


def triple(x: str, name: str) -> list[str]:
    return [x, f"{name}_scale", f"{name}_zero"]


@functools.cache
def sums_saturate() -> bool:
    """Return True if ONNX Runtime saturates the sum of two products to 16 bits.

    Its kernels do so for unsigned activations and signed weights on x86-64 processors without VNNI.
    """
    arrays = {"x": np.full((1, 64), 255, np.uint8), "w": np.full((64, 64), 127, np.int8)}
    proto = model([node("MatMulInteger", ["x", "w"])], {"x": arrays["x"]}, ["y"], {"w": arrays["w"]}, opset=17)
    return bool(reference_outputs(proto, {"x": arrays["x"]}, literally=False)[0][0, 0] != 64 * 255 * 127)


def reference_outputs(proto: onnx.ModelProto, feeds: Mapping[str, Array], literally: bool) -> list[Array]:
    options = onnxruntime.SessionOptions()
    if literally:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    for value in proto.graph.output:
        value.ClearField("type")  # it infers them
    found: list[Array] = onnxruntime.InferenceSession(proto.SerializeToString(), options).run(None, dict(feeds))
    return found


def compare(
    nodes: Sequence[onnx.NodeProto],
    feeds: Mapping[str, Array],
    constants: Mapping[str, Any],
    folder: Path,
    *,
    opset: int = 17,
    share: float = 0.0,
    outputs: Sequence[str] = ("y",),
    needs: str = "",
    literally: bool = False,
    chip: str = "bm1686",
) -> None:
    """Run both and compare; ``share`` of the integers may be one step apart.

    Args:
        needs: an operator that the converted model must have: that it computes on integers.
        literally: node by node, without the integer kernels that replace several nodes in ONNX Runtime.
    """
    arrays = {name: np.asarray(array) for name, array in constants.items()}
    ir_version = 8 if opset < 21 else 10
    if any(re.search("Conv|MatMul|Gemm|Attention", item.op_type) for item in nodes) and sums_saturate():
        pytest.skip("ONNX Runtime saturates 16-bit sums on this processor, which has no VNNI")
    proto = model(nodes, feeds, outputs, arrays, opset=opset, domains={DOMAIN: 1}, ir_version=ir_version)
    want = reference_outputs(proto, feeds, literally)
    converted = tc.convert(save_model(proto, folder), chip=chip)
    assert not needs or needs in {item.op.name for item in converted.graph.nodes}
    with tc.Session(converted) as session:
        found = session.run(feeds)
    for name, reference in zip(outputs, want, strict=True):
        mine = found[name]
        assert (mine.dtype, mine.shape) == (reference.dtype, reference.shape)
        if reference.dtype.kind == "f":
            np.testing.assert_allclose(mine, reference, rtol=1e-6, atol=0)
            continue
        steps = np.abs(mine.astype(np.int64) - reference)
        assert steps.max(initial=0) <= (1 if share else 0)
        assert (steps > 0).sum() <= share * steps.size


# QuantizeLinear and DequantizeLinear

VERSIONS = [(10, dtype) for dtype in BYTES] + [
    (opset, dtype)
    for opset in (13, 19, 21, 23)
    for dtype in ((*BYTES, np.uint16, np.int16) if opset >= 21 else BYTES)
]  # fmt: skip


@pytest.mark.parametrize("scale", [0.25, 0.1], ids=["ties", "decimal"])
@pytest.mark.parametrize(("opset", "dtype"), VERSIONS)
def test_quantize(opset: int, dtype: Any, scale: float, tmp_path: Path) -> None:
    """Eighths divided by a quarter: every other one is a tie. Infinities and large numbers saturate."""
    x = (np.random.default_rng(0).integers(-700, 700, (2, 3, 4, 5)) / 8).astype(np.float32)
    x.flat[:4] = [np.inf, -np.inf, 1e9, -1e9]
    constants = {"y_scale": np.float32(scale), "y_zero": dtype(np.iinfo(dtype).max // 3)}
    compare([q("x", "y", "y")], {"x": x}, constants, tmp_path, opset=opset)


@pytest.mark.parametrize(("opset", "dtype", "axis"), paired([pair for pair in VERSIONS if pair[0] >= 13], [0, 1, -1]))
def test_quantize_per_channel(opset: int, dtype: Any, axis: int, tmp_path: Path) -> None:
    x = (np.random.default_rng(0).integers(-700, 700, (2, 3, 4, 5)) / 8).astype(np.float32)
    x.flat[:4] = [np.inf, -np.inf, 1e9, -1e9]
    count = x.shape[axis]
    zero = np.arange(count).astype(dtype) + dtype(7)
    constants = {"y_scale": np.array([0.25, 0.5, 0.1, 0.3, 0.125], np.float32)[:count], "y_zero": zero}
    compare([q("x", "y", "y", axis=axis)], {"x": x}, constants, tmp_path, opset=opset)


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize(("opset", "dtype"), VERSIONS)
def test_dequantize(opset: int, dtype: Any, axis: int | None, tmp_path: Path) -> None:
    if opset < 13 and axis is not None:
        pytest.skip("one scale per tensor before opset 13")
    x = integers(dtype, 2, 3, 4, 5)
    count = 1 if axis is None else x.shape[axis]
    scale, zero = scales(count, 0.01, 0.2), np.arange(count).astype(dtype) + dtype(100)
    constants = {"x_scale": scale[0] if axis is None else scale, "x_zero": zero[0] if axis is None else zero}
    attributes = {} if axis is None else {"axis": axis}
    compare([dq("x", "y", "x", **attributes)], {"x": x}, constants, tmp_path, opset=opset)


def test_dequantize_int32(tmp_path: Path) -> None:
    x = np.random.default_rng(0).integers(-(2**31), 2**31, (2, 3, 4)).astype(np.int32)
    compare([node("DequantizeLinear", ["x", "s"])], {"x": x}, {"s": np.float32(0.013)}, tmp_path)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint16, np.int16])
def test_quantize_to_a_named_type(dtype: Any, tmp_path: Path) -> None:
    x = np.linspace(-90, 90, 241, dtype=np.float32)
    named = node("QuantizeLinear", ["x", "s"], output_dtype=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
    compare([named], {"x": x}, {"s": np.float32(0.3)}, tmp_path, opset=21)


def test_blocks(tmp_path: Path) -> None:
    """A scale for every two elements along an axis, of computed values too."""
    x = (np.random.default_rng(0).integers(-700, 700, (2, 3, 4, 5)) / 8).astype(np.float32)
    blocks = scales(30, 0.1, 1).reshape(2, 3, 1, 5).repeat(2, axis=2)
    step = node("QuantizeLinear", ["x", "s"], axis=2, block_size=2)
    compare([step], {"x": x}, {"s": blocks}, tmp_path, opset=21)
    back = node("DequantizeLinear", ["x", "s"], axis=2, block_size=2)
    compare([back], {"x": integers(np.int8, 2, 3, 4, 5)}, {"s": blocks}, tmp_path, opset=21)


# Products

WINDOWS = {
    "padded": (1, 6, 8, {"pads": [1, 1, 1, 1]}),
    "depthwise": (6, 6, 6, {"pads": [0, 1, 2, 0], "strides": [2, 1]}),
    "grouped": (2, 6, 4, {"dilations": [2, 2]}),
    "same": (1, 6, 8, {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
}


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("per_channel", [False, True], ids=["tensor", "channel"])
@pytest.mark.parametrize(("x_type", "w_type"), PAIRS)
@pytest.mark.parametrize("form", ["qlinear", "qdq"])
def test_convolution(form: str, x_type: Bytes, w_type: Bytes, per_channel: bool, window: str, tmp_path: Path) -> None:
    groups, inputs, outputs, attributes = WINDOWS[window]
    x, w = integers(x_type, 1, inputs, 24, 24), integers(w_type, outputs, inputs // groups, 3, 3, seed=1)
    count = outputs if per_channel else 1
    w_scale, w_zero = scales(count, 0.002, 0.02), np.full(count, 131 if w_type is np.uint8 else 0).astype(w_type)
    x_scale = np.float32(0.0513)
    constants = {
        "x_scale": x_scale, "x_zero": x_type(100), "w": w, "b": np.arange(outputs, dtype=np.int32) * 700 - 2000,
        "w_scale": w_scale if per_channel else w_scale[0], "w_zero": w_zero if per_channel else w_zero[0],
        "y_scale": np.float32(0.3017), "y_zero": x_type(90),
        "b_scale": x_scale * w_scale if per_channel else x_scale * w_scale[0],
        "b_zero": np.zeros(count, np.int32) if per_channel else np.int32(0),
    }  # fmt: skip
    if form == "qlinear":
        read = [*triple("x", "x"), *triple("w", "w"), "y_scale", "y_zero", "b"]
        nodes = [node("QLinearConv", read, group=groups, **attributes)]
    else:
        along = {"axis": 0} if per_channel else {}
        nodes = [dq("x", "xf", "x"), dq("w", "wf", "w", **along), dq("b", "bf", "b", **along)]
        nodes += [node("Conv", ["xf", "wf", "bf"], "yf", group=groups, **attributes), q("yf", "y", "y")]
    compare(nodes, {"x": x}, constants, tmp_path, opset=13, share=NEAR_TIES, needs="conv_v2")


def test_convolution_of_sequences(tmp_path: Path) -> None:
    constants = {
        "x_scale": np.float32(0.0513), "x_zero": np.uint8(100), "w": integers(np.int8, 5, 4, 3, seed=1),
        "w_scale": np.float32(0.0131), "w_zero": np.int8(0), "y_scale": np.float32(0.3017), "y_zero": np.uint8(90),
    }  # fmt: skip
    read = [*triple("x", "x"), *triple("w", "w"), "y_scale", "y_zero"]
    feeds = {"x": integers(np.uint8, 1, 4, 30)}
    compare([node("QLinearConv", read)], feeds, constants, tmp_path, needs="conv_v2")


@pytest.mark.parametrize("right", ["tensor", "column", "computed"])
@pytest.mark.parametrize("batch", [(), (3,)], ids=["matrix", "batch"])
@pytest.mark.parametrize(("a_type", "b_type"), PAIRS)
@pytest.mark.parametrize(("form", "opset"), [("qlinear", 10), ("qlinear", 21), ("qdq", 13), ("qdq", 21)])
def test_matrix_product(
    form: str, opset: int, a_type: Bytes, b_type: Bytes, batch: tuple[int, ...], right: str, tmp_path: Path
) -> None:
    if right == "column" and batch:
        pytest.skip("ONNX Runtime takes scales per column of one matrix only")
    count = 9 if right == "column" else 1
    b_scale, b_zero = scales(count, 0.01, 0.03), np.full(count, 7 if b_type is np.uint8 else 0).astype(b_type)
    constants = {
        "a_scale": np.float32(0.0213), "a_zero": a_type(11), "y_scale": np.float32(0.2017), "y_zero": a_type(33),
        "b_scale": b_scale if right == "column" else b_scale[0], "b_zero": b_zero if right == "column" else b_zero[0],
    }  # fmt: skip
    feeds, b = {"a": integers(a_type, *batch, 7, 20)}, integers(b_type, *batch, 20, 9, seed=1)
    (feeds if right == "computed" else constants)["b"] = b
    if form == "qlinear":
        nodes = [node("QLinearMatMul", [*triple("a", "a"), *triple("b", "b"), "y_scale", "y_zero"])]
    else:
        along = {"axis": 1} if right == "column" else {}
        nodes = [dq("a", "af", "a"), dq("b", "bf", "b", **along), node("MatMul", ["af", "bf"], "yf"), q("yf", "y", "y")]
    compare(nodes, feeds, constants, tmp_path, opset=opset, share=NEAR_TIES)


@pytest.mark.parametrize("zeros", ["none", "tensor", "column"])
@pytest.mark.parametrize("computed", [False, True], ids=["constant", "computed"])
@pytest.mark.parametrize("a_type", BYTES)
@pytest.mark.parametrize("b_type", BYTES)
def test_matmul_integer(a_type: Bytes, b_type: Bytes, computed: bool, zeros: str, tmp_path: Path) -> None:
    feeds, constants = {"a": integers(a_type, 5, 40)}, {}
    (feeds if computed else constants)["b"] = integers(b_type, 40, 7, seed=1)
    if zeros != "none":
        constants |= {"az": a_type(9), "bz": b_type(3) if zeros == "tensor" else np.arange(7).astype(b_type)}
    read = ["a", "b", "az", "bz"] if zeros != "none" else ["a", "b"]
    compare([node("MatMulInteger", read)], feeds, constants, tmp_path)


@pytest.mark.parametrize("zero", [None, 3])
@pytest.mark.parametrize("x_type", BYTES)
@pytest.mark.parametrize("w_type", BYTES)
def test_conv_integer(x_type: Bytes, w_type: Bytes, zero: int | None, tmp_path: Path) -> None:
    constants = {"w": integers(w_type, 6, 4, 3, 3, seed=1), "xz": x_type(9)}
    if zero is not None:
        constants["wz"] = w_type(zero)
    read = ["x", *constants][:3] if zero is None else ["x", "w", "xz", "wz"]
    compare([node("ConvInteger", read, pads=[1, 1, 1, 1])], {"x": integers(x_type, 1, 4, 9, 9)}, constants, tmp_path)


RANGES = {"both": (-3.0, 3.0), "wide": (-40.0, 31.0), "positive": (0.5, 3.0), "negative": (-3.0, -0.5), "zero": (0, 0)}


@pytest.mark.parametrize("span", RANGES)
def test_dynamic_quantization(span: str, tmp_path: Path) -> None:
    x = np.random.default_rng(0).uniform(*RANGES[span], (3, 16)).astype(np.float32)
    first = helper.make_node("DynamicQuantizeLinear", ["x"], ["xq", "s", "z"])
    compare([first], {"x": x}, {}, tmp_path, outputs=["xq", "s", "z"])
    constants = {"w": integers(np.int8, 16, 5, seed=1), "wz": np.int8(3), "ws": np.float32(0.0117)}
    nodes = [
        first, node("MatMulInteger", ["xq", "w", "z", "wz"], "i"), node("Cast", ["i"], "f", to=1),
        node("Mul", ["s", "ws"], "scale"), node("Mul", ["f", "scale"]),
    ]  # fmt: skip
    compare(nodes, {"x": x}, constants, tmp_path)


# Operators of ONNX Runtime's own domain, and the QDQ form of the same


def plain(op: str) -> str:
    return op.removeprefix("QLinear")


@pytest.mark.parametrize("zero", [0, 100])
@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
@pytest.mark.parametrize("form", ["qlinear", "qdq"])
def test_arithmetic(form: str, op: str, dtype: Bytes, zero: int, tmp_path: Path) -> None:
    """All pairs of operands."""
    every = np.arange(256).astype(dtype)
    feeds = {"a": np.repeat(every, 256), "b": np.tile(every, 256)}
    constants = {
        "a_scale": np.float32(0.021371), "a_zero": dtype(zero), "b_scale": np.float32(0.033719), "b_zero": dtype(17),
        "y_scale": np.float32(0.041237), "y_zero": dtype(55),
    }  # fmt: skip
    if form == "qlinear":
        nodes = [node(op, [*triple("a", "a"), *triple("b", "b"), "y_scale", "y_zero"], domain=DOMAIN)]
    else:
        nodes = [dq("a", "af", "a"), dq("b", "bf", "b"), node(plain(op), ["af", "bf"], "yf"), q("yf", "y", "y")]
    compare(nodes, feeds, constants, tmp_path, share=NEAR_TIES, needs="requant_int32")


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("op", ["QLinearSigmoid", "QLinearLeakyRelu"])
def test_functions(op: str, dtype: Bytes, tmp_path: Path) -> None:
    """All operands; ONNX Runtime approximates the exponential by a polynomial."""
    constants = {
        "x_scale": np.float32(0.0513), "x_zero": dtype(60), "y_scale": np.float32(0.0041), "y_zero": dtype(0),
    }  # fmt: skip
    read = [*triple("x", "x"), "y_scale", "y_zero"]
    feeds = {"x": np.arange(256).astype(dtype).reshape(4, 64)}
    compare([node(op, read, domain=DOMAIN)], feeds, constants, tmp_path, needs="lut")


@pytest.mark.parametrize("y_scale", [0.0513, 0.0317])
@pytest.mark.parametrize("shape", [(1, 5, 7, 7), (2, 3, 8, 8), (1, 3, 6, 5), (1, 4, 1, 1)], ids=str)
@pytest.mark.parametrize("dtype", BYTES)
def test_global_average(dtype: Bytes, shape: tuple[int, ...], y_scale: float, tmp_path: Path) -> None:
    constants = {
        "x_scale": np.float32(0.0513), "x_zero": dtype(60), "y_scale": np.float32(y_scale), "y_zero": dtype(60),
    }  # fmt: skip
    nodes = [node("QLinearGlobalAveragePool", [*triple("x", "x"), "y_scale", "y_zero"], domain=DOMAIN)]
    compare(nodes, {"x": integers(dtype, *shape)}, constants, tmp_path)


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("attributes", [{"strides": [2, 2]}, {"pads": [1, 1, 1, 1]}], ids=["inside", "padded"])
def test_average(attributes: dict[str, Any], dtype: Bytes, tmp_path: Path) -> None:
    """3x3 average pooling to another scale; ONNX Runtime adds floats, whose rounding decides ties."""
    constants = {
        "x_scale": np.float32(0.0513), "x_zero": dtype(60), "y_scale": np.float32(0.0317), "y_zero": dtype(50),
    }  # fmt: skip
    read = [*triple("x", "x"), "y_scale", "y_zero"]
    nodes = [node("QLinearAveragePool", read, domain=DOMAIN, kernel_shape=[3, 3], **attributes)]
    compare(nodes, {"x": integers(dtype, 1, 8, 13, 13)}, constants, tmp_path, share=0.005)


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("form", ["qlinear", "qdq"])
def test_concatenation(form: str, dtype: Bytes, tmp_path: Path) -> None:
    constants = {
        "a_scale": np.float32(0.0513), "a_zero": dtype(60), "b_scale": np.float32(0.0217), "b_zero": dtype(17),
        "y_scale": np.float32(0.0317), "y_zero": dtype(5),
    }  # fmt: skip
    feeds = {"a": integers(dtype, 1, 3, 9, 9), "b": integers(dtype, 1, 5, 9, 9, seed=1)}
    if form == "qlinear":
        read = ["y_scale", "y_zero", *triple("a", "a"), *triple("b", "b")]
        nodes = [node("QLinearConcat", read, domain=DOMAIN, axis=1)]
    else:
        nodes = [dq("a", "af", "a"), dq("b", "bf", "b"), node("Concat", ["af", "bf"], "yf", axis=1), q("yf", "y", "y")]
    compare(nodes, feeds, constants, tmp_path, needs="lut")


@pytest.mark.parametrize("per_column", [False, True], ids=["tensor", "column"])
@pytest.mark.parametrize("transposed", [0, 1])
@pytest.mark.parametrize("bias", [False, True], ids=["plain", "bias"])
@pytest.mark.parametrize("dtype", BYTES)
def test_gemm(dtype: Bytes, bias: bool, transposed: int, per_column: bool, tmp_path: Path) -> None:
    count = 9 if per_column else 1
    scale, zero = scales(count, 0.01, 0.03), np.zeros(count, np.int8)
    constants = {
        "a_scale": np.float32(0.0213), "a_zero": dtype(11), "y_scale": np.float32(0.2017), "y_zero": dtype(33),
        "b": integers(np.int8, *((9, 24) if transposed else (24, 9)), seed=1), "c": np.arange(9, dtype=np.int32) * 200,
        "b_scale": scale if per_column else scale[0], "b_zero": zero if per_column else zero[0],
    }  # fmt: skip
    read = [*triple("a", "a"), *triple("b", "b"), "c" if bias else "", "y_scale", "y_zero"]
    feeds = {"a": integers(dtype, 7, 24)}
    nodes = [node("QGemm", read, domain=DOMAIN, transB=transposed)]
    compare(nodes, feeds, constants, tmp_path, share=NEAR_TIES, needs="matrix_mul_v2")


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("x_scale", [0.0213, 0.1117])
@pytest.mark.parametrize("form", ["qlinear", "qdq"])
def test_softmax(form: str, x_scale: float, dtype: Bytes, tmp_path: Path) -> None:
    """Rows of 50. For scales of the result other than 1/256 ONNX Runtime's integer kernel is up to one step off."""
    constants = {
        "x_scale": np.float32(x_scale), "x_zero": dtype(60), "y_scale": np.float32(1 / 256),
        "y_zero": dtype(np.iinfo(dtype).min),
    }  # fmt: skip
    if form == "qlinear":
        read = [*triple("x", "x"), "y_scale", "y_zero"]
        nodes = [node("QLinearSoftmax", read, domain=DOMAIN, opset=13, axis=-1)]
    else:
        nodes = [dq("x", "xf", "x"), node("Softmax", ["xf"], "yf", axis=-1), q("yf", "y", "y")]
    compare(nodes, {"x": integers(dtype, 200, 50)}, constants, tmp_path, needs="softmax_int")


MOVES: dict[str, dict[str, Any]] = {
    "MaxPool": {"kernel_shape": [2, 2], "strides": [2, 2]},
    "Relu": {},
    "Transpose": {"perm": [0, 2, 3, 1]},
    "Flatten": {},
}


@pytest.mark.parametrize("op", MOVES)
@pytest.mark.parametrize("dtype", BYTES)
def test_between_dequantize_and_quantize(dtype: Bytes, op: str, tmp_path: Path) -> None:
    """Operators that keep the scale, after a convolution without a scale of its output."""
    constants = {
        "x_scale": np.float32(0.0513), "x_zero": dtype(60), "w": integers(np.int8, 4, 3, 3, 3, seed=1),
        "w_scale": np.float32(0.0131), "w_zero": np.int8(0), "y_scale": np.float32(0.3017),
        "y_zero": dtype(np.iinfo(dtype).min),
    }  # fmt: skip
    nodes = [
        dq("x", "xf", "x"), dq("w", "wf", "w"), node("Conv", ["xf", "wf"], "c"), q("c", "cq", "y"), dq("cq", "cf", "y"),
        node(op, ["cf"], "yf", **MOVES[op]), q("yf", "y", "y"),
    ]  # fmt: skip
    compare(nodes, {"x": integers(dtype, 1, 3, 12, 12)}, constants, tmp_path, share=NEAR_TIES, needs="conv_v2")


ONE_OPERAND: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "Abs": ({}, {}),
    "Clip": ({}, {"low": np.float32(-1), "high": np.float32(3.3)}),
    "DepthToSpace": ({"blocksize": 2}, {}),
    "Div": ({}, {"k": np.float32(2)}),
    "Elu": ({}, {}),
    "Exp": ({}, {}),
    "Expand": ({}, {"shape": np.array([2, 4, 12, 12])}),
    "GlobalMaxPool": ({}, {}),
    "HardSigmoid": ({}, {}),
    "HardSwish": ({}, {}),
    "LayerNormalization": ({}, {"gamma": np.linspace(0.5, 2, 12, dtype=np.float32)}),
    "LeakyRelu": ({"alpha": 0.1}, {}),
    "MaxPool": ({"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}, {}),
    "Mul": ({}, {"k": np.linspace(0.5, 2, 4, dtype=np.float32).reshape(4, 1, 1)}),
    "Neg": ({}, {}),
    "PRelu": ({}, {"slope": np.linspace(0.1, 0.4, 4, dtype=np.float32).reshape(4, 1, 1)}),
    "Pad": ({}, {"pads": np.array([0, 0, 1, 1, 0, 0, 2, 2])}),
    "ReduceMax": ({}, {}),
    "Sigmoid": ({}, {}),
    "Softmax": ({"axis": 1}, {}),
    "Sub": ({}, {"k": np.float32(0.7)}),
    "Tanh": ({}, {}),
    "Tile": ({}, {"repeats": np.array([1, 1, 2, 1])}),
    "Transpose": ({"perm": [0, 2, 3, 1]}, {}),
}


@pytest.mark.parametrize("op", ONE_OPERAND)
@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint16, np.int16])
def test_definition_of_one_operand(dtype: Any, op: str, tmp_path: Path) -> None:
    """From one scale to another; in 16 bits the last digit of a function may decide a near tie."""
    attributes, operands = ONE_OPERAND[op]
    fine = 1 if np.dtype(dtype).itemsize == 1 else 1 / 200
    constants = {
        "x_scale": np.float32(0.0513 * fine), "x_zero": dtype(60), "y_scale": np.float32(0.0417 * fine),
        "y_zero": dtype(40), **operands,
    }  # fmt: skip
    nodes = [dq("x", "xf", "x"), node(op, ["xf", *operands], "yf", **attributes), q("yf", "y", "y")]
    share = 0.0 if fine == 1 else 0.005
    compare(nodes, {"x": integers(dtype, 1, 4, 12, 12)}, constants, tmp_path, opset=21, share=share, literally=True)


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div", "Max", "Min"])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint16, np.int16])
def test_definition_of_two_operands(dtype: Any, op: str, tmp_path: Path) -> None:
    fine = 1 if np.dtype(dtype).itemsize == 1 else 1 / 200
    constants = {
        "a_scale": np.float32(0.0513 * fine), "a_zero": dtype(60), "b_scale": np.float32(0.0317 * fine),
        "b_zero": dtype(20), "y_scale": np.float32(0.0611 * fine), "y_zero": dtype(40),
    }  # fmt: skip
    nodes = [dq("a", "af", "a"), dq("b", "bf", "b"), node(op, ["af", "bf"], "yf"), q("yf", "y", "y")]
    feeds = {"a": integers(dtype, 1, 4, 50, 50), "b": integers(dtype, 1, 4, 50, 1, seed=1)}
    compare(nodes, feeds, constants, tmp_path, opset=21, share=NEAR_TIES, literally=True)


@pytest.mark.parametrize("chip", ["bm1684", "bm1686"])
def test_inputs_are_rounded_for_float_layers(chip: str, tmp_path: Path) -> None:
    """A convolution whose zero points BM1684 has no integer form for reads what QuantizeLinear leaves of its input."""
    constants = {
        "x_scale": np.float32(0.0513), "x_zero": np.uint8(100), "w": integers(np.uint8, 5, 4, 3, 3, seed=1),
        "w_scale": np.float32(0.0131), "w_zero": np.uint8(131), "y_scale": np.float32(0.3017), "y_zero": np.uint8(90),
    }  # fmt: skip
    nodes = [q("x", "xq", "x"), node("QLinearConv", [*triple("xq", "x"), *triple("w", "w"), "y_scale", "y_zero"])]
    x = np.random.default_rng(0).uniform(-6, 6, (1, 4, 30, 30)).astype(np.float32)
    compare(nodes, {"x": x}, constants, tmp_path, chip=chip, share=NEAR_TIES)
