"""Quantized models become annotated float graphs; the integers of the file are kept."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import tpuconvert as tc
from tests.support.onnx.models import graph_of, model, one, ops, ours, ramp, save_model
from tests.support.onnx.reference import evaluate
from tpuconvert.frontends.onnx import load
from tpuconvert.schema.errors import UnsupportedError
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.types import Array, DType, QuantParams

X = ramp(1, 3, 6, 6)
W = np.random.default_rng(1).integers(-128, 128, (4, 3, 3, 3)).astype(np.int8)
B = np.arange(-200, 200, 100, dtype=np.int32)
W_SCALE = np.array([0.01, 0.02, 0.015, 0.005], np.float32)
PARAMS: dict[str, Array] = {
    "xs": np.float32(0.025), "xz": np.uint8(120), "W": W, "ws": W_SCALE, "wz": np.zeros(4, np.int8),
    "ys": np.float32(0.08), "yz": np.uint8(100), "B": B, "bs": (np.float32(0.025) * W_SCALE).astype(np.float32),
    "bz": np.zeros(4, np.int32),
}  # fmt: skip


def q(x: str, y: str, p: str) -> onnx.NodeProto:
    return helper.make_node("QuantizeLinear", [x, f"{p}s", f"{p}z"], [y], name=f"q_{y}")


def dq(x: str, y: str, p: str, **attributes: int) -> onnx.NodeProto:
    return helper.make_node("DequantizeLinear", [x, f"{p}s", f"{p}z"], [y], name=f"dq_{y}", **attributes)


def qdq_conv() -> onnx.ModelProto:
    nodes = [
        q("x", "xq", "x"), dq("xq", "xr", "x"), dq("W", "wr", "w", axis=0), dq("B", "br", "b", axis=0),
        one("Conv", "xr", "wr", "br", outputs=["c"], pads=[1, 1, 1, 1]), q("c", "cq", "y"), dq("cq", "y", "y"),
    ]  # fmt: skip
    return model(nodes, {"x": X}, ["y"], PARAMS, opset=19, ir_version=9)


def simulate(graph: Graph, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Run a graph with every annotated value rounded half to even to its integers, as the standard does."""

    def round_to_scale(array: Array, quant: QuantParams | None) -> Array:
        if quant is None:
            return array
        integers = np.rint(array / np.float32(quant.scale[0])) + quant.zero_point[0]
        integers = np.clip(integers, quant.dtype.min, quant.dtype.max) - quant.zero_point[0]
        return (integers.astype(np.float32) * np.float32(quant.scale[0])).astype(np.float32)

    values = {value.name: round_to_scale(feeds[port.name], value.quant)
              for port, value in zip(graph.input_ports, graph.inputs, strict=True)}  # fmt: skip
    for node in graph.nodes:
        operands = [None if v is None else v.data if v.data is not None else values[v.name] for v in node.inputs]
        for value, array in zip(node.outputs, node.op.evaluate(*operands), strict=True):
            values[value.name] = round_to_scale(array, value.quant)
    return {p.name: values[v.name] for p, v in zip(graph.output_ports, graph.outputs, strict=True)}


def test_qdq_convolution_is_one_annotated_node(tmp_path: Path) -> None:
    graph = graph_of(qdq_conv(), tmp_path)
    assert ops(graph) == ["conv"]
    assert graph.rescale == "onnx"
    assert graph.inputs[0].quant == QuantParams((float(np.float32(0.025)),), (120,), DType.UINT8)
    assert graph.outputs[0].quant == QuantParams((float(np.float32(0.08)),), (100,), DType.UINT8)
    assert graph.input_ports[0].dtype == graph.output_ports[0].dtype == "float32"
    _, w, b = graph.nodes[0].inputs
    assert w is not None
    assert w.quant is not None
    assert w.quant.axis == 0
    assert w.stored is not None
    assert np.array_equal(w.stored, W)
    assert np.array_equal(w.array, W * W_SCALE.reshape(4, 1, 1, 1))
    assert b is not None
    assert b.stored is not None
    assert b.quant is not None
    assert b.stored.dtype == np.int32
    assert np.array_equal(b.stored.reshape(-1), B)
    assert b.quant.axis == 1


def test_qdq_numbers(tmp_path: Path) -> None:
    proto = qdq_conv()
    (expected,) = evaluate(proto, ["y"], {"x": X})
    found = simulate(graph_of(proto, tmp_path), {"x": X})["y"]
    steps = np.abs(found - expected) / np.float32(0.08)
    assert (steps > 0.5).mean() < 0.01  # ties of a float32 sum
    assert steps.max() < 1.5


@pytest.mark.parametrize("bounds", [("low", "high"), ("", "high"), ("low", "")])
def test_clipped_integers_of_fake_quantization(bounds: tuple[str, str], tmp_path: Path) -> None:
    """PyTorch exports fake quantization to fewer than 256 values as Clip between both nodes."""
    nodes = [
        q("x", "xq", "x"), helper.make_node("Clip", ["xq", *bounds], ["xc"]), dq("xc", "xr", "x"),
        dq("W", "wr", "w", axis=0), dq("B", "br", "b", axis=0), one("Conv", "xr", "wr", "br", outputs=["c"]),
        q("c", "cq", "y"), helper.make_node("Clip", ["cq", *bounds], ["cc"]), dq("cc", "y", "y"),
    ]  # fmt: skip
    limits = {"low": np.uint8(90), "high": np.uint8(127)}
    proto = model(nodes, {"x": X}, ["y"], {**PARAMS, **limits}, opset=19, ir_version=9)
    onnx.save(proto, tmp_path / "m.onnx")
    (expected,) = evaluate(proto, ["y"], {"x": X})
    converted = tc.convert(tmp_path / "m.onnx", chip="bm1686")
    with tc.Session(converted, backend="reference") as session:
        found = session.run({"x": X})["y"]
    assert np.unique(expected).size > 20
    steps = np.abs(found - expected) / np.float32(0.08)
    assert (steps > 0.5).mean() < 0.01  # ties of a float32 sum
    assert steps.max() < 1.5
    assert "conv_v2" in [node.op.name for node in converted.graph.nodes]


def test_qlinear_convolution_equals_the_qdq_form(tmp_path: Path) -> None:
    nodes = [
        q("x", "xq", "x"),
        one("QLinearConv", "xq", "xs", "xz", "W", "ws", "wz", "ys", "yz", "B", outputs=["cq"], pads=[1, 1, 1, 1]),
        dq("cq", "y", "y"),
    ]
    graph = graph_of(model(nodes, {"x": X}, ["y"], PARAMS), tmp_path)
    other = graph_of(qdq_conv(), tmp_path)
    assert ops(graph) == ops(other)
    for mine, theirs in zip(graph.nodes[0].inputs, other.nodes[0].inputs, strict=True):
        assert mine is not None
        assert theirs is not None
        assert mine.type == theirs.type
        if mine.stored is not None:
            assert theirs.stored is not None
            assert np.array_equal(mine.stored, theirs.stored)
    assert graph.outputs[0].quant == other.outputs[0].quant
    assert np.array_equal(simulate(graph, {"x": X})["y"], simulate(other, {"x": X})["y"])


def test_quantized_inputs_and_outputs_keep_their_type(tmp_path: Path) -> None:
    nodes = [dq("x", "xr", "x"), one("Relu", "xr", outputs=["r"]), q("r", "y", "y")]
    proto = model(nodes, {"x": np.zeros((2, 5), np.uint8)}, ["y"], PARAMS, opset=19, ir_version=9)
    graph = graph_of(proto, tmp_path)
    assert ops(graph) == ["active"]
    assert (graph.input_ports[0].dtype, graph.output_ports[0].dtype) == ("uint8", "uint8")
    assert graph.input_ports[0].quant == graph.inputs[0].quant
    assert graph.output_ports[0].quant == graph.outputs[0].quant
    x = np.arange(100, 110, dtype=np.uint8).reshape(2, 5)
    (expected,) = evaluate(proto, ["y"], {"x": x})
    assert np.array_equal(ours(proto, {"x": x}, tmp_path)["y"], expected)


def test_copy_stays_where_the_unrounded_value_is_read_too(tmp_path: Path) -> None:
    nodes = [one("Relu", "x", outputs=["r"]), q("r", "rq", "x"), dq("rq", "rr", "x"), one("Add", "r", "rr")]
    graph = graph_of(model(nodes, {"x": ramp(4)}, ["y"], PARAMS), tmp_path)
    assert ops(graph) == ["active", "copy", "add"]
    assert graph.nodes[0].output.quant is None
    assert graph.nodes[1].output.quant is not None


def test_equal_annotations_of_one_value_are_one(tmp_path: Path) -> None:
    nodes = [
        one("Relu", "x", outputs=["r"]), q("r", "q0", "x"), dq("q0", "d0", "x"), q("r", "q1", "x"), dq("q1", "d1", "x"),
        one("Add", "d0", "d1"),
    ]  # fmt: skip
    graph = graph_of(model(nodes, {"x": ramp(4)}, ["y"], PARAMS), tmp_path)
    assert ops(graph) == ["active", "add"]
    assert graph.nodes[0].output.quant is not None


def test_data_movement_keeps_the_annotation(tmp_path: Path) -> None:
    nodes = [
        q("x", "a", "x"), one("Transpose", "a", outputs=["b"], perm=[0, 2, 3, 1]),
        one("Reshape", "b", "shape", outputs=["c"]),
        one("Pad", "c", "pads", "xz", outputs=["d"]), one("MaxPool", "a", outputs=["e"], kernel_shape=[2, 2]),
        dq("d", "y", "x"), dq("e", "z", "x"),
    ]  # fmt: skip
    constants = {**PARAMS, "shape": np.array([6, 18]), "pads": np.array([0, 1, 0, 0])}
    proto = model(nodes, {"x": X}, ["y", "z"], constants, opset=19, ir_version=9)
    graph = graph_of(proto, tmp_path)
    assert {value.quant for value in graph.values if not value.is_constant} == {graph.inputs[0].quant}
    expected = evaluate(proto, ["y", "z"], {"x": X})
    found = simulate(graph, {"x": X})
    np.testing.assert_allclose(found["y"], expected[0], atol=1e-6)
    np.testing.assert_allclose(found["z"], expected[1], atol=1e-6)


def test_weights_of_a_product_keep_their_integers_through_a_transpose(tmp_path: Path) -> None:
    w = np.arange(-6, 6, dtype=np.int8).reshape(3, 4)
    constants = {"w": w, "ws": np.array([0.1, 0.2, 0.3], np.float32), "wz": np.zeros(3, np.int8)}
    nodes = [dq("w", "wr", "w", axis=0), one("Transpose", "wr", outputs=["wt"]), one("MatMul", "x", "wt")]
    graph = graph_of(model(nodes, {"x": ramp(2, 4)}, ["y"], constants), tmp_path)
    weight = graph.nodes[0].inputs[1]
    assert weight is not None
    assert weight.stored is not None
    assert weight.quant is not None
    assert np.array_equal(weight.stored, w.T)
    assert weight.quant.axis == 1
    gemm = [dq("w", "wr", "w", axis=0), one("Gemm", "x", "wr", transB=1)]
    other = graph_of(model(gemm, {"x": ramp(2, 4)}, ["y"], constants), tmp_path).nodes[0].inputs[1]
    assert other is not None
    assert other.stored is not None
    assert np.array_equal(other.stored, w.T)


def test_four_bit_weights_are_widened(tmp_path: Path) -> None:
    w = helper.make_tensor("w", onnx.TensorProto.INT4, [2, 2], [-8, 7, 0, 3])
    proto = model([helper.make_node("DequantizeLinear", ["w", "ws"], ["wr"]), one("MatMul", "x", "wr")],
                  {"x": np.eye(2, dtype=np.float32)}, ["y"], {"ws": np.float32(0.5)},
                  opset=21, ir_version=10)  # fmt: skip
    proto.graph.initializer.append(w)
    found = ours(proto, {"x": np.eye(2, dtype=np.float32)}, tmp_path)["y"]
    assert found.tolist() == [[-4.0, 3.5], [0.0, 1.5]]


def test_scales_per_block(tmp_path: Path) -> None:
    w = np.arange(8, dtype=np.int8).reshape(4, 2)
    scale = np.array([[1, 2], [10, 20]], np.float32)
    node = helper.make_node("DequantizeLinear", ["w", "ws"], ["wr"], axis=0, block_size=2)
    proto = model([node, one("Add", "x", "wr")], {"x": np.zeros((4, 2), np.float32)}, ["y"], {"w": w, "ws": scale},
                  opset=21, ir_version=10)  # fmt: skip
    found = ours(proto, {"x": np.zeros((4, 2), np.float32)}, tmp_path)["y"]
    assert found.tolist() == [[0, 2], [2, 6], [40, 100], [60, 140]]


@pytest.mark.parametrize("operator", ["MatMul", "Gemm", "Gemm transB"])
@pytest.mark.parametrize("has_zero", [False, True])
@pytest.mark.parametrize("element", ["INT4", "UINT4", "INT8", "UINT8"])
def test_blocks_of_a_matmul_stay_packed(element: str, has_zero: bool, operator: str, tmp_path: Path) -> None:
    """40 inputs in blocks of 16, the last of which is partial; compared with the ONNX reference evaluator."""
    bits, is_signed = int(element.lstrip("UINT")), element.startswith("I")
    low = -(1 << (bits - 1)) if is_signed else 0
    rng = np.random.default_rng(bits)
    is_transposed = operator.endswith("transB")
    shapes = [shape[::-1] if is_transposed else shape for shape in ((40, 6), (3, 6))]
    constants = [
        helper.make_tensor(name, getattr(onnx.TensorProto, element), shape, rng.integers(low, low + (1 << bits), shape))
        for name, shape in zip(("w", "wz"), shapes, strict=True)
    ]
    scale, bias = ramp(*shapes[1]), ramp(6)
    dequantize = helper.make_node(
        "DequantizeLinear", ["w", "ws", *["wz"][:has_zero]], ["wr"], axis=1 if is_transposed else 0, block_size=16
    )
    attributes = {"transB": 1} if is_transposed else {}
    inputs = ["x", "wr"] if operator == "MatMul" else ["x", "wr", "b"]
    x = {"x": ramp(5, 40)}
    node = helper.make_node(operator.split()[0], inputs, ["y"], **attributes)
    proto = model([dequantize, node], x, ["y"], {"ws": scale, "b": bias}, opset=21, ir_version=10)
    proto.graph.initializer.extend(constants if has_zero else constants[:1])
    expected = evaluate(proto, None, x)[0]
    np.testing.assert_allclose(ours(proto, x, tmp_path)["y"], expected, rtol=1e-4, atol=1e-3)  # sums of 40 in float32
    assert "matmul_group_quantized" in ops(graph_of(proto, tmp_path))


def test_blocks_that_are_not_inner_stay_float(tmp_path: Path) -> None:
    """Blocks of the columns, and blocks of 2."""
    for axis, block in ((1, 16), (0, 2)):
        w = (
            np.arange(-32, 32, dtype=np.int8).reshape(4, 16)
            if axis
            else np.arange(-32, 32, dtype=np.int8).reshape(16, 4)
        )
        scale = np.ones((4, 1) if axis else (8, 4), np.float32)
        scale[1] = 2
        node = helper.make_node("DequantizeLinear", ["w", "ws"], ["wr"], axis=axis, block_size=block)
        x = {"x": np.ones((2, len(w)), np.float32)}
        proto = model([node, one("MatMul", "x", "wr")], x, ["y"], {"w": w, "ws": scale}, opset=21, ir_version=10)
        wide = w * np.repeat(np.repeat(scale, len(w) // len(scale), axis=0), w.shape[1] // scale.shape[1], axis=1)
        np.testing.assert_array_equal(ours(proto, x, tmp_path)["y"], x["x"] @ wide)
        assert "matmul_group_quantized" not in ops(graph_of(proto, tmp_path))


@pytest.mark.parametrize("opset", [19, 21, 23])
@pytest.mark.parametrize("kind", ["FLOAT", "FLOAT8E4M3FN"])
def test_constants_of_floats_are_dequantized(kind: str, opset: int, tmp_path: Path) -> None:
    """The standard allows float8; tools write float32 too."""
    w = helper.make_tensor("w", getattr(onnx.TensorProto, kind), [3], [1.5, -2.0, 0.25])
    x = {"x": ramp(3)}
    nodes = [helper.make_node("DequantizeLinear", ["w", "ws"], ["wr"]), one("Mul", "x", "wr")]
    proto = model(nodes, x, ["y"], {"ws": np.float32(0.5)}, opset=opset, ir_version=10)
    proto.graph.initializer.append(w)
    np.testing.assert_array_equal(ours(proto, x, tmp_path)["y"], x["x"] * np.float32([0.75, -1, 0.125]))


def test_dynamic_quantization(tmp_path: Path) -> None:
    node = helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "s", "z"])
    x = np.array([0, 2, -3, -2.5, 1.34, 0.5], np.float32)
    proto = model([node], {"x": x}, ["y", "s", "z"])
    expected = evaluate(proto, None, {"x": x})
    found = ours(proto, {"x": x}, tmp_path)
    for name, want in zip(("y", "s", "z"), expected, strict=True):
        np.testing.assert_allclose(found[name], want, rtol=1e-6)
        assert found[name].dtype == want.dtype
        assert found[name].shape == want.shape


def test_integer_products(tmp_path: Path) -> None:
    a = np.array([[11, 7, 3], [10, 6, 2]], np.uint8)
    b = np.array([[1, 4], [2, 5], [3, 6]], np.uint8)
    node = one("MatMulInteger", "a", "b", "az", "bz")
    proto = model([node], {"a": a}, ["y"], {"b": b, "az": np.uint8(12), "bz": np.uint8(0)})
    found = ours(proto, {"a": a}, tmp_path)["y"]
    assert found.dtype == np.int32
    assert found.tolist() == [[-38, -83], [-44, -98]]  # the example of the standard


def test_operators_of_onnx_runtimes_quantizer(tmp_path: Path) -> None:
    def node(op: str, *inputs: str, output: str, **attributes: float) -> onnx.NodeProto:
        return helper.make_node(op, list(inputs), [output], name=op, domain="com.microsoft", **attributes)

    nodes = [
        q("x", "a", "x"),
        node("QLinearAdd", "a", "xs", "xz", "a", "xs", "xz", "ys", "yz", output="b"),
        node("QLinearLeakyRelu", "b", "ys", "yz", "ys", "yz", output="c", alpha=0.5),
        node("QLinearSigmoid", "c", "ys", "yz", "ss", "sz", output="d"),
        node("QLinearMul", "c", "ys", "yz", "d", "ss", "sz", "ys", "yz", output="e"),
        node("QLinearConcat", "ys", "yz", "a", "xs", "xz", "e", "ys", "yz", output="f", axis=1),
        node("QLinearGlobalAveragePool", "f", "ys", "yz", "ys", "yz", output="g"),
        dq("g", "y", "y"),
    ]
    constants = {**PARAMS, "ss": np.float32(1 / 256), "sz": np.uint8(0)}
    graph = graph_of(model(nodes, {"x": X}, ["y"], constants, domains={"com.microsoft": 1}), tmp_path)
    assert ops(graph) == ["add", "active_param", "active", "mul", "concat", "pool"]
    assert all(node.output.quant is not None for node in graph.nodes)
    leaky = np.where(X > 0, 2 * X, X)
    expected = np.concatenate([X, leaky / (1 + np.exp(-leaky))], 1).mean((2, 3), keepdims=True)
    np.testing.assert_allclose(simulate(graph, {"x": X})["y"], expected, atol=0.08)  # one step of the result


@pytest.mark.parametrize(
    ("nodes", "complaint"),
    [
        ([q("x", "a", "x"), one("Exp", "a", outputs=["y"])], "its input is uint8"),
        ([q("x", "a", "x"), dq("a", "y", "y")], "different scales or zero points"),
        ([one("QuantizeLinear", "x", "s")], "must be known at conversion time"),
    ],
)
def test_refused(nodes: list[onnx.NodeProto], complaint: str, tmp_path: Path) -> None:
    inputs = {"x": ramp(1, 4, 2, 2), "s": np.float32(1)}
    with pytest.raises(UnsupportedError, match=complaint):
        load(save_model(model(nodes, inputs, ["y"], PARAMS), tmp_path))


@pytest.mark.parametrize("op", ["QLinearAveragePool", "QLinearGlobalAveragePool"])
@pytest.mark.parametrize("chip", ["bm1684", "bm1686"])
def test_averages_with_symbolic_channels(op: str, chip: Any, tmp_path: Path) -> None:
    attributes = {"kernel_shape": [2, 2], "strides": [2, 2]} if op == "QLinearAveragePool" else {}
    node = helper.make_node(op, ["x", "as", "az", "ys", "yz"], ["y"], domain="com.microsoft", **attributes)
    x = np.random.default_rng(1).integers(0, 256, (1, 3, 4, 6), np.uint8)
    params = {"as": np.float32(0.1), "az": np.uint8(3), "ys": np.float32(0.2), "yz": np.uint8(5)}
    proto = model([node], {"x": x}, ["y"], params, domains={"com.microsoft": 1})
    results = []
    for name in ("static", "symbolic"):
        if name == "symbolic":
            proto.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "channels"
        with tc.Session(tc.convert(save_model(proto, tmp_path, f"{name}.onnx"), chip=chip)) as session:
            results.append(session.run({"x": x})["y"].astype(int))
    assert results[0].shape == results[1].shape
    assert np.abs(results[0] - results[1]).max() <= 1  # computed in float and rounded once
