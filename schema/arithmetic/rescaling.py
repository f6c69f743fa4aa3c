"""Quantization and dequantization in float32, as in the quantizing operators and atomic operations.

Every step is rounded to float32 in the written order; the rounding modes are arguments.

Source: docs/inside/semantics.md, section 9.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tpuconvert.schema.arithmetic.fixed_point import RoundingMode, rhaz, round_float, round_shift, saturate
from tpuconvert.schema.types import Array, DType

_NEAREST = RoundingMode.HALF_TO_EVEN
_SIGNIFICANT = 24
"""Bits of a float32 significand."""


def to_binary32(x: Array, mode: RoundingMode = _NEAREST) -> npt.NDArray[np.float32]:
    """Convert integers of at most 32 bits to float32. Integers with more than 24 bits are rounded by ``mode``."""
    if mode is _NEAREST:
        nearest: npt.NDArray[np.float32] = x.astype(np.float32)
        return nearest
    wide = x.astype(np.int64)
    length = np.frexp(wide.astype(np.float64))[1]  # number of bits of |x|; exact, as float64 represents x
    cut = np.maximum(length - _SIGNIFICANT, 0)
    high_bits = round_shift(wide, cut, mode)
    rounded: npt.NDArray[np.float32] = np.ldexp(high_bits.astype(np.float64), cut).astype(np.float32)
    return rounded


def integers_of(v: Array, mode: RoundingMode, out: DType) -> Array:
    """Round floating-point numbers by ``mode`` and saturate; NaN gives 0."""
    rounded = rhaz(v) if mode is RoundingMode.HALF_AWAY_FROM_ZERO else round_float(v, mode)
    return saturate(np.where(np.isnan(rounded), 0.0, rounded), out)


def requantize(
    x: Array,
    scale: Array,
    offset: Array,
    out: DType,
    *,
    to_integer: RoundingMode = RoundingMode.HALF_AWAY_FROM_ZERO,
    to_float: RoundingMode = _NEAREST,
) -> Array:
    """Compute ``x * scale + offset`` in float32 and round it to integers; scale and offset broadcast."""
    with np.errstate(all="ignore"):
        real = to_binary32(x, to_float) * scale + offset
    return integers_of(real, to_integer, out)


def dequantize(x: Array, offset: Array, scale: Array) -> npt.NDArray[np.float32]:
    """Compute ``(x - offset) * scale``; INT64 ``offset`` and float32 ``scale`` broadcast.

    The exact difference is rounded to the nearest float32, ties to even.
    """
    real = (x - offset).astype(np.float32)
    with np.errstate(all="ignore"):
        result: npt.NDArray[np.float32] = real * scale
    return result
