"""Operators of two tensors: sums of 16 bits, slopes of PRELU, squared differences."""

from __future__ import annotations

import math

import numpy as np

from tpuconvert.optimizer.quantize.lower_shared import result_params, with_params
from tpuconvert.optimizer.quantize.lowering import Lowered, Lowering
from tpuconvert.optimizer.quantize.tflite.forms import form_of
from tpuconvert.optimizer.quantize.tflite.steps import (
    divided_by_power,
    narrowed,
    one_scale_each,
    operands_of,
    plain_rescale,
)
from tpuconvert.schema.fixed_point import multiplier_shift
from tpuconvert.schema.graph import Node
from tpuconvert.schema.ops.arithmetic import Add, Mul, Sub
from tpuconvert.schema.ops.arithmetic_with_scalar import Maxs, Mins
from tpuconvert.schema.ops.copy import Copy
from tpuconvert.schema.types import I32, Scalar


@form_of("PRELU")
def prelu(node: Node, lowering: Lowering) -> Lowered | None:
    """A rescale for each sign; the slope multiplies the negative side before its rescale."""
    operands, params, name = operands_of(node), result_params(node), node.outputs[0].name
    slopes = [value for value in operands if value.is_constant and value.stored is not None]
    inputs = [value for value in operands if not value.is_constant]
    if len(inputs) != 1 or len(slopes) != 1 or not one_scale_each(*inputs, *slopes):
        return None
    x, slope = inputs[0].quant, slopes[0].quant
    assert x is not None and slope is not None
    stored = np.asarray(slopes[0].stored, dtype=np.int64) - slope.zero_point[0]
    factor = float(np.float32(x.scale[0]) / np.float32(params.scale[0]))
    other = float(np.float32(x.scale[0]) * np.float32(slope.scale[0]) / np.float32(params.scale[0]))
    wide = lowering.widen(lowering.quantized(inputs[0]), 0, f"{name}:centred")
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
    return (narrowed(lowering, total, params, name),)


@form_of("SQUARED_DIFFERENCE")
def squared_difference(node: Node, lowering: Lowering) -> Lowered | None:
    """Both operands in a fine unit, their difference, its square, and one rescale."""
    operands, params, name = operands_of(node), result_params(node), node.outputs[0].name
    if len(operands) == 1:
        operands = operands * 2
    if len(operands) != 2 or not one_scale_each(*operands) or params.dtype.bits != 8:
        return None
    scales = [np.float32(value.quant.scale[0]) for value in operands if value.quant is not None]
    twice = float(np.float32(2) * max(scales))
    terms = []
    for index, (value, own) in enumerate(zip(operands, scales, strict=True)):
        wide = lowering.widen(lowering.quantized(value), _SQUARE_SHIFT, f"{name}:operand{index}")
        terms.append(plain_rescale(lowering, wide, *multiplier_shift(float(own) / twice), f"{name}:scaled{index}", I32))
    difference = lowering.g.add(Sub(), *terms, name=f"{name}:difference")
    square = lowering.g.add(Mul(), difference, difference, name=f"{name}:square")
    factor = twice * twice / (2.0 ** (2 * _SQUARE_SHIFT) * float(np.float32(params.scale[0])))
    multiplier, exponent = multiplier_shift(factor)
    result = plain_rescale(lowering, square, multiplier, exponent, name, params.dtype, offset=params.zero_point[0])
    result.quant = params
    return (result,)


_SQUARE_SHIFT = 7
"""Fraction bits of a difference that is squared: (2^7 * 255)^2 < 2^31."""


@form_of("ADD", "SUB")
def shifted_operand(node: Node, lowering: Lowering) -> Lowered | None:
    """The operand that 16-bit sums of power-of-two scales bring to the scale of the result: a shift, halves away."""
    if not isinstance(node.op, Copy):
        return None
    (x,) = node.inputs
    params = result_params(node)
    assert x is not None and x.quant is not None
    shift = round(math.log2(params.scale[0] / x.quant.scale[0]))
    result = divided_by_power(lowering, lowering.quantized(x), shift, node.outputs[0].name, params.dtype)
    return with_params((result,), params)
