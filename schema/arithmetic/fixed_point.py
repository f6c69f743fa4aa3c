"""Rounding, saturation and exact shifts: the integer primitives of all fixed-point operators.

There is one function per rounding mode, which states its rule for ties. Integers are computed in INT64; a shift amount
is a number or an array that broadcasts (per channel), never negative, and may exceed 63.

Source: docs/inside/semantics.md, sections 3 and 9.1.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tpuconvert.schema.types import Array, DType, ScaleError

if TYPE_CHECKING:
    import numpy.typing as npt

    Int64Array = npt.NDArray[np.int64]
    Float64Array = npt.NDArray[np.float64]
else:
    Int64Array = Float64Array = np.ndarray

Shift = int | Array


class RoundingMode(enum.IntEnum):
    """Rounding modes, with the values of the TPU operator set. UNKNOWN is always rejected."""

    HALF_TO_EVEN = 0
    HALF_AWAY_FROM_ZERO = 1
    TOWARDS_ZERO = 2
    DOWN = 3
    UP = 4
    HALF_UP = 5
    HALF_DOWN = 6
    UNKNOWN = -1

    # aliases: names of these modes in the shift operators
    ROUNDING_HALF_TO_EVEN = 0
    ROUNDING_HALF_AWAY_FROM_ZERO = 1
    ROUNDING_TOWARDS_ZERO = 2
    ROUNDING_DOWN = 3
    ROUNDING_UP = 4
    ROUNDING_HALF_UP = 5
    ROUNDING_HALF_DOWN = 6
    ROUNDING_UNKNOWN = -1


# --- integer / 2^shift ------------------------------------------------------------------------------------------------

_STICKY_MASKS = np.array([(1 << below) - 1 for below in range(64)] + [-1], dtype=np.int64)
"""``_STICKY_MASKS[n]`` has the lowest n bits set: the bits below the half bit. The last one is for n >= 64."""


def _split(x: Array, shift: Shift) -> tuple[Int64Array, Int64Array, npt.NDArray[np.bool_]]:
    """Split x / 2^shift into floor, half bit and sticky bit; exact for every INT64 and every shift >= 0.

    With ``r`` the remainder of ``x / 2^s``, the half bit is ``r >= 2^(s-1)`` and the sticky bit ``r mod 2^(s-1) != 0``.
    """
    x, amount = _operands(x, shift)
    shifts_at_all = np.minimum(amount, 1)
    doubled = x >> np.clip(amount - 1, 0, 63)  # 2 * floor + half bit if shift > 0, else x
    rest = (x & _STICKY_MASKS[np.clip(amount - 1, 0, 64)]) != 0
    return doubled >> shifts_at_all, doubled & shifts_at_all, rest


def _operands(x: Array, shift: Shift) -> tuple[Int64Array, Int64Array]:
    amount = np.asarray(shift, dtype=np.int64)
    if (amount < 0).any():
        raise ValueError(f"a rounding right shift by {amount.min()} bits is a left shift")
    return np.asarray(x, dtype=np.int64), amount


def shift_down(x: Array, shift: Shift) -> Int64Array:
    """``floor(x / 2^shift)``."""
    x, amount = _operands(x, shift)
    return x >> np.minimum(amount, 63)


def shift_up(x: Array, shift: Shift) -> Int64Array:
    """``ceil(x / 2^shift)``."""
    floor, half, rest = _split(x, shift)
    return floor + (half | rest)


def shift_toward_zero(x: Array, shift: Shift) -> Int64Array:
    """Truncate x / 2^shift toward zero."""
    floor, half, rest = _split(x, shift)
    return floor + ((half | rest) & (floor < 0))


def shift_half_up(x: Array, shift: Shift) -> Int64Array:
    """Nearest to x / 2^shift, ties toward plus infinity: -5/2 gives -2."""
    x, amount = _operands(x, shift)
    shifts_at_all = np.minimum(amount, 1)
    doubled = x >> np.clip(amount - 1, 0, 63)
    return (doubled >> shifts_at_all) + (doubled & shifts_at_all)


def shift_half_down(x: Array, shift: Shift) -> Int64Array:
    """Nearest to x / 2^shift, ties toward minus infinity: 5/2 gives 2."""
    floor, half, rest = _split(x, shift)
    return floor + (half & rest)


def shift_half_away(x: Array, shift: Shift) -> Int64Array:
    """Nearest to x / 2^shift, ties away from zero: 5/2 gives 3, -5/2 gives -3."""
    floor, half, rest = _split(x, shift)
    return floor + (half & (rest | (floor >= 0)))


def shift_half_even(x: Array, shift: Shift) -> Int64Array:
    """Nearest to x / 2^shift, ties to the even neighbor: 5/2 gives 2, 7/2 gives 4."""
    floor, half, rest = _split(x, shift)
    return floor + (half & (rest | (floor & 1)))


_SHIFTS: dict[RoundingMode, Callable[[Array, Shift], Int64Array]] = {
    RoundingMode.HALF_TO_EVEN: shift_half_even,
    RoundingMode.HALF_AWAY_FROM_ZERO: shift_half_away,
    RoundingMode.TOWARDS_ZERO: shift_toward_zero,
    RoundingMode.DOWN: shift_down,
    RoundingMode.UP: shift_up,
    RoundingMode.HALF_UP: shift_half_up,
    RoundingMode.HALF_DOWN: shift_half_down,
}


def round_shift(x: Array, shift: Shift, mode: RoundingMode) -> Int64Array:
    """Round x / 2^shift in the given mode.

    Raises:
        ValueError: a shift is negative, or the mode is UNKNOWN.

    """
    if mode not in _SHIFTS:
        raise ValueError(f"rounding mode {mode!r} is not usable")
    return _SHIFTS[mode](x, shift)


def rrs(x: Array, shift: Shift) -> Int64Array:
    """Rounding right shift of the TPU operator set: half up for shift > 0, x itself otherwise."""
    return shift_half_up(x, np.maximum(np.asarray(shift, dtype=np.int64), 0))


def shift_left_exact(x: Array, shift: Shift) -> Int64Array:
    """Left shift x * 2^shift, for results that are then saturated to at most 32 bits; shift is 0..31.

    The result is exact for ``|x| < 2^32``. A larger x is clipped, but the magnitude of the result stays above
    2^33 - 2^2, so that saturation gives the same value, even after a 32-bit offset is added.
    """
    x, amount = _operands(x, shift)
    if (amount > 31).any():
        raise ValueError(f"a left shift by {amount.max()} bits is not supported; 31 is the most")
    limit = (1 << 32) - 1  # (2^32 - 1) * 2^31 < 2^63
    return np.where(amount > 0, np.clip(x, -limit, limit) << amount, x)


# --- ranges -----------------------------------------------------------------------------------------------------------


def limit_to(x: Array, dtype: DType) -> Array:
    """Clip x to the range of an integer type without converting it."""
    return np.clip(x, dtype.min, dtype.max)


def saturate(x: Array, dtype: DType) -> Array:
    """Clip x to the range of an integer type and convert it. x has integral values, no NaN."""
    return np.clip(x, dtype.min, dtype.max).astype(dtype.numpy)


def wrap(x: Array, dtype: DType) -> Array:
    """Convert x to an integer type modulo its range."""
    return np.asarray(x, dtype=np.int64).astype(dtype.numpy)


def shift_wrapping(x: Array, amount: Shift) -> Array:
    """Compute ``x * 2^amount`` modulo the range of the type of x; for negative amounts ``floor(x / 2^-amount)``."""
    amount = np.asarray(amount, dtype=np.int64)
    # Amounts above 63 are equivalent to 63: a left shift gives 32 low zero bits, a right shift only the sign.
    left = x.astype(np.int64) << np.clip(amount, 0, 63)
    right = shift_down(x, np.maximum(-amount, 0))
    return wrap(np.where(amount >= 0, left, right), DType.of(x.dtype))


# --- floating point ---------------------------------------------------------------------------------------------------


def rhaz(v: npt.ArrayLike) -> Float64Array:
    """Round float32 or float64 numbers to the nearest integer, ties away from zero. The result is float64."""
    array: Array = np.asarray(v)
    wide: Float64Array = np.asarray(array, dtype=np.float64)
    if array.dtype.itemsize < 8:
        # v has at most 24 significant bits: v + 1/2 is exact, or rounds without reaching the next integer.
        return np.trunc(wide + np.copysign(0.5, wide))
    integer_part, fraction = _magnitude(wide)
    return np.copysign(integer_part + (fraction >= 0.5), wide)


def rhaz_i32(v: npt.ArrayLike) -> Int64Array:
    """Round to the nearest integer, ties away from zero, and saturate to INT32; NaN gives 0. The result is INT64."""
    rounded = rhaz(v)
    limited = np.clip(rounded, DType.INT32.min, DType.INT32.max)
    return np.where(np.isnan(limited), 0.0, limited).astype(np.int64)


def round_float(v: npt.ArrayLike, mode: RoundingMode) -> Float64Array:
    """Round floating-point numbers to integral float64 values. NaN and infinities are unchanged.

    Raises:
        ValueError: the mode is UNKNOWN.

    """
    wide: Float64Array = np.asarray(v, dtype=np.float64)
    if mode in (RoundingMode.HALF_UP, RoundingMode.HALF_DOWN):
        integer_part, fraction = _magnitude(wide)
        tie_grows = (wide >= 0) == (mode is RoundingMode.HALF_UP)
        rounded: Float64Array = np.copysign(integer_part + ((fraction > 0.5) | ((fraction == 0.5) & tie_grows)), wide)
        return rounded
    if mode not in _REAL:
        raise ValueError(f"rounding mode {mode!r} is not usable")
    return _REAL[mode](wide)


_REAL: dict[RoundingMode, Callable[[Float64Array], Float64Array]] = {
    RoundingMode.DOWN: np.floor,
    RoundingMode.UP: np.ceil,
    RoundingMode.TOWARDS_ZERO: np.trunc,
    RoundingMode.HALF_TO_EVEN: np.rint,
    RoundingMode.HALF_AWAY_FROM_ZERO: rhaz,
}


def _magnitude(v: Float64Array) -> tuple[Float64Array, Float64Array]:
    """Whole and fractional part of |v|, both exact."""
    magnitude = np.abs(v)
    integer_part = np.floor(magnitude)
    with np.errstate(invalid="ignore"):  # inf - inf is NaN, and comparing it with 1/2 is False
        return integer_part, magnitude - integer_part


# --- rescaling by multiplier and shift --------------------------------------------------------------------------------


ONE_HALF = 1 << 30
"""One half as a multiplier with 31 bits after the point, the smallest normalized one."""


def power_of_two(exponent: int = 0) -> tuple[int, int]:
    """Return multiplier and shift of the factor ``2^exponent``: the factor 1 converts between integer types."""
    return ONE_HALF, exponent + 1


def high_product(a: Int64Array | int, b: Int64Array | int) -> Any:
    """``a * b / 2^31`` of 32-bit integers, rounded half up: the doubled high product of the kernels of TFLite."""
    return (a * b + ONE_HALF) >> 31


def multiplier_shift(factor: float) -> tuple[int, int]:
    """Approximate a non-negative factor by ``multiplier * 2^(exponent - 31)`` with a 31-bit multiplier.

    The exponent is ``shift`` of requant_int32 in mode 0; mode 2 takes exponent - 31. A factor below 2^-32 gives (0, 0).

    Raises:
        ScaleError: the factor is negative, not finite, or so large that the shift would exceed 31.

    """
    if not (math.isfinite(factor) and factor >= 0):
        raise ScaleError(f"a rescale factor must be positive and finite, found {factor}")
    fraction, exponent = math.frexp(factor)
    multiplier = math.floor(fraction * (1 << 31) + 0.5)  # exact in 53 bits; positive, so ties round away from zero
    if multiplier == 1 << 31:
        multiplier, exponent = power_of_two(exponent)
    if exponent < -31:
        return 0, 0
    if exponent > 31:
        raise ScaleError(f"a rescale factor must stay below 2^31, found {factor}")
    return multiplier, exponent


def rescale_two_roundings(x: Array, multiplier: int | Array, shift: Shift) -> Int64Array:
    """Rescale to x * multiplier * 2^(shift - 31) in two roundings.

    The first step shifts right by 31 bits, ties up, and saturates to INT32. The second step applies a negative shift,
    ties away from zero. A positive shift is subtracted from the 31 bits of the first step, which gives the same result
    as a left shift of x and cannot overflow. Operands and multipliers have at most 32 bits, shifts are at most 31.
    """
    shift = np.asarray(shift, dtype=np.int64)
    high = _product(x, multiplier)
    _half_up_below_2_62(high, 31 - np.maximum(shift, 0))
    np.clip(high, DType.INT32.min, DType.INT32.max, out=high)
    if (shift < 0).any():
        right = np.clip(-shift, 0, 40)  # |high| <= 2^31: a shift by 33 bits or more gives 0
        high += _half(right) - ((high < 0) & (right > 0))  # ties of negative numbers round down
        high >>= right
    return high


def rescale_one_rounding(
    x: Array, multiplier: int | Array, shift: Shift, mode: RoundingMode = RoundingMode.HALF_UP
) -> Int64Array:
    """Rescale to x * multiplier * 2^shift with one rounding, for results of at most 16 bits. Shifts are at most 31."""
    shift = np.asarray(shift, dtype=np.int64)
    product = _product(x, multiplier)
    right = np.maximum(-shift, 0)
    if mode is RoundingMode.HALF_UP and (right <= 62).all():
        _half_up_below_2_62(product, right)
    else:
        product = round_shift(product, right, mode)
    return shift_left_exact(product, np.maximum(shift, 0)) if (shift > 0).any() else product


def _product(x: Array, multiplier: int | Array) -> Int64Array:
    """Multiply 32-bit integers exactly, into a new array. The magnitude is at most 2^62."""
    product: Int64Array = np.multiply(x, multiplier, dtype=np.int64)
    return product


def _half(shift: Int64Array) -> Int64Array:
    """``2^(shift - 1)``, or 0 for shift 0: the term added before a right shift to round half up."""
    return (np.int64(1) << shift) >> 1


def _half_up_below_2_62(x: Int64Array, shift: Int64Array) -> None:
    """Round x / 2^shift half up, in place: |x| <= 2^62 and shift <= 62, so adding the half stays below 2^63."""
    x += _half(shift)
    x >>= shift
