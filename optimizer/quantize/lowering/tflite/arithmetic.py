"""Lowerings of binary operators: ADD and SUB, MUL, PRELU, SQUARED_DIFFERENCE."""

from __future__ import annotations

import math

import numpy as np

from tpuconvert.optimizer.quantize.lowering.lower_shared import result_params, with_params
from tpuconvert.optimizer.quantize.lowering.lowering import Lowered, Lowering, requant_int32
from tpuconvert.optimizer.quantize.lowering.tflite.forms import form_of
from tpuconvert.optimizer.quantize.lowering.tflite.steps import (
    TFLITE_ONCE,
    inner_node,
    narrow,
    one_scale_each,
    plain_rescale,
)
from tpuconvert.schema.arithmetic.fixed_point import multiplier_shift
from tpuconvert.schema.graph.graph import Node, Value
from tpuconvert.schema.ops.activation import Active
from tpuconvert.schema.ops.arithmetic import Add, Mul, Sub
from tpuconvert.schema.ops.arithmetic_with_scalar import Maxs, Mins
from tpuconvert.schema.ops.quantization.requant_int32 import RequantMode
from tpuconvert.schema.types import I32, Scalar


@form_of(Add, Sub)
def sum_or_difference(node: Node, lowering: Lowering) -> Lowered | None:
    """PRELU; ADD and SUB that round once. The general lowering rounds the other sums twice, as the kernels do."""
    return _prelu(node, lowering) or _sum_rounded_once(node, lowering)


def _prelu(node: Node, lowering: Lowering) -> Lowered | None:
    """Rescale positive and negative values separately. Negative values are first multiplied by the slope."""
    matched = _match_prelu(node)
    if matched is None or not one_scale_each(*matched):
        return None
    (operand, factors), params, name = matched, result_params(node), node.outputs[0].name
    x, slope = operand.quant, factors.quant
    assert x is not None and slope is not None
    stored = np.asarray(factors.stored, dtype=np.int64) - slope.zero_point[0]
    factor = float(np.float32(x.scale[0]) / np.float32(params.scale[0]))
    other = float(np.float32(x.scale[0]) * np.float32(slope.scale[0]) / np.float32(params.scale[0]))
    wide = lowering.widen(lowering.quantized_value(operand), 0, f"{name}:centred")
    limit = Scalar(I32, 0)
    rising = lowering.g.add(Maxs(limit), wide, name=f"{name}:rising")
    falling = lowering.g.add(Mins(limit), wide, name=f"{name}:falling")
    tilted = lowering.g.add(
        Mul(), falling, lowering.g.constant(stored.astype(np.int32), f"{name}:slope"), name=f"{name}:tilted"
    )
    parts = (
        plain_rescale(lowering, rising, *multiplier_shift(factor), f"{name}:rising:scaled", I32),
        plain_rescale(lowering, tilted, *multiplier_shift(other), f"{name}:tilted:scaled", I32),
    )
    total = lowering.g.add(Add(), *parts, name=f"{name}:int32")
    return (narrow(lowering, total, params, name),)


def _match_prelu(node: Node) -> tuple[Value, Value] | None:
    """Match ``relu(x) + slopes * min(x, 0)`` without rounding in between: return x and the integers of the slopes."""
    for positive, sloped in (node.inputs, node.inputs[::-1]):
        rising, falling = inner_node(positive, Active, Maxs), inner_node(sloped, Mul)
        if not isinstance(node.op, Add) or rising is None or falling is None:
            continue
        limit, slopes = inner_node(falling.inputs[0], Mins), falling.inputs[1]
        x = rising.inputs[0]
        if limit is None or x is None or limit.inputs[0] is not x or slopes is None or slopes.stored is None:
            continue
        if rising.op.clamp_range() == (0.0, math.inf) and limit.op.clamp_range() == (-math.inf, 0.0):
            return x, slopes
    return None


@form_of(Mul)
def product(node: Node, lowering: Lowering) -> Lowered | None:
    """MUL: multiply exactly, then rescale once by a factor that is computed in binary32."""
    operands, params, name = [value for value in node.inputs if value is not None], result_params(node), node.name
    if not one_scale_each(*operands) or params.axis is not None:
        return None
    wide = [
        lowering.widen(lowering.quantized_value(v), 0, f"{name}:operand{index}") for index, v in enumerate(operands)
    ]
    total = lowering.g.add(Mul(), *wide, name=f"{name}:int32")
    scales = [np.float32(value.quant.scale[0]) for value in operands if value.quant is not None]
    factor = float(scales[0] * scales[1] / np.float32(params.scale[0]))
    return (lowering.requantize(total, [factor], params, name),)


def squared_difference(node: Node, lowering: Lowering) -> Lowered | None:
    """SQUARED_DIFFERENCE: rescale both operands to a fine common unit, subtract, square, and rescale once."""
    inner, params, name = inner_node(node.inputs[0], Sub), result_params(node), node.outputs[0].name
    operands = [] if inner is None else [value for value in inner.inputs if value is not None]
    if inner is None or not one_scale_each(*operands) or params.dtype.bits != 8:
        return None
    scales = [np.float32(value.quant.scale[0]) for value in operands if value.quant is not None]
    twice = float(np.float32(2) * max(scales))
    terms = []
    for index, (value, own) in enumerate(zip(operands, scales, strict=True)):
        wide = lowering.widen(lowering.quantized_value(value), _SQUARE_SHIFT, f"{name}:operand{index}")
        terms.append(plain_rescale(lowering, wide, *multiplier_shift(float(own) / twice), f"{name}:scaled{index}", I32))
    difference = lowering.g.add(Sub(), *terms, name=f"{name}:difference")
    square = lowering.g.add(Mul(), difference, difference, name=f"{name}:square")
    factor = twice * twice / (2.0 ** (2 * _SQUARE_SHIFT) * float(np.float32(params.scale[0])))
    multiplier, exponent = multiplier_shift(factor)
    result = plain_rescale(lowering, square, multiplier, exponent, name, params.dtype, offset=params.zero_point[0])
    result.quant = params
    return (result,)


_SQUARE_SHIFT = 7
"""Fraction bits of the difference in ``SQUARED_DIFFERENCE``: its square is at most (2^7 * 255)^2 < 2^31."""


def _sum_rounded_once(node: Node, lowering: Lowering) -> Lowered | None:
    """Multiply both operands by integer factors of at most 22 bits, add them exactly, and shift once (``half_up``)."""
    operands = [value for value in node.inputs if value is not None]
    if lowering.rescale != TFLITE_ONCE or not one_scale_each(*operands):
        return None
    if any(value.quant is None or value.quant.dtype.bits != 8 for value in operands):
        return None
    params, name = result_params(node), node.outputs[0].name
    scales = [np.float32(value.quant.scale[0]) for value in operands if value.quant is not None]
    ratios = [float(scale / np.float32(params.scale[0])) for scale in scales]
    shift = _FACTOR_BITS - (math.frexp(max(ratios))[1] - 1)
    terms = []
    for index, (value, ratio) in enumerate(zip(operands, ratios, strict=True)):
        assert value.quant is not None
        factor = round(ratio * 2.0**shift)
        # factor * 2^9 * 2^(22 - 31) = factor: the rescale is exact.
        integers, offset = lowering.quantized_value(value), -value.quant.zero_point[0] * factor
        terms.append(plain_rescale(lowering, integers, factor << 9, 22, f"{name}:operand{index}", I32, offset=offset))
    total = lowering.g.add(node.op, *terms, name=f"{name}:int32")
    op = requant_int32([(1, -shift)], RequantMode.MULTIPLIER_SHIFT, params.dtype, params.zero_point[:1])
    return with_params((lowering.g.add(op, total, name=name),), params)


_FACTOR_BITS = 20
"""The larger factor of a sum is scaled to 2^20..2^21, so that two terms, 2 * 255 * factor, stay below 2^31."""
