"""Requantization of an ONNX source: integer parameters that give the results of its binary32 arithmetic for every sum.

ONNX defines a quantized linear operator as saturate(round_half_even(sum * factor) + zero point) with the factor
f32(f32(x_scale * w_scale) / y_scale); f32(sum) * factor is rounded to binary32 before. ``requant_int32`` in mode
MULTIPLIER_SHIFT rounds sum * multiplier * 2^shift instead. Both are monotone in the sum, so they are equal for all
sums if they step from k to k + 1 at the same sum b, for every k in the range of the result:

    b * multiplier >= (k + 1/2) * 2^-shift > (b - 1) * multiplier.

Every k gives a lower and an upper bound of the multiplier. For most factors above 2^-10, some multipliers satisfy all
bounds. With a smaller factor, more sums are in the range of the result. Some of them are within 2^-17 of a tie, and
binary32 rounds them to the tie; their bounds can contradict each other.

The difference is one step for one or two sums in a million. Deep networks of ReLU layers amplify these differences so
much that a model may miss its published accuracy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tpuconvert.schema.arithmetic.fixed_point import RoundingMode, multiplier_shift
from tpuconvert.schema.types import I32, DType

Int64Array = npt.NDArray[np.int64]
Float32Array = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Rescale:
    """Parameters of requant_int32 in mode MULTIPLIER_SHIFT.

    Args:
        pairs: multiplier and shift of every factor.
        rounding: of the right shift.
        equals: True if the results equal the results in binary32 for every sum.
    """

    pairs: tuple[tuple[int, int], ...]
    rounding: RoundingMode
    equals: bool


def find_rescale(factors: Sequence[float], zero_point: int, dtype: DType) -> Rescale:
    """Find the rescale that reproduces binary32, or the nearest one for factors that have none.

    All factors share one rounding mode: ``half_up``, for which vector kernels exist, unless ``half_even`` reproduces
    more of them. That happens for factors of few bits, such as powers of two, whose ties are exact.

    Args:
        factors: factors, which are binary32 numbers.
        zero_point: zero point of the result.
        dtype: type of the result. Above 8 bits the nearest rescale is returned without a search, as there are too many
            steps.
    """
    nearest = tuple((multiplier, exponent - 31) for multiplier, exponent in map(multiplier_shift, factors))
    if dtype.bits > 8 or not all(multiplier and -62 <= shift < 0 for multiplier, shift in nearest):
        return Rescale(nearest, RoundingMode.HALF_TO_EVEN, equals=False)
    distinct, positions = np.unique(np.asarray(factors, np.float32), return_inverse=True)
    steps = np.arange(dtype.min - zero_point, dtype.max - zero_point, dtype=np.int64)
    first = _first_sums(distinct, steps)
    nominal = np.array(nearest, np.int64)[np.unique(positions, return_index=True)[1]]
    rounding, (low, high) = RoundingMode.HALF_UP, _bounds(first, steps, -nominal[:, 1], RoundingMode.HALF_UP)
    if (low > high).any():
        even = _bounds(first, steps, -nominal[:, 1], RoundingMode.HALF_TO_EVEN)
        if (even[0] <= even[1]).sum() > (low <= high).sum():
            rounding, (low, high) = RoundingMode.HALF_TO_EVEN, even
    has_multiplier = low <= high
    multiplier = np.where(has_multiplier, np.clip(nominal[:, 0], low, np.maximum(low, high)), nominal[:, 0])[
        positions
    ].tolist()
    pairs = tuple((chosen, shift) for chosen, (_, shift) in zip(multiplier, nearest, strict=True))
    return Rescale(pairs, rounding, bool(has_multiplier.all()))


def _first_sums(factors: Float32Array, steps: Int64Array) -> Int64Array:
    """Smallest sum that binary32 rescales to more than k, for every factor and step k: [factors, steps]."""
    factor = factors[:, None]
    about = np.floor((steps + 0.5) / factor.astype(np.float64))
    slack = 2 + np.abs(about) * 2.0**-21  # The relative errors of f32(sum) and of the product are at most 2^-24 each.
    low, high = ((about + sign * slack).astype(np.int64) for sign in (-1, 1))
    while (high - low > 1).any():
        middle = (low + high) >> 1
        is_more = np.rint(middle.astype(np.float32) * factor) > steps
        low, high = np.where(is_more, low, middle), np.where(is_more, middle, high)
    return high


def _bounds(
    first: Int64Array, steps: Int64Array, shift: Int64Array, rounding: RoundingMode
) -> tuple[Int64Array, Int64Array]:
    """Smallest and largest multiplier of every factor whose results step from k to k + 1 at the given sums.

    ``least`` is the smallest product of sum and multiplier that is rescaled to more than k: the tie itself, or one more
    if the tie is rounded down to an even k. |least| < 2^63 for the steps that a 32-bit sum reaches.
    """
    reached = (first <= I32.max) & (first > I32.min)
    first = np.where(reached, first, 1)
    step = np.where(reached, steps, 0)
    least = ((2 * step + 1) << (shift[:, None] - 1)) + ((rounding is RoundingMode.HALF_TO_EVEN) & (step % 2 == 0))
    more, not_more = _multipliers(first, least), _multipliers(1 - first, 1 - least)
    low = np.where(reached, np.maximum(more[0], not_more[0]), 1)
    high = np.where(reached, np.minimum(more[1], not_more[1]), I32.max)
    return low.max(axis=1), high.min(axis=1)


def _multipliers(factor: Int64Array, least: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Smallest and largest m with factor * m >= least. If no m satisfies this, the smallest exceeds the largest."""
    divisor = np.where(factor == 0, 1, factor)
    floor = least // divisor
    ceiling = floor + (least % divisor != 0)
    impossible = (factor == 0) & (least > 0)
    low = np.where(impossible, I32.max, np.where(factor > 0, ceiling, 1))
    high = np.where(impossible, 1, np.where(factor < 0, floor, I32.max))
    return low, high
