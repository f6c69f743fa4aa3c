"""Quantized models: real-valued operators with annotations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tpuconvert as tc
from tests.support.tflite.models import O, S, T, graph_of, ops, run, serialize, single
from tpuconvert.schema.errors import UnsupportedError
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.types import I8, I32, U8, QuantParams

WINDOW = {"padding": 1, "stride_h": 1, "stride_w": 1}


def q(name: str, shape: tuple[int, ...], scale: float, zero: int, type_: str = "INT8", data: Any = None) -> T:
    return T(name, shape, type_, data, (scale,), (zero,))


def value(graph: Graph, name: str) -> Value:
    found = graph.find(name)
    assert found is not None, f"{name} not in {[v.name for v in graph.values]}"
    return found


def convolution(activation: int = 0) -> S:
    """One pixel, two input and two output channels: y = 0.5 w q with scales 0.25 and 0.5 per output channel."""
    w = np.asarray([[[[2, -4]]], [[[6, 8]]]], np.int8)
    b = np.asarray([10, -20], np.int32)
    tensors = [
        q("x", (1, 1, 1, 2), 0.5, -1),
        T("w", data=w, scale=(0.25, 0.5), zero_point=(0, 0), axis=0),
        T("b", data=b, scale=(0.125, 0.25), zero_point=(0, 0), axis=0),
        q("y", (1, 1, 1, 2), 0.75, 3),
    ]
    options = {**WINDOW, "fused_activation_function": activation}
    return S(tensors, [O("CONV_2D", [0, 1, 2], [3], "Conv2DOptions", options)], [0], [3])


def test_convolution_is_float_and_annotated(tmp_path: Path) -> None:
    graph = graph_of(tmp_path, convolution(activation=1))
    assert graph.rescale == "tflite"
    assert ops(graph) == ["permute", "conv", "active", "permute"]
    assert {v.dtype.value for v in graph.values} == {"FLOAT32"}
    x_quant, y_quant = QuantParams((0.5,), (-1,), I8), QuantParams((0.75,), (3,), I8)
    quants = {v.name: v.quant for v in graph.values if not v.is_constant}
    assert quants == {"x": x_quant, "x:nchw": x_quant, "y:pre": None, "y:nchw": y_quant, "y": y_quant}


def test_weights_and_bias_keep_their_integers(tmp_path: Path) -> None:
    graph = graph_of(tmp_path, convolution())
    _, w, b = graph.nodes[1].inputs
    assert w is not None
    assert b is not None
    assert w.shape == (2, 2, 1, 1)
    assert w.quant == QuantParams((0.25, 0.5), (0, 0), I8, axis=0)
    assert w.stored is not None
    assert w.stored.reshape(-1).tolist() == [2, -4, 6, 8]
    assert w.array.reshape(-1).tolist() == [0.5, -1, 3, 4]
    assert b.shape == (1, 2, 1, 1)
    assert b.quant == QuantParams((0.125, 0.25), (0, 0), I32, axis=1)  # s_x * s_w[c]
    assert b.stored is not None
    assert (b.stored.dtype.name, b.stored.reshape(-1).tolist()) == ("int32", [10, -20])
    assert b.array.reshape(-1).tolist() == [1.25, -5]


def test_ports_keep_integers_and_layout(tmp_path: Path) -> None:
    graph = graph_of(tmp_path, convolution())
    port = graph.input_ports[0]
    assert (port.dtype, port.shape, port.quant) == ("int8", (1, 1, 1, 2), QuantParams((0.5,), (-1,), I8))
    # x = (0.5, 2): y = (0.5*0.5 - 2 + 1.25, 1.5 + 8 - 5) = (-0.5, 4.5), in steps of 0.75: round(-0.67) + 3, 6 + 3
    (y,) = run(graph, np.asarray([0, 3], np.int8).reshape(1, 1, 1, 2))
    assert (y.dtype.name, y.reshape(-1).tolist()) == ("int8", [2, 9])


def test_depthwise_axis_moves_with_the_layout(tmp_path: Path) -> None:
    w = np.asarray([1, 2, 3, 4], np.int8).reshape(1, 1, 1, 4)
    tensors = [
        q("x", (1, 1, 1, 2), 1.0, 0),
        T("w", data=w, scale=(1, 2, 3, 4), zero_point=(0,) * 4, axis=3),
        q("y", (1, 1, 1, 4), 1.0, 0),
    ]
    operator = O("DEPTHWISE_CONV_2D", [0, 1], [2], "DepthwiseConv2DOptions", {**WINDOW, "depth_multiplier": 2})
    graph = graph_of(tmp_path, S(tensors, [operator], [0], [2]))
    weights = graph.nodes[1].inputs[1]
    assert weights is not None
    assert weights.quant is not None
    assert (weights.shape, weights.quant.axis) == ((4, 1, 1, 1), 0)
    # Channel 0 makes results 0 and 1, channel 1 makes 2 and 3.
    (y,) = run(graph, np.asarray([1, 2], np.int8).reshape(1, 1, 1, 2))
    assert y.reshape(-1).tolist() == [1, 4, 18, 32]


def test_unsigned_models_with_asymmetric_weights(tmp_path: Path) -> None:
    w = T("w", data=np.asarray([[130, 126]], np.uint8), scale=(0.5,), zero_point=(128,))
    tensors = [q("x", (1, 2), 1.0, 128, "UINT8"), w, q("y", (1, 1), 0.25, 100, "UINT8")]
    graph = graph_of(tmp_path, S(tensors, [O("FULLY_CONNECTED", [0, 1, -1], [2], "FullyConnectedOptions")], [0], [2]))
    weights = graph.nodes[0].inputs[1]
    assert weights is not None
    assert weights.quant == QuantParams((0.5,), (128,), U8)
    assert weights.array.tolist() == [[1], [-1]]
    assert run(graph, [[131, 129]])[0].tolist() == [[108]]  # 3 - 1 = 2 = 8 steps of 0.25


def test_a_bias_of_another_scale_is_refused(tmp_path: Path) -> None:
    subgraph = convolution()
    wrong = T("b", data=np.asarray([10, -20], np.int32), scale=(0.125, 0.5), zero_point=(0, 0))
    tensors = [*subgraph.tensors[:2], wrong, subgraph.tensors[3]]
    with pytest.raises(UnsupportedError, match="scale of the bias"):
        graph_of(tmp_path, S(tensors, subgraph.operators, [0], [3]))


def test_hybrid_weights_are_dequantized(tmp_path: Path) -> None:
    w = T("w", data=np.asarray([[2, -4]], np.int8), scale=(0.5,), zero_point=(0,))
    tensors = [T("x", (1, 2)), w, T("y", (1, 1))]
    options = {"asymmetric_quantize_inputs": True}
    operator = O("FULLY_CONNECTED", [0, 1, -1], [2], "FullyConnectedOptions", options)
    graph = graph_of(tmp_path, S(tensors, [operator], [0], [2]))
    weights = graph.nodes[0].inputs[1]
    assert weights is not None
    assert (weights.quant, weights.stored) == (None, None)
    assert run(graph, [[1, 3]])[0].tolist() == [[-5]]


def test_rescaling_and_borders_stay_visible(tmp_path: Path) -> None:
    """float -> uint8 -> int8 of another scale -> float: one Copy each, annotated where integers are meant."""
    tensors = [T("x", (2,)), q("a", (2,), 0.5, 10, "UINT8"), q("b", (2,), 0.25, -3), T("y", (2,))]
    operators = [O("QUANTIZE", [0], [1]), O("QUANTIZE", [1], [2]), O("DEQUANTIZE", [2], [3])]
    graph = graph_of(tmp_path, S(tensors, operators, [0], [3]))
    assert ops(graph) == ["copy"] * 3
    assert [v.quant for v in (value(graph, name) for name in "xaby")] == [
        None,
        QuantParams((0.5,), (10,), U8),
        QuantParams((0.25,), (-3,), I8),
        None,
    ]
    assert run(graph, [1.1, -0.4])[0].tolist() == pytest.approx([1.1, -0.4])
    assert run(graph, [1.1, -0.4], simulate=True)[0].tolist() == [1.0, -0.5]


def test_float16_weights_are_folded(tmp_path: Path) -> None:
    tensors = [T("h", data=np.asarray([[0.5, 2]], np.float16)), T("w", (1, 2)), T("x", (1, 2)), T("y", (1, 1))]
    operators = [
        O("DEQUANTIZE", [0], [1]),
        O("FULLY_CONNECTED", [2, 1, -1], [3], "FullyConnectedOptions"),
    ]
    graph = graph_of(tmp_path, S(tensors, operators, [2], [3]))
    assert ops(graph) == ["matrix_mul"]
    assert run(graph, [[4, 1]])[0].tolist() == [[4]]


def test_padding_with_the_zero_point_is_padding_with_0(tmp_path: Path) -> None:
    paddings = T("p", data=np.asarray([[1, 0]], np.int32))
    subgraph = single("PAD", [q("x", (2,), 0.5, 7), paddings], [q("y", (3,), 0.5, 7)])
    assert run(graph_of(tmp_path, subgraph), np.asarray([1, 2], np.int8))[0].tolist() == [7, 1, 2]


def test_sixteen_bit_activations_with_64_bit_bias(tmp_path: Path) -> None:
    tensors = [
        q("x", (1, 2), 0.5, 0, "INT16"),
        T("w", data=np.asarray([[3, 1]], np.int8), scale=(0.5,), zero_point=(0,)),
        T("b", data=np.asarray([4], np.int64), scale=(0.25,), zero_point=(0,)),
        q("y", (1, 1), 0.25, 0, "INT16"),
    ]
    graph = graph_of(tmp_path, S(tensors, [O("FULLY_CONNECTED", [0, 1, 2], [3], "FullyConnectedOptions")], [0], [3]))
    bias = graph.nodes[0].inputs[2]
    assert bias is not None
    assert bias.stored is not None
    assert bias.stored.tolist() == [[4]]
    assert run(graph, [[1000, -10]])[0].tolist() == [[3 * 1000 - 10 + 4]]


@pytest.mark.parametrize(
    ("tensor", "says"),
    [
        (T("x", (2,), "INT8", scale=(0.0,), zero_point=(0,)), "not positive and finite"),
        (T("x", (2,), "INT8", scale=(float("nan"),), zero_point=(0,)), "not positive and finite"),
        (T("x", (2,), "INT8", scale=(1.0,), zero_point=(300,)), "zero points outside INT8"),
        (T("x", (2,), "INT8", scale=(1.0, 2.0, 3.0), zero_point=(0, 0, 0)), "3 scales along axis 0"),
    ],
)
def test_impossible_parameters(tmp_path: Path, tensor: T, says: str) -> None:
    with pytest.raises(UnsupportedError, match=says):
        graph_of(tmp_path, single("ABS", [tensor], [T("y", (2,))]))


@pytest.mark.parametrize(
    ("op", "table", "options"),
    [("FLOOR_DIV", "", {}), ("STABLEHLO_ADD", "", {}), ("BITWISE_XOR", "", {})],
)
def test_refuses_operators_whose_kernels_ignore_scales(
    op: str, table: str, options: dict[str, Any], tmp_path: Path
) -> None:
    """The kernels compute with the stored integers; in real numbers the result would be another one."""
    x = T("", (2, 3), "INT8", None, (0.5,), (3,))
    model = single(op, [x, x], [x], table, **options)
    (tmp_path / "model.tflite").write_bytes(serialize(model))
    with pytest.raises(UnsupportedError, match="which the TFLite kernel ignores"):
        tc.convert(tmp_path / "model.tflite")


@pytest.mark.parametrize("op", ["GATHER", "SELECT_V2"])
def test_refuses_selections_between_scales(op: str, tmp_path: Path) -> None:
    x, y = (T("", (2, 3), "INT8", None, (scale,), (3,)) for scale in (0.5, 0.25))
    indices = T("i", data=np.asarray([1, 0], np.int32))
    mask = T("m", data=np.asarray([True, False, True]))
    inputs = [x, indices] if op == "GATHER" else [mask, x, x]
    model = single(op, inputs, [y], "GatherOptions" if op == "GATHER" else "")
    (tmp_path / "model.tflite").write_bytes(serialize(model))
    with pytest.raises(UnsupportedError, match="which the TFLite kernel ignores"):
        tc.convert(tmp_path / "model.tflite")


@pytest.mark.parametrize("op", ["RESHAPE", "TRANSPOSE", "TILE", "MAXIMUM", "MAX_POOL_2D"])
def test_copies_integers_between_scales(op: str, tmp_path: Path) -> None:
    """Kernels of data movement ignore scales: the result has the integers of the operand."""
    x, y = (T("", (1, 2, 4, 3), "INT8", None, (scale,), (3,)) for scale in (0.5, 0.2))
    extra, table, options = {
        "RESHAPE": ([[24]], "ReshapeOptions", {}),
        "TRANSPOSE": ([[3, 2, 1, 0]], "TransposeOptions", {}),
        "TILE": ([[1, 1, 2, 1]], "", {}),
        "MAXIMUM": ([], "MaximumMinimumOptions", {}),
        "MAX_POOL_2D": (
            [],
            "Pool2DOptions",
            {"stride_h": 1, "stride_w": 1, "filter_height": 2, "filter_width": 2, "padding": 1},
        ),
    }[op]
    data = np.random.default_rng(0).integers(-128, 128, (1, 2, 4, 3)).astype(np.int8)
    want = {
        "RESHAPE": data.reshape(24),
        "TRANSPOSE": data.transpose(),
        "TILE": np.tile(data, (1, 1, 2, 1)),
        "MAXIMUM": data,
        "MAX_POOL_2D": np.maximum(data[:, :, :-1], data[:, :, 1:]).max(axis=1, keepdims=True),
    }[op]
    constants = [T(f"c{number}", data=np.asarray(numbers, np.int32)) for number, numbers in enumerate(extra)]
    y = T("", want.shape, y.type, None, y.scale, y.zero_point)
    model = single(op, [x, *([x] if op == "MAXIMUM" else []), *constants], [y], table, **options)
    (tmp_path / "model.tflite").write_bytes(serialize(model))
    with tc.Session(tc.convert(tmp_path / "model.tflite")) as session:
        (found,) = session.run(dict.fromkeys((port.name for port in session.inputs), data)).values()
    np.testing.assert_array_equal(found, want)
