"""BFLOAT16 words: the upper halves of binary32 words, held as UINT16.

It is no data type of the operator set; only functions of the host take it.
"""

from __future__ import annotations

import numpy as np

from tpuconvert.schema.types import Array

_QUIET = 0x0040
"""The bit that keeps a NaN one when its lower half is cut off."""


def widened(words: Array) -> Array:
    """The words as binary32 numbers; exact."""
    result: Array = (words.astype(np.uint32) << 16).view(np.float32)
    return result


def narrowed(x: Array) -> Array:
    """The nearest words to binary32 numbers, ties to even; NaN stays NaN."""
    pattern = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)
    upper = pattern >> 16
    # The sum can only overflow for negative NaN, which are replaced.
    nearest = (pattern + (0x7FFF + (upper & 1))) >> 16
    result: Array = np.where(np.isnan(x), upper | _QUIET, nearest).astype(np.uint16)
    return result
