"""Reading of quantized ONNX networks in QDQ format: float nodes, and quantization parameters of every value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tpuconvert.schema.types import Array


@dataclass(frozen=True)
class Stored:
    """Quantization parameters: ``value = (q - zero_point) * scale``, per channel along ``axis``."""

    scale: Array
    zero_point: int
    axis: int
    data: Array | None = None

    @property
    def real(self) -> Array:
        """Dequantized values of a constant."""
        assert self.data is not None, "only a constant has numbers"
        shape = [1] * self.data.ndim
        if self.scale.size > 1:
            shape[self.axis] = -1
        result: Array = (self.data.astype(np.float64) - self.zero_point) * self.scale.astype(np.float64).reshape(shape)
        return result


@dataclass(frozen=True)
class QdqNode:
    """A float node between DequantizeLinear and QuantizeLinear. Operand names are those before quantization."""

    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]


@dataclass(frozen=True)
class QdqNetwork:
    """A network without its QuantizeLinear and DequantizeLinear nodes.

    Args:
        inputs: names of the graph's inputs.
        outputs: names of the graph's outputs.
        nodes: nodes in topological order.
        stored: quantization parameters by value name; for constants also the integers.
        constants: constants that are not quantized, such as shapes.
        shapes: shapes by value name.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[QdqNode, ...]
    stored: dict[str, Stored]
    constants: dict[str, Array]
    shapes: dict[str, tuple[int, ...]]


def read_qdq(path: Path) -> QdqNetwork:
    """Read a network that ONNX Runtime quantized."""
    model = onnx.shape_inference.infer_shapes(onnx.load(path))
    graph = model.graph
    constants = {each.name: numpy_helper.to_array(each) for each in graph.initializer}
    origin: dict[str, str] = {}  # name of a quantized or dequantized value -> name of the value before quantization
    stored: dict[str, Stored] = {}
    nodes: list[QdqNode] = []
    for node in graph.node:
        attributes = {each.name: helper.get_attribute_value(each) for each in node.attribute}
        if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            name = origin.get(node.input[0], node.input[0])
            origin[node.output[0]] = name
            scale = np.atleast_1d(constants[node.input[1]])
            zero_point = int(np.atleast_1d(constants[node.input[2]])[0]) if len(node.input) > 2 else 0
            stored[name] = Stored(scale, zero_point, attributes.get("axis", 0), constants.get(name))
        else:
            inputs = tuple(origin.get(name, name) for name in node.input)
            nodes.append(QdqNode(node.op_type, inputs, tuple(node.output), attributes))
    shapes = {
        each.name: tuple(extent.dim_value for extent in each.type.tensor_type.shape.dim)
        for each in (*graph.input, *graph.value_info, *graph.output)
    }
    for name, before in origin.items():
        if name in shapes:
            shapes.setdefault(before, shapes[name])
    return QdqNetwork(
        tuple(each.name for each in graph.input),
        tuple(origin.get(each.name, each.name) for each in graph.output),
        tuple(nodes),
        stored,
        {name: array for name, array in constants.items() if name not in stored},
        shapes,
    )
