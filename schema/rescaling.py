"""Rescaling between integers and real numbers in binary32, as the quantizing operators and atomic operations do it.

Every step is rounded to binary32 in the written order; the rounding modes are arguments.

Source: docs/semantics.md, section 9.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tpuconvert.schema.fixed_point import RoundingMode, rhaz, round_real, round_shift, saturate
from tpuconvert.schema.types import Array, DType

_NEAREST = RoundingMode.HALF_TO_EVEN
_SIGNIFICANT = 24
"""Bits of a binary32 significand."""


def to_binary32(x: Array, mode: RoundingMode = _NEAREST) -> npt.NDArray[np.float32]:
    """Integers of at most 32 bits in binary32; those beyond 24 bits are rounded by mode."""
    if mode is _NEAREST or x.dtype.itemsize < 4:
        nearest: npt.NDArray[np.float32] = x.astype(np.float32, copy=False)
        return nearest
    wide = x.astype(np.int64)
    length = np.frexp(wide.astype(np.float64))[1]  # bits of the magnitude: binary64 holds all of them
    cut = np.maximum(length - _SIGNIFICANT, 0)
    kept = round_shift(wide, cut, mode)
    rounded: npt.NDArray[np.float32] = np.ldexp(kept.astype(np.float64), cut).astype(np.float32)
    return rounded


def integers_of(v: Array, mode: RoundingMode, out: DType) -> Array:
    """Real numbers rounded by mode and saturated; NaN gives 0."""
    rounded = rhaz(v) if mode is RoundingMode.HALF_AWAY_FROM_ZERO else round_real(v, mode)
    return saturate(np.where(np.isnan(rounded), 0.0, rounded), out)


def requantize(
    x: Array,
    scale: Array,
    offset: Array,
    out: DType,
    *,
    to_integer: RoundingMode = RoundingMode.HALF_AWAY_FROM_ZERO,
    to_real: RoundingMode = _NEAREST,
) -> Array:
    """Integers times a scale plus a real offset, rounded to integers; scale and offset are binary32 and broadcast."""
    with np.errstate(all="ignore"):
        real = to_binary32(x, to_real) * scale + offset
    return integers_of(real, to_integer, out)


def dequantize(x: Array, offset: Array, scale: Array, to_real: RoundingMode = _NEAREST) -> npt.NDArray[np.float32]:
    """Integers minus an offset, exact, times a scale. ``offset`` is INT64, ``scale`` binary32; both broadcast."""
    difference = x - offset
    # The differences of 16-bit numbers are exact in binary32, so that the mode never matters to them.
    real = difference.astype(np.float32) if to_real is _NEAREST else to_binary32(difference, to_real)
    with np.errstate(all="ignore"):
        result: npt.NDArray[np.float32] = real * scale
    return result
