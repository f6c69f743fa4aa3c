"""Add of two 8-bit tensors of an ONNX source: integer parameters that give the results of ONNX Runtime's binary32.

ONNX Runtime, whose operator QLinearAdd is, computes with the ratios r = s_x / s_y and r' = s_x' / s_y

    saturate(round_half_even(fma(x, r, fma(x', r', fixed)))),    fixed = zero_y - fma(r, zero_x, r' * zero_x').

There are only 2^16 pairs of operands; all but a few are so far from a tie that every computation gives the same result.
The integer form is

    saturate(round((x - zero_x) * m + (x' - zero_x') * m' + addend) * multiplier * 2^shift) + zero_y)

where the sum before the multiplier is exact, and m and m' have 22 bits and the ratio of the scales, up to 2^-44. The
ratio, the factor and the addend are then changed by about 2^-17 of a step, so that each of the few pairs is on the side
of the tie to which binary32 rounds it. The changes are found by projecting onto one violated condition after another.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from tpuconvert.schema.arithmetic.fixed_point import RoundingMode, multiplier_shift, rescale_one_rounding, saturate
from tpuconvert.schema.types import Array, QuantParams

Vector = npt.NDArray[np.float64]

LARGEST = 2**22 - 1
"""Maximum of m and m': 2 * 255 * LARGEST plus the addend stays below 2^31."""

_ADDEND_LIMIT = 1 << 12
_NEAR = 2.0**-12
"""Pairs whose distance from a tie is below this, in steps, are checked: the error of binary32 is at most about
2^-16."""

_MARGIN = 2.0**-21
"""Distance from the tie, in steps, that a pair must have after the change; covers the resolution of the parameters."""

_PROJECTIONS = 2000


@dataclass(frozen=True)
class Sum:
    """Integer parameters of a sum.

    Args:
        parts: the multipliers m and m' of the operands.
        addend: constant that is added to the sum of both products.
        multiplier: multiplier of the rescale.
        shift: shift of the rescale; a negative one is to the right.
        rounding: rounding mode of the right shift.
        different: number of operand pairs, out of 2^16, that binary32 rounds to the other side of a tie.
    """

    parts: tuple[int, int]
    addend: int
    multiplier: int
    shift: int
    rounding: RoundingMode = RoundingMode.HALF_TO_EVEN
    different: int = 0


def find_sum(left: QuantParams, right: QuantParams, result: QuantParams) -> Sum | None:
    """Find the parameters for 8-bit operands and result with one scale each; None if the scales are too far apart."""
    ratios = np.array([left.scale[0] / result.scale[0], right.scale[0] / result.scale[0], 0.0])
    nominal = _as_integers(ratios)
    if nominal is None:
        return None
    expected = _binary32(left, right, result)
    pairs = _pairs(left, right)
    best = _compare(nominal, pairs, expected, result)
    if best.different:
        moved = _as_integers(_move(ratios, pairs, expected - result.zero_point[0], result))
        if moved is not None:
            best = min(best, _compare(moved, pairs, expected, result), key=lambda candidate: candidate.different)
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
    """Integers of each operand minus its zero point, shaped so that they broadcast to all pairs."""
    first, second = (
        np.arange(params.dtype.min, params.dtype.max + 1, dtype=np.int64) - params.zero_point[0]
        for params in (left, right)
    )
    return first[:, None], second[None, :]


def _as_integers(ratios: Vector) -> Sum | None:
    """Integer parameters nearest to two ratios and an addend, which are given in steps of the result."""
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


def _compare(candidate: Sum, pairs: tuple[Array, Array], expected: Array, result: QuantParams) -> Sum:
    """Return the parameters with the better rounding mode, and with the number of pairs that differ."""
    total = pairs[0] * candidate.parts[0] + pairs[1] * candidate.parts[1] + candidate.addend
    different = {}
    for rounding in (RoundingMode.HALF_UP, RoundingMode.HALF_TO_EVEN):
        rescaled = rescale_one_rounding(total, candidate.multiplier, candidate.shift, rounding) + result.zero_point[0]
        different[rounding] = int((saturate(rescaled, result.dtype) != expected).sum())
    rounding = min(different, key=lambda mode: different[mode])
    return dataclasses.replace(candidate, rounding=rounding, different=different[rounding])


def _move(ratios: Vector, pairs: tuple[Array, Array], expected: Array, result: QuantParams) -> Vector:
    """Ratios and addend that round as many pairs near a tie like binary32 as the projections achieve."""
    value = pairs[0] * ratios[0] + pairs[1] * ratios[1]
    tie = np.floor(value) + 0.5
    inside = (tie > result.dtype.min - result.zero_point[0]) & (tie < result.dtype.max - result.zero_point[0])
    near = (np.abs(value - tie) < _NEAR) & inside
    side = np.where(expected[near] > tie[near], 1.0, -1.0)
    first, second = (np.broadcast_to(operand, value.shape)[near] for operand in pairs)
    # Ratios are scaled by 128, so that a unit of each of the three parameters changes results by a similar amount.
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
