"""DIV of 8 bits: a lookup table of all 65,536 pairs of operands.

The kernel multiplies by a reciprocal from Newton's iteration in fixed point, which depends on the divisor.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tpuconvert.optimizer.quantize.lowering.lower_shared import result_params
from tpuconvert.optimizer.quantize.lowering.lowering import Lowered, Lowering
from tpuconvert.optimizer.quantize.lowering.tflite.forms import form_of
from tpuconvert.optimizer.quantize.lowering.tflite.steps import one_scale_each, table_of_pairs
from tpuconvert.optimizer.quantize.lowering.tflite.tables import every_integer
from tpuconvert.schema.arithmetic.fixed_point import high_product, multiplier_shift, saturate, shift_half_away
from tpuconvert.schema.graph.graph import Node
from tpuconvert.schema.ops.arithmetic import Div
from tpuconvert.schema.types import Array, QuantParams

Integers = npt.NDArray[np.int64]

_ONE = 1 << 29  # in Q2.29
_48_OVER_17, _32_OVER_17 = 1515870810, 1010580540  # in Q2.29


@form_of(Div)
def quotient(node: Node, lowering: Lowering) -> Lowered | None:
    """Look up the quotient of two 8-bit operands of any zero points."""
    operands, params = [value for value in node.inputs if value is not None], result_params(node)
    if len(operands) != 2 or not one_scale_each(*operands) or params.axis is not None:
        return None
    a, b = (value.quant for value in operands)
    assert a is not None and b is not None
    if not a.dtype.bits == b.dtype.bits == params.dtype.bits == 8:
        return None
    left, right = (lowering.quantized_value(value) for value in operands)
    return (table_of_pairs(lowering, left, right, quotients(a, b, params), params, node.outputs[0].name),)


def quotients(a: QuantParams, b: QuantParams, y: QuantParams) -> Array:
    """Results of DIV for all pairs of integers [256, 256], the dividend first.

    The kernel leaves a divisor of zero undefined: here, the result is the limit of the range, or 0 for 0 / 0.
    """
    dividend = (every_integer(a.dtype) - a.zero_point[0])[:, None]
    divisor = (every_integer(b.dtype) - b.zero_point[0])[None, :]
    dividend, divisor = np.broadcast_arrays(np.where(divisor < 0, -dividend, dividend), np.abs(divisor))
    scales = [np.float32(params.scale[0]) for params in (a, b, y)]
    multiplier, exponent = multiplier_shift(float(scales[0] / (scales[1] * scales[2])))
    bits = _bit_length(divisor)
    inverse = _reciprocal((np.maximum(divisor, 1) << (32 - np.maximum(bits, 1))) - (1 << 31))
    headroom = 31 - _bit_length(np.where(dividend < 0, -dividend - 1, dividend))  # redundant sign bits
    unscaled = high_product(dividend << headroom, inverse)
    shift = (bits - 1) + headroom - exponent
    product = high_product(unscaled, multiplier)
    result = _shift_right(product, shift)
    limits = np.where(dividend > 0, y.dtype.max, y.dtype.min)
    at_zero = np.where(dividend == 0, y.zero_point[0], limits)
    return saturate(np.where(divisor == 0, at_zero, result + y.zero_point[0]), y.dtype)


def _shift_right(x: Integers, shift: Integers) -> Integers:
    """``x / 2^shift``, ties away from zero.

    Quotients near 0 are shifted by 32 or more, which the kernel does not expect: it shifts by the remainder of 32, as
    x86-64 and AArch64 do, and its mask for the fraction is -1.
    """
    ordinary = shift_half_away(x, np.clip(shift, 0, 31))
    beyond = (x >> (shift & 31)) + (x >= 0)
    shifted: Integers = np.where(shift < 0, x << np.clip(-shift, 0, 31), np.where(shift > 31, beyond, ordinary))
    return shifted


def _bit_length(x: Integers) -> Integers:
    """Number of bits of nonnegative integers below 2^32."""
    lengths: Integers = np.frexp(x.astype(np.float64))[1].astype(np.int64)
    return lengths


def _reciprocal(x: Integers) -> Integers:
    """``1 / (1 + x)`` for x from 0 to 1, in Q0.31, by three Newton iterations in Q2.29."""
    half = (x + (1 << 31) - 1 + 1) >> 1  # (x + 1) / 2: the kernel's one is 2^31 - 1
    value = _48_OVER_17 + high_product(half, -_32_OVER_17)
    for _ in range(3):
        error = _ONE - high_product(half, value)
        value = value + np.clip(high_product(value, error) << 2, -(2**31), 2**31 - 1)
    result: Integers = np.minimum(value << 1, 2**31 - 1)
    return result
