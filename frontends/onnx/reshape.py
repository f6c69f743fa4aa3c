"""Reshape, flatten, squeeze, unsqueeze and transpose.

The result of a quantized tensor has the same scale and zero point.
"""

from __future__ import annotations

from collections.abc import Callable

from tpuconvert.frontends import emit
from tpuconvert.frontends.onnx import shape_arguments
from tpuconvert.frontends.onnx.node import OnnxNode, Result, onnx_op
from tpuconvert.frontends.registry import Kind
from tpuconvert.schema.errors import UNSUPPORTED_TYPE
from tpuconvert.schema.graph import Graph, Value


def movement_result(node: OnnxNode, value: Value, *, scalar: bool = False) -> Result:
    """Return the result of a data movement operator: element type and quantization are those of the first input."""
    tensor = node.tensor(0)
    if tensor.quant is not None and tensor.quant.axis is not None:
        raise node.fail(UNSUPPORTED_TYPE, "its input has per-channel quantization")
    if tensor.quant is not None:
        value.quant = tensor.quant
    return node.result(value, tensor.element, scalar=scalar, quant=tensor.quant)


def _reshaping(name: str, target_of: Callable[[OnnxNode], tuple[int, ...]], limits: str = "") -> None:
    def convert(node: OnnxNode, g: Graph) -> Result:
        target = target_of(node)
        return movement_result(node, emit.reshape(g, node.dequantized_input(0), target), scalar=target == ())

    convert.__doc__ = f"{name}: change the shape, keep the order of elements."
    onnx_op(name, since=1, kind=Kind.DIRECT, limits=limits)(convert)


_reshaping("Reshape", shape_arguments.reshape_target, "a shape that is known at conversion")
_reshaping("Flatten", shape_arguments.flatten_target)
_reshaping("Squeeze", shape_arguments.squeeze_target, "constant axes")
_reshaping("Unsqueeze", shape_arguments.unsqueeze_target, "constant axes")


@onnx_op("Transpose", since=1, kind=Kind.DIRECT)
def transpose(node: OnnxNode, g: Graph) -> Result:
    """Reorder axes."""
    order = shape_arguments.transpose_order(node)
    x = node.dequantized_input(0)
    return movement_result(node, emit.permute(g, x, order) if order else x, scalar=order == ())
