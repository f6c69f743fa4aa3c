"""NaN and infinities in constants: a fast check, and the meaning of infinities for an operator.

NaN is never valid in a constant. An infinity is valid if the operator compares, selects, saturates or normalizes: a
bound of a clamp, the padding of a maximum, a value selected by a mask, a score before a softmax. In arithmetic it makes
the result infinite or NaN, which indicates damaged weights.
"""

from __future__ import annotations

import enum
import math

import numpy as np

from tpuconvert.schema.types import Array

_BLOCK = 1 << 18
"""Elements of one block: a block of FLOAT32 fits into the L2 cache."""
_SMALL = 1 << 10
"""Largest array for which ``np.isfinite`` is faster than a sum."""


class InfinityUse(enum.Enum):
    """Meaning of an infinite operand or parameter for an operator."""

    NONE = "none"
    """Arithmetic: an infinite operand makes the result infinite or NaN."""
    DEFINED = "defined"
    """The operator compares, selects, saturates or normalizes: infinities are ordinary values."""
    ADDED = "added"
    """Addition or subtraction: valid for a mask of zeros and infinities of one sign, and always before a softmax."""


def is_finite(array: Array) -> bool:
    """Return True if no element is NaN or infinite. Integers are finite."""
    if array.dtype.kind != "f":
        return True
    if array.size <= _SMALL:
        return bool(np.isfinite(array).all())
    if not any(array.strides):
        array = array[(slice(0, 1),) * array.ndim]  # a broadcast scalar: check one element
    flat = array.ravel(order="K")
    with np.errstate(all="ignore"):
        for start in range(0, flat.size, _BLOCK):
            block = flat[start : start + _BLOCK]
            # A finite sum proves that all elements are finite; an infinite one may be an overflow. It needs no array.
            is_sum_finite = block.dtype.itemsize > 2 and math.isfinite(np.add.reduce(block))
            if not is_sum_finite and not np.isfinite(block).all():
                return False
    return True
