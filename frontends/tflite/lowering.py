"""Helpers for operands: shape changes that keep quantization annotations, biases, and padding of windows."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from tpuconvert.frontends import emit, functions
from tpuconvert.frontends.tflite.node import TfliteNode
from tpuconvert.schema.arithmetic.fixed_point import shift_half_away
from tpuconvert.schema.errors import INVALID_NODE
from tpuconvert.schema.graph.graph import Graph, Value, static
from tpuconvert.schema.ops.copy import Copy
from tpuconvert.schema.ops.shape_change import ExpandDims, Reshape
from tpuconvert.schema.types import I16, I32, Arithmetic, QuantParams


def reshape(g: Graph, value: Value, shape: Sequence[int]) -> Value:
    """Reshape; a per-tensor quantization is kept."""
    new_shape = tuple(shape) or (1,)
    if static(value.shape) == new_shape:
        return value
    result = g.add(Reshape(reshape_param=new_shape), value)
    if value.quant is not None and value.quant.axis is None:
        result.quant = value.quant
    return result


def with_rank(g: Graph, value: Value, rank: int) -> Value:
    """Prepend unit axes; a constant is reshaped at conversion time."""
    missing = rank - value.rank
    if missing <= 0:
        return value
    if value.is_constant:
        return reshape_constant(g, value, (1,) * missing + static(value.shape), missing)
    result = g.add(ExpandDims(axis=0, ndims=missing), value)
    result.quant = shift_quant_axis(value.quant, missing)
    return result


def reshape_constant(g: Graph, value: Value, shape: Sequence[int], shift: int) -> Value:
    """Reshape a constant; the index of its quantized axis grows by ``shift``."""
    stored = None if value.stored is None else value.stored.reshape(shape)
    name = f"{value.name}:{'x'.join(map(str, shape))}"
    return g.constant(value.array.reshape(shape), name, shift_quant_axis(value.quant, shift), stored)


def shift_quant_axis(quant: QuantParams | None, shift: int) -> QuantParams | None:
    """Quantization parameters of a tensor with axes prepended."""
    if quant is None or quant.axis is None:
        return quant
    return dataclasses.replace(quant, axis=quant.axis + shift)


def align(g: Graph, *values: Value) -> tuple[Value, ...]:
    """Prepend unit axes, so that all values have the same rank."""
    rank = max(value.rank for value in values)
    return tuple(with_rank(g, value, rank) for value in values)


def expand(g: Graph, value: Value, shape: Sequence[int]) -> Value:
    """Broadcast a value to a shape, for operators that do not broadcast."""
    new_shape = tuple(shape) or (1,)
    return emit.expand(g, with_rank(g, value, len(new_shape)), new_shape)


def broadcast_shape(*values: Value) -> tuple[int, ...]:
    """Shape that values broadcast to."""
    return emit.broadcast_shape(*(static(value.shape) for value in values))


Order = tuple[int, ...]


def window_padding(node: TfliteNode, extents: Order, kernels: Order, strides: Order, dilations: Order) -> Order:
    """Padding (top, bottom, left, right) of a window over height and width, from SAME or VALID."""
    for name, numbers in (("kernel", kernels), ("stride", strides), ("dilation", dilations)):
        if min(numbers) < 1:
            raise node.fail(INVALID_NODE, f"{name} {numbers} must be at least 1")
    return same_or_valid_padding(node, extents, kernels, strides, dilations)


def same_or_valid_padding(node: TfliteNode, extents: Order, kernels: Order, strides: Order, dilations: Order) -> Order:
    """Padding before and after each axis of a window, from the option SAME or VALID."""
    padding = node.option("padding")
    if padding == 1:
        return (0,) * (2 * len(extents))
    if padding != 0:
        raise node.fail(INVALID_NODE, f"padding is {padding}, neither SAME (0) nor VALID (1)")
    numbers = zip(extents, kernels, strides, dilations, strict=True)
    return tuple(pad for axis in numbers for pad in functions.same_padding(*axis))


def bias(node: TfliteNode, index: int, data: int, weights: int, shape: Sequence[int]) -> Value | None:
    """Bias operand of a linear operator; None if the source has no bias.

    Integer kernels ignore the stored scale of the bias: it is the product of the scales of data and weights.

    Args:
        node: the operator.
        index: index of the bias among the inputs.
        data: index of the activation.
        weights: index of the weights.
        shape: shape of the operand, such as [1, oc, 1, 1]; all extents except the number of output channels are 1.
    """
    g = node.graph
    if not node.has_input(index):
        return None
    channels = math.prod(shape)
    if math.prod(node.shape(index)) != channels:
        raise node.fail(INVALID_NODE, f"bias has the shape {list(node.shape(index))}, expected [{channels}]")
    if not node.is_constant(index):
        return reshape(g, node.input(index), shape)
    array = node.constant(index)
    tensor = node.tensor(index)
    quant, x = _bias_quant(node, index, data, weights, tuple(shape).index(channels)), node.quant(data)
    if quant is None or array.dtype.kind == "f":
        return g.constant(
            node.tensors.make_constant(tensor, array, tensor.name, annotated=False).array.reshape(shape),
            f"{tensor.name}:bias",
        )
    stored = array.reshape(shape)
    values = quant.dequantize(stored)
    fits = stored.size == 0 or (int(stored.min()) >= I32.min and int(stored.max()) <= I32.max)
    if not fits:  # 64-bit biases of 16-bit models: only the dequantized values are kept
        return g.constant(values, tensor.name)
    # The bias has the width of the accumulator of a 16-bit kernel, on which the requantization depends.
    is_16_bit = x is not None and x.dtype is I16
    return g.constant(values, tensor.name, quant, stored if is_16_bit else stored.astype(np.int32))


def _bias_quant(node: TfliteNode, index: int, data: int, weights: int, axis: int) -> QuantParams | None:
    x, w, b = node.quant(data), node.quant(weights), node.quant(index)
    if x is None or w is None or node.constant(index).dtype.kind == "f":
        return None
    scale = tuple(x.scale[0] * s for s in w.scale)
    y = node.output_quant()
    if b is not None and y is not None and len(b.scale) == len(scale):
        worst = max(abs(ours - theirs) for ours, theirs in zip(scale, b.scale, strict=True))
        if worst / y.scale[0] > 0.02:  # the tolerance of the TFLite kernels
            raise node.fail(INVALID_NODE, "the scale of the bias is not the product of the scales of data and weights")
    return QuantParams(scale, (0,) * len(scale), I32, axis if len(scale) > 1 else None)


def shift_to_result_scale(node: TfliteNode, g: Graph, value: Value) -> Value:
    """Requantize an operand to the scale of the result, like the kernels of 16-bit add do for power-of-two scales."""
    x, y = value.quant, node.output_quant()
    if x is None or y is None or not all(_is_power_of_two(q) for q in (x, y)):
        return value
    if any(not _is_power_of_two(node.quant(index)) for index in (0, 1)):
        return value
    bits = round(math.log2(y.scale[0])) - round(math.log2(x.scale[0]))
    if x == y or bits < 0:
        return value
    if value.is_constant:
        assert value.stored is not None
        stored = shift_half_away(value.stored, bits).astype(y.dtype.numpy)
        return g.constant(y.dequantize(stored), f"{value.name}:shifted", y, stored)
    result = g.add(Copy(), value)
    result.quant = dataclasses.replace(y, arithmetic=Arithmetic.SHIFT)
    return result


_NEAR_POWER = 1e-3
"""Distance of the binary logarithm of a scale from an integer below which the kernel takes it for a power of two."""


def _is_power_of_two(quant: QuantParams | None) -> bool:
    if quant is None or quant.dtype is not I16 or quant.axis is not None or any(quant.zero_point):
        return False
    exponent = math.log2(quant.scale[0])
    return abs(exponent - round(exponent)) < _NEAR_POWER
