"""``add`` and ``sub`` on BM1686 for scales that calibration chose: exact integers, then one rounding shift.

The scale s of the result, divided by a power of two, is the common unit of both operands, so fine that each operand's
scale is nearly an integer multiple m of it:

    unit = s / 2^k,    m_j = round(s_j / unit) < 2^15,    k as large as that allows.

One requant_int32 per operand gives (x - zero point) * m exactly: the multiplier m * 2^16 with shift 15 gives
x * m * 2^16 * 2^(15 - 31), and -zero point * m is its offset. Their sum is exact too, at most 2 * 255 * (2^15 - 1) <
2^24 in magnitude, which binary32 represents as well. The last step is a shift by k, rounded once.

Error: each operand's scale differs from its multiple of the unit by at most half a unit, so that the sum differs by at
most 255 units, that is, 255 / 2^k steps of the result, in addition to the half step of the last rounding. All channels
have the same k if this is at most 1/32 of a step.

A constant operand is stored in the common unit, which is finer than 8 bits, and needs no operator.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tpuconvert.optimizer.engine.node_properties import computed_operands, operands
from tpuconvert.optimizer.quantize.lowering.lower_shared import result_params
from tpuconvert.optimizer.quantize.lowering.lowering import (
    Declined,
    Lowered,
    Lowering,
    int32_params,
    params_of,
    requant_int32,
    with_quant,
)
from tpuconvert.schema.graph.graph import Node, Value
from tpuconvert.schema.ops.quantization.requant_int32 import RequantMode
from tpuconvert.schema.types import I32, QuantParams

Vector = npt.NDArray[np.float64]

LARGEST = 2**15 - 1
"""Maximum of m."""

_LARGEST_OPERAND = 255
"""Largest magnitude of an 8-bit operand minus its zero point."""

_BITS_FOR_ALL = 13
"""If k is at least this for every channel, all channels get the smallest k: 255 units are then at most 1/32 of a
step."""

_MOST_BITS = 24
"""Maximum of k: sums have at most 24 bits."""


def exact_sum(node: Node, lowering: Lowering) -> Lowered:
    """Lower ``add`` or ``sub`` of 8-bit operands, one of which may be constant."""
    name, params = node.outputs[0].name, result_params(node)
    if any(value.quant is not None and value.quant.dtype.bits != 8 for value in computed_operands(node)):
        return Declined("an operand is not quantized to 8 bits")
    bits = fraction_bits(operands(node), params)
    factors = np.exp2(-bits.astype(np.float64))
    units = np.asarray(params.scale) * factors
    if any(_repeats_channels(value, units.size) for value in computed_operands(node)):
        return Declined("an operand has the same elements in all channels, which have scales of their own")
    terms = []
    for index, value in enumerate(operands(node)):
        if value.is_constant:
            terms.append(_constant_in_units(lowering, value, units))
        else:
            terms.append(_in_units(lowering, lowering.quantized_value(value), units, f"{name}:operand{index}"))
    total = with_quant(lowering.g.add(node.op, *terms, name=f"{name}:int32"), int32_params(units.tolist()))
    return (lowering.requantize(total, _shortest(factors), params, name),)


def _repeats_channels(value: Value, channels: int) -> bool:
    """Return True if an operand has no axis of the channels with a unit each: it cannot be in units of all of them."""
    return channels > 1 and (value.rank < 2 or value.shape[1] != channels)


def fraction_bits(operands: Sequence[Value], result: QuantParams) -> npt.NDArray[np.int64]:
    """Fraction bits k of the common unit relative to the result: one for all channels, or one per channel."""
    largest: Vector = np.zeros(1)
    for value in operands:
        if value.is_constant:
            # Scale for which the integers have at most the magnitude of 8-bit operands, so that the bound of the sum
            # holds.
            scale = np.asarray([float(np.abs(value.array).max(initial=0.0)) / _LARGEST_OPERAND])
        else:
            scale = np.asarray(params_of(value).scale)
        largest = np.maximum(largest, scale)
    ratios = np.maximum(largest / np.asarray(result.scale), np.exp2(-_MOST_BITS))
    bits: npt.NDArray[np.int64] = np.minimum(np.floor(np.log2(LARGEST / ratios)), _MOST_BITS).astype(np.int64)
    bits -= np.rint(ratios * np.exp2(bits)) > LARGEST  # The logarithm may have been rounded up.
    if bits.min() >= _BITS_FOR_ALL:
        bits[:] = bits.min()
    return bits if len(set(bits.tolist())) > 1 else bits[:1]


def _constant_in_units(lowering: Lowering, value: Value, units: Vector) -> Value:
    channels = units.reshape([-1 if axis == 1 else 1 for axis in range(value.rank)]) if units.size > 1 else units
    integers = np.rint(value.array / channels).astype(np.int32)
    assert np.abs(integers).max(initial=0) <= _LARGEST_OPERAND * LARGEST
    return lowering.g.constant(integers, value.name, int32_params(units.tolist()))


def _in_units(lowering: Lowering, x: Value, units: Vector, name: str) -> Value:
    """Add ``(x - zero_point) * m`` as INT32."""
    scales, zeros = np.asarray(params_of(x).scale), np.asarray(params_of(x).zero_point)
    multiples = np.rint(scales / units).astype(np.int64)
    assert multiples.max() <= LARGEST
    offsets = np.broadcast_to(-zeros * multiples, multiples.shape)
    if len(set(zip(multiples.tolist(), offsets.tolist(), strict=True))) == 1:
        multiples, offsets = multiples[:1], offsets[:1]
    pairs = [(multiplier << 16, 15) for multiplier in multiples.tolist()]
    op = requant_int32(pairs, RequantMode.TFLITE_LSHIFT, I32, offsets.tolist())
    return lowering.g.add(op, x, name=name)


def _shortest(factors: Vector) -> list[float]:
    """Return one factor if all are equal, else all of them."""
    values: list[float] = factors.tolist()
    return values[:1] if len(set(values)) == 1 else values
