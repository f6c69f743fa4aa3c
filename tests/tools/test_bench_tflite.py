"""A quantized ONNX network and the TFLite file that the benchmark writes from it give the same integers.

Both are read by the frontends of tpuconvert, which the benchmark's writer does not use.
"""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tpuconvert as tc
from tools.bench.qdq import read_qdq
from tools.bench.tflite_network import UnsupportedNetworkError, write_tflite
from tools.bench.tflite_ranges import SIGMOID, ranges
from tpuconvert.schema.types import Array


class Quantized:
    """Builder of QDQ networks: UINT8 activations, INT8 weights per channel, INT32 biases."""

    def __init__(self, shape: tuple[int, ...], scale: float, zero_point: int) -> None:
        self.random = np.random.default_rng(5)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.scales: dict[str, float] = {}
        self.shape = shape
        self.last = self.quantize("x", scale, zero_point)

    def constant(self, name: str, array: Array) -> str:
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def quantize(self, name: str, scale: float, zero_point: int) -> str:
        """Quantize and dequantize a value; return the name of the result."""
        parts = [self.constant(f"{name}_scale", np.float32(scale)), self.constant(f"{name}_zp", np.uint8(zero_point))]
        self.nodes.append(helper.make_node("QuantizeLinear", [name, *parts], [f"{name}_q"]))
        self.nodes.append(helper.make_node("DequantizeLinear", [f"{name}_q", *parts], [f"{name}_dq"]))
        self.scales[f"{name}_dq"] = float(np.float32(scale))
        return f"{name}_dq"

    def weight(self, name: str, shape: tuple[int, ...], x: str) -> list[str]:
        """Add weights and a bias for an operator on ``x``; return the names of its operands."""
        scales = self.random.uniform(0.002, 0.02, shape[0]).astype(np.float32)
        parts = {
            "w": (self.random.integers(-127, 128, shape).astype(np.int8), scales),
            "b": (
                self.random.integers(-2000, 2000, shape[0]).astype(np.int32),
                (scales * self.scales[x]).astype(np.float32),
            ),
        }
        names = []
        for part, (integers, steps) in parts.items():
            label = f"{name}_{part}"
            operands = [self.constant(f"{label}_i", integers), self.constant(f"{label}_s", steps)]
            operands.append(self.constant(f"{label}_z", np.zeros(shape[0], integers.dtype)))
            self.nodes.append(helper.make_node("DequantizeLinear", operands, [label], axis=0))
            names.append(label)
        return names

    def add(
        self, kind: str, operands: list[str], name: str, scale: float, zero_point: int, **attributes: object
    ) -> str:
        self.nodes.append(helper.make_node(kind, operands, [name], **attributes))
        self.last = self.quantize(name, scale, zero_point)
        return self.last

    def conv(self, name: str, x: str, channels: int, inputs: int, kernel: int, **attributes: object) -> str:
        parts = self.weight(name, (channels, inputs, kernel, kernel), x)
        return self.add("Conv", [x, *parts], name, 0.05, 110, kernel_shape=[kernel, kernel], **attributes)

    def save(self, path: Path, shape: tuple[int, ...]) -> None:
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shape)
        y = helper.make_tensor_value_info(self.last, TensorProto.FLOAT, shape)
        graph = helper.make_graph(self.nodes, "net", [x], [y], self.constants)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)


def both(g: Quantized, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """Outputs of the ONNX network and of the TFLite file, as floats in the layout of the ONNX network."""
    g.save(Path("net.onnx"), shape)
    write_tflite(Path("net.onnx"), Path("net.tflite"))
    x = g.random.uniform(-2, 2, g.shape).astype(np.float32)
    with tc.Session(tc.convert("net.onnx"), backend="reference") as session:
        (want,) = session.run({"x": x}).values()
    model = tc.convert("net.tflite")
    port, result = model.graph.input_ports[0], model.graph.output_ports[0]
    assert port.quant is not None and result.quant is not None
    stored = x.transpose(0, 2, 3, 1) if x.ndim == 4 else x
    with tc.Session(model, backend="reference") as session:
        (found,) = session.run({port.name: port.quant.quantize(stored)}).values()
    return want, result.quant.dequantize(found)


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def steps_apart(want: Array, found: Array, scale: float) -> float:
    assert want.shape == found.shape
    return float(np.abs(want - found).max() / scale)


@pytest.mark.parametrize(("stride", "pad"), [(1, 1), (2, 1), (1, 0), (2, 0)])
def test_convolutions(stride: int, pad: int) -> None:
    """Padding that TFLite expresses as an attribute, and padding that needs a PAD node; dense and depthwise."""
    g = Quantized((1, 3, 9, 8), 0.016, 128)
    y = g.conv("dense", g.last, 8, 3, 3, strides=[stride, stride], pads=[pad] * 4)
    g.conv("depthwise", y, 8, 1, 3, group=8, strides=[stride, stride], pads=[1] * 4)
    height, width = ((extent + 2 * pad - 3) // stride + 1 for extent in (9, 8))
    height, width = ((extent - 1) // stride + 1 for extent in (height, width))
    want, found = both(g, (1, 8, height, width))
    # TFLite requantizes with a fixed-point multiplier: a near tie may round to the other side.
    assert steps_apart(want, found, 0.05) < 1.01
    assert np.mean(np.isclose(want, found)) > 0.95


def test_a_whole_classifier() -> None:
    g = Quantized((1, 3, 8, 8), 0.016, 128)
    a = g.conv("first", g.last, 8, 3, 1, strides=[1, 1], pads=[0] * 4)
    b = g.conv("second", a, 8, 8, 3, strides=[1, 1], pads=[1] * 4)
    g.add("Add", [a, b], "sum", 0.08, 120)
    g.add("GlobalAveragePool", [g.last], "average", 0.05, 120)
    g.add("Flatten", [g.last], "flat", 0.05, 120, axis=1)
    g.add("Gemm", [g.last, *g.weight("product", (5, 8), g.last)], "scores", 0.02, 128, transB=1)
    want, found = both(g, (1, 5))
    assert steps_apart(want, found, 0.02) < 3.01  # a difference of one step in the average is multiplied by the weights


def test_activations_joins_and_moves_of_axes() -> None:
    """Operators of a detector: SiLU, concat and upsampling, split channels, transposes to channels-last."""
    g = Quantized((1, 3, 6, 6), 0.016, 128)
    x = g.conv("conv", g.last, 8, 3, 3, strides=[1, 1], pads=[1] * 4)
    gate = g.add("Sigmoid", [x], "gate", 1 / 256, 0)
    y = g.add("Mul", [x, gate], "product", 0.03, 20)
    joined = g.add("Concat", [y, x], "joined", 0.05, 110, axis=1)
    sizes = g.constant("sizes", np.array([1, 1, 2, 2], np.float32))
    how = {"mode": "nearest", "nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"}
    g.add("Resize", [joined, "", sizes], "large", 0.05, 110, **how)
    g.add("Reshape", [g.last, g.constant("split", np.array([1, 2, 8, 12, 12]))], "parts", 0.05, 110)
    g.add("Transpose", [g.last], "moved", 0.05, 110, perm=[0, 1, 3, 4, 2])
    g.add("Reshape", [g.last, g.constant("rows", np.array([1, 288, 8]))], "rows_out", 0.05, 110)
    want, found = both(g, (1, 288, 8))
    assert steps_apart(want, found, 0.05) < 3.01  # sigmoid, mul and concat round once each


def test_pooling_of_values_that_are_not_negative() -> None:
    g = Quantized((1, 3, 6, 6), 0.016, 128)
    gate = g.add("Sigmoid", [g.last], "gate", 1 / 256, 0)
    g.add("MaxPool", [gate], "pooled", 1 / 256, 0, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    want, found = both(g, (1, 3, 3, 3))
    assert steps_apart(want, found, 1 / 256) < 1.01


def test_what_is_joined_has_one_scale_and_a_sigmoid_its_own() -> None:
    g = Quantized((1, 3, 4, 4), 0.01, 0)
    gate = g.add("Sigmoid", [g.last], "gate", 1 / 200, 3)
    half = g.conv("conv", g.last, 3, 3, 1)
    g.add("Concat", [half, "x_dq"], "joined", 0.02, 0, axis=1)
    g.save(Path("net.onnx"), (1, 6, 4, 4))
    found = ranges(read_qdq(Path("net.onnx")))
    assert gate == "gate_dq"
    assert found["gate"] == SIGMOID
    # from -110 * 0.05 to 145 * 0.05, the widest of all
    assert found["conv"] == found["joined"] == found["x"]
    assert found["x"].low == pytest.approx(-5.5)
    assert found["x"].scale == pytest.approx(0.05)


def test_operators_without_a_writer_are_named() -> None:
    g = Quantized((1, 4), 0.016, 128)
    g.add("Softmax", [g.last], "y", 1 / 256, 0)
    g.add("Erf", [g.last], "z", 1 / 256, 0)
    g.save(Path("net.onnx"), (1, 4))
    with pytest.raises(UnsupportedNetworkError, match="no writer for Erf, Softmax"):
        write_tflite(Path("net.onnx"), Path("net.tflite"))
