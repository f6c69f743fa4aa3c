"""Add of two 8-bit tensors of an ONNX source: integer parameters with the results of its runtime's binary32.

ONNX Runtime, whose operator QLinearAdd is, computes with the ratios r = s_x / s_y and r' = s_x' / s_y

    saturate(round_half_even(fma(x, r, fma(x', r', fixed)))),    fixed = zero_y - fma(r, zero_x, r' * zero_x').

There are only 2^16 pairs of operands; all but a few are so far from a tie that every computation agrees. Here

    saturate(round((x - zero_x) * m + (x' - zero_x') * m' + addend) * multiplier * 2^shift) + zero_y)

is the integer form: the first part is exact, m and m' have 22 bits and are in the proportion of the scales, to 2^-44.
The proportion, the factor and the addend are then moved by some 2^-17 of a step so that the few pairs fall on the side
of the tie that binary32 rounds them to; projections onto one violated condition after the other find the moves.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from tpuconvert.schema.fixed_point import RoundingMode, multiplier_shift, rescale_one_rounding, saturate
from tpuconvert.schema.types import Array, QuantParams

Vector = npt.NDArray[np.float64]

LARGEST = 2**22 - 1
"""The largest m: 2 * 255 * LARGEST and the addend stay below 2^31."""

_ADDEND_LIMIT = 1 << 12
_NEAR = 2.0**-12
"""Pairs this near to a tie, in steps, are checked: the error of binary32 is at most about 2^-16."""

_MARGIN = 2.0**-21
"""Distance beyond the tie that a pair is moved to: it covers the resolution of the integer parameters."""

_PROJECTIONS = 2000


@dataclass(frozen=True)
class Sum:
    """Integer parameters of a sum.

    Args:
        parts: m and m'.
        addend: to the sum of both.
        multiplier: of the rescale.
        shift: of the rescale, negative: to the right.
        rounding: of the right shift.
        different: number of operand pairs, of 2^16, that binary32 rounds to the other side of a tie.
    """

    parts: tuple[int, int]
    addend: int
    multiplier: int
    shift: int
    rounding: RoundingMode = RoundingMode.HALF_TO_EVEN
    different: int = 0


def find_sum(left: QuantParams, right: QuantParams, result: QuantParams) -> Sum | None:
    """Parameters for operands and result of 8 bits with one scale each; None for scales too far apart."""
    ratios = np.array([left.scale[0] / result.scale[0], right.scale[0] / result.scale[0], 0.0])
    nominal = _as_integers(ratios)
    if nominal is None:
        return None
    wanted = _binary32(left, right, result)
    pairs = _pairs(left, right)
    best = _compare(nominal, pairs, wanted, result)
    if best.different:
        moved = _as_integers(_move(ratios, pairs, wanted - result.zero_point[0], result))
        if moved is not None:
            best = min(best, _compare(moved, pairs, wanted, result), key=lambda found: found.different)
    return best


def _binary32(left: QuantParams, right: QuantParams, result: QuantParams) -> Array:
    """Result of ONNX Runtime for every pair of operands."""
    ratios = [np.float32(params.scale[0]) / np.float32(result.scale[0]) for params in (left, right)]
    zeros = [np.float32(params.zero_point[0]) for params in (left, right)]
    fixed = np.float32(result.zero_point[0]) - _fma(ratios[0], zeros[0], ratios[1] * zeros[1])
    first, second = (np.arange(params.dtype.min, params.dtype.max + 1, dtype=np.float32) for params in (left, right))
    total = _fma(first[:, None], ratios[0], _fma(second[None, :], ratios[1], fixed))
    return saturate(np.rint(total), result.dtype).astype(np.int64)


def _fma(a: Array | np.float32, b: np.float32, c: Array | np.float32) -> Array:
    """``a * b + c`` with one rounding: a is an integer of 8 bits, so product and sum are exact in binary64."""
    return np.asarray(np.asarray(a, np.float64) * np.float64(b) + np.asarray(c, np.float64), np.float32)


def _pairs(left: QuantParams, right: QuantParams) -> tuple[Array, Array]:
    """All operand integers minus their zero points, shaped for broadcasting."""
    first, second = (
        np.arange(params.dtype.min, params.dtype.max + 1, dtype=np.int64) - params.zero_point[0]
        for params in (left, right)
    )
    return first[:, None], second[None, :]


def _as_integers(ratios: Vector) -> Sum | None:
    """Parameters nearest to two ratios and an addend, all in steps of the result."""
    small, large = sorted(ratios[:2].tolist())
    fraction = (Fraction(small) / Fraction(large)).limit_denominator(LARGEST)
    if not fraction.numerator:
        return None
    parts = (fraction.numerator, fraction.denominator)
    factor = large / fraction.denominator
    multiplier, exponent = multiplier_shift(factor)
    addend = round(ratios[2] / factor)
    if not multiplier or not -62 <= exponent - 31 <= 0 or abs(addend) > _ADDEND_LIMIT:
        return None
    return Sum(parts if ratios[0] <= ratios[1] else parts[::-1], addend, multiplier, exponent - 31)


def _compare(found: Sum, pairs: tuple[Array, Array], wanted: Array, result: QuantParams) -> Sum:
    """Parameters with the better rounding mode and the number of pairs that still differ."""
    total = pairs[0] * found.parts[0] + pairs[1] * found.parts[1] + found.addend
    different = {}
    for rounding in (RoundingMode.HALF_UP, RoundingMode.HALF_TO_EVEN):
        rescaled = rescale_one_rounding(total, found.multiplier, found.shift, rounding) + result.zero_point[0]
        different[rounding] = int((saturate(rescaled, result.dtype) != wanted).sum())
    rounding = min(different, key=lambda mode: different[mode])
    return dataclasses.replace(found, rounding=rounding, different=different[rounding])


def _move(ratios: Vector, pairs: tuple[Array, Array], wanted: Array, result: QuantParams) -> Vector:
    """Ratios and addend that round every pair near a tie as binary32 does, as far as the projections find them."""
    value = pairs[0] * ratios[0] + pairs[1] * ratios[1]
    tie = np.floor(value) + 0.5
    inside = (tie > result.dtype.min - result.zero_point[0]) & (tie < result.dtype.max - result.zero_point[0])
    near = (np.abs(value - tie) < _NEAR) & inside
    side = np.where(wanted[near] > tie[near], 1.0, -1.0)
    first, second = (np.broadcast_to(operand, value.shape)[near] for operand in pairs)
    # Ratios count 128 times as much as the addend: a step of the result is about as much for all three.
    normal = np.stack([first / 128, second / 128, np.ones(first.size)], axis=1) * side[:, None]
    length = (normal**2).sum(axis=1)
    slack = (value[near] - tie[near]) * side - _MARGIN
    move = np.zeros(3)
    for _ in range(_PROJECTIONS):
        left = slack + normal @ move
        worst = int(np.argmin(left / length))
        if left[worst] >= 0:
            break
        move -= left[worst] / length[worst] * normal[worst]
    return ratios + move / [128, 128, 1]
