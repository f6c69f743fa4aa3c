"""Exact integer arithmetic in ONNX operators: saturation, rounding shifts and rounding of floats.

A right shift works on UINT64, for which ONNX has an operator: ``floor(x / 2^s) = (x + 2^63) >> s - 2^(63 - s)``. Casts
between INT64 and UINT64 and additions of UINT64 are modulo 2^64, so no step overflows.
"""

from __future__ import annotations

import numpy as np

from tpuconvert.exporters.lowerings import NoExactForm
from tpuconvert.exporters.onnx_model.lowering import Argument, Lowering, scalar
from tpuconvert.schema.arithmetic.fixed_point import RoundingMode
from tpuconvert.schema.types import Array, DType

_HIGHEST = 1 << 62
"""Largest magnitude of an operand of ``round_shift``: a rounding term below 2^62 then fits into INT64."""


def widen(d: Lowering, x: Argument) -> str:
    """Convert integers to INT64."""
    return d.add("Cast", x, to=np.int64)


def saturate(d: Lowering, x: Argument, dtype: DType, *, of: type[np.generic] = np.int64, low: int | None = None) -> str:
    """Clip integers, or integral floats, to the range of a type and convert them.

    Args:
        d: the lowering.
        x: tensor.
        dtype: integer type of the result.
        of: element type of the tensor.
        low: smallest result, by default the smallest number of the type.

    Integers are clipped as float64: with AVX-512, Clip, Max and Min of ONNX Runtime before 1.32 return wrong INT64 for
    numbers from 2^31 to 2^32. The limits are exact in float64, and rounding moves no number across them.
    """
    if of is np.int64:
        x, of = d.add("Cast", x, to=np.float64), np.float64
    limited = d.add("Clip", x, scalar(dtype.min if low is None else low, of), scalar(dtype.max, of))
    return limited if dtype.numpy == np.dtype(of) else d.add("Cast", limited, to=dtype.numpy)


def add_constant(d: Lowering, x: str, term: Array) -> str:
    """Add INT64 constants; return ``x`` itself if all of them are 0."""
    return d.add("Add", x, term) if term.any() else x


def floor_shift(d: Lowering, x: str, term: Array, shift: Array) -> str:
    """Compute ``floor((x + term) / 2^shift)`` of INT64 numbers, where ``|x + term| < 2^63`` and shifts are 0 to 63."""
    if not shift.any():
        return add_constant(d, x, term)
    amount = shift.astype(np.uint64)
    half = np.uint64(1 << 63)
    raised = d.add("Add", d.add("Cast", x, to=np.uint64), term.astype(np.int64).view(np.uint64) + half)
    shifted = d.add("BitShift", raised, amount, direction="RIGHT")
    lowered = d.add("Add", shifted, ~(half >> amount) + np.uint64(1))
    return d.add("Cast", lowered, to=np.int64)


def round_shift(d: Lowering, x: str, shift: Array, mode: RoundingMode, largest: int) -> str:
    """Compute ``x / 2^shift`` of INT64 numbers, rounded in the given mode.

    Args:
        d: the lowering.
        x: tensor.
        shift: INT64, not negative; broadcasts with ``x``.
        mode: rounding mode.
        largest: bound of the magnitudes of ``x``, at most 2^62.

    Raises:
        NoExactForm: ``largest`` exceeds its limit, or a shift by more than 62 bits is required.
    """
    # A further bit changes no rounding once |x| / 2^shift is below 1/2.
    shift = np.minimum(shift, largest.bit_length() + 1)
    if largest > _HIGHEST or shift.max(initial=0) > 62:
        raise NoExactForm(f"a product of {largest.bit_length()} bits is shifted by {shift.max(initial=0)} bits")
    if not shift.any():
        return x
    one = np.int64(1)
    below = (one << shift) - one  # 2^shift - 1
    half = (one << shift) >> one
    zero = np.zeros_like(shift)
    if mode is RoundingMode.HALF_UP:
        return floor_shift(d, x, half, shift)
    if mode is RoundingMode.DOWN:
        return floor_shift(d, x, zero, shift)
    if mode is RoundingMode.UP:
        return floor_shift(d, x, below, shift)
    if mode is RoundingMode.HALF_DOWN:
        return floor_shift(d, x, below - half, shift)
    if mode is RoundingMode.HALF_AWAY_FROM_ZERO:
        return floor_shift(d, d.add("Sub", x, _if_negative(d, x, (shift > 0).astype(np.int64))), half, shift)
    if mode is RoundingMode.TOWARDS_ZERO:
        return floor_shift(d, d.add("Add", x, _if_negative(d, x, below)), zero, shift)
    floor = floor_shift(d, x, zero, shift)
    odd = d.add("Mul", d.add("BitwiseAnd", floor, scalar(1, np.int64)), (shift > 0).astype(np.int64))
    return floor_shift(d, d.add("Add", x, odd), below - half, shift)


def _if_negative(d: Lowering, x: str, number: Array) -> str:
    """Return ``number`` where ``x`` is negative, else 0."""
    negative = d.add("Cast", d.add("Less", x, scalar(0, np.int64)), to=np.int64)
    return negative if (number == 1).all() else d.add("Mul", negative, number)


def round_half_away(d: Lowering, x: Argument, dtype: DType, offset: Array, *, may_be_nan: bool) -> str:
    """Round floats to nearest, ties away from zero, add INT64 offsets and saturate to an integer type. NaN counts as 0.

    Rounding saturates to INT32 before the addition, as the reference does.
    """
    wide = d.add("Cast", x, to=np.float64)
    if may_be_nan:
        wide = d.add("Where", d.add("IsNaN", wide), scalar(0, np.float64), wide)
    magnitude = d.add("Floor", d.add("Add", d.add("Abs", wide), scalar(0.5, np.float64)))
    rounded = d.add("Mul", magnitude, d.add("Sign", wide))
    if offset.any():
        limited = d.add("Clip", rounded, *(scalar(limit, np.float64) for limit in (-(2**31), 2**31 - 1)))
        rounded = d.add("Add", limited, offset.astype(np.float64))
    return saturate(d, rounded, dtype, of=np.float64)
