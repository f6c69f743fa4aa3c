"""A small network in ONNX with many parameters to change, and its conversions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import tpuconvert as tc
from tpuconvert.conversion.options.options import group_options
from tpuconvert.schema.types import Array

CHANNELS = 8


@dataclass(frozen=True)
class Layer:
    """One node: operator, operands, result, attributes. Strings in ``operands`` name constants or tensors."""

    op: str
    operands: tuple[str, ...]
    result: str
    attributes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Network:
    """A network whose parts can be replaced by ``with_...``."""

    layers: tuple[Layer, ...]
    constants: dict[str, Array]
    inputs: dict[str, Sequence[int | str]]
    outputs: dict[str, Sequence[int | str]]
    opset: int = 17

    def with_layer(self, name: str, **changes: Any) -> Network:
        """Change the layer that computes a tensor."""
        layers = [replace(layer, **changes) if layer.result == name else layer for layer in self.layers]
        return replace(self, layers=tuple(layers))

    def with_constant(self, name: str, change: Callable[[Array], Array]) -> Network:
        """Change a constant."""
        return replace(self, constants={**self.constants, name: change(self.constants[name])})

    def inserted(self, before: str, layer: Layer) -> Network:
        """Insert a layer before the one that computes a tensor, which then reads its result as its first operand."""
        layers: list[Layer] = []
        for each in self.layers:
            if each.result == before:
                layers += [layer, replace(each, operands=(layer.result, *each.operands[1:]))]
            else:
                layers.append(each)
        return replace(self, layers=tuple(layers))

    def without(self, result: str) -> Network:
        """Remove a layer; its users read its first operand."""
        (gone,) = [layer for layer in self.layers if layer.result == result]
        kept = [
            replace(each, operands=tuple(gone.operands[0] if name == result else name for name in each.operands))
            for each in self.layers
            if each is not gone
        ]
        return replace(self, layers=tuple(kept))

    def renamed(self, change: Callable[[str], str]) -> Network:
        """Rename tensors and constants, except inputs and outputs."""
        ports = {*self.inputs, *self.outputs}

        def new(name: str) -> str:
            return name if name in ports or not name else change(name)

        layers = tuple(replace(e, operands=tuple(map(new, e.operands)), result=new(e.result)) for e in self.layers)
        return replace(self, layers=layers, constants={new(name): array for name, array in self.constants.items()})

    def proto(self) -> onnx.ModelProto:
        """Return the model."""
        nodes = [
            helper.make_node(each.op, list(each.operands), [each.result], name=each.result, **each.attributes)
            for each in self.layers
        ]
        ports = [
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape)) for name, shape in each.items()]
            for each in (self.inputs, self.outputs)
        ]
        used = {name for layer in self.layers for name in layer.operands}
        constants = [numpy_helper.from_array(array, name) for name, array in self.constants.items() if name in used]
        graph = helper.make_graph(nodes, "small", *ports, constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)

    def convert(self, **options: Any) -> tc.Model:
        """Convert it, in float for BM1686 by default."""
        return tc.convert(self.proto(), **group_options(**options))

    def quantize(self, **options: Any) -> tc.Model:
        """Convert it to INT8 with fixed samples."""
        return self.convert(quantize="int8", calibration=samples(self.inputs["x"]), **options)


def samples(shape: Sequence[int | str]) -> Array:
    """Return calibration samples for an input."""
    extents = [extent for extent in shape[1:] if isinstance(extent, int)]
    return np.random.default_rng(7).standard_normal((8, *extents)).astype(np.float32)


def residual_network() -> Network:
    """Conv, ReLU, two branches of convs, add, pool, and a classifier; the second output is the mean of the features."""
    rng = np.random.default_rng(1)

    def weights(*shape: int) -> Array:
        return (rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)

    constants = {
        "w1": weights(CHANNELS, 3, 3, 3),
        "b1": weights(CHANNELS),
        "w2": weights(CHANNELS, CHANNELS, 3, 3),
        "b2": weights(CHANNELS),
        "w3": weights(CHANNELS, CHANNELS, 1, 1),
        "w4": weights(CHANNELS, CHANNELS, 3, 3),
        "b4": weights(CHANNELS),
        "w5": weights(CHANNELS * 16, 10),
        "b5": weights(10),
    }
    pads = {"pads": [1, 1, 1, 1]}
    layers = (
        Layer("Conv", ("x", "w1", "b1"), "conv1", pads),
        Layer("Relu", ("conv1",), "relu1"),
        Layer("Conv", ("relu1", "w2", "b2"), "conv2", pads),
        Layer("Relu", ("conv2",), "relu2"),
        Layer("Conv", ("relu1", "w3"), "shortcut"),
        Layer("Add", ("relu2", "shortcut"), "sum"),
        Layer("Conv", ("sum", "w4", "b4"), "conv3", pads),
        Layer("Sigmoid", ("conv3",), "sigmoid"),
        Layer("MaxPool", ("sigmoid",), "pool", {"kernel_shape": [2, 2], "strides": [2, 2]}),
        Layer("Flatten", ("pool",), "flat", {"axis": 1}),
        Layer("Gemm", ("flat", "w5", "b5"), "logits"),
        Layer("ReduceMean", ("pool",), "mean", {"axes": [2, 3], "keepdims": 0}),
    )
    return Network(layers, constants, {"x": [1, 3, 8, 8]}, {"logits": [1, 10], "mean": [1, CHANNELS]})
