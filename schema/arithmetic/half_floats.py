"""Floats of 16 bits (binary16)."""

from __future__ import annotations

import numpy as np

from tpuconvert.schema.types import Array

SMALLEST_NORMAL = 2.0**-14
LARGEST = 65504.0


def is_exact_in_half(array: Array) -> bool:
    """Return True if FLOAT16 has every element of a FLOAT32 array, which has no NaN."""
    with np.errstate(over="ignore"):
        return bool((array.astype(np.float16).astype(np.float32) == array).all())
