"""Conversion between float32 and bfloat16, which is stored as UINT16: the upper 16 bits of a float32 word.

bfloat16 is not an element type of TPU operators; only host operators accept it.
"""

from __future__ import annotations

import numpy as np

from tpuconvert.schema.types import Array

_QUIET = 0x0040
"""Quiet bit. It is set in every NaN, which would become infinity if only its lower 16 mantissa bits were set."""


def widen(words: Array) -> Array:
    """Convert bfloat16 words to float32, exactly."""
    result: Array = (words.astype(np.uint32) << 16).view(np.float32)
    return result


def narrow(x: Array) -> Array:
    """Round float32 to bfloat16 words, ties to even; NaN stays NaN."""
    pattern = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)
    upper = pattern >> 16
    # The sum overflows only for negative NaN, whose results are replaced.
    nearest = (pattern + (0x7FFF + (upper & 1))) >> 16
    result: Array = np.where(np.isnan(x), upper | _QUIET, nearest).astype(np.uint16)
    return result
