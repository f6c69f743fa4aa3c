"""NaN and infinities in constants: a fast check, and the trait for operators to which infinities are meaningful.

NaN has no meaning in a constant. An infinity is meaningful if the operator compares, selects, saturates or normalizes:
a bound of a clamp, the padding of a maximum, the value that a mask selects, a score before a softmax. In arithmetic it
makes the result infinite or NaN, and indicates damaged weights.
"""

from __future__ import annotations

import enum
import math

import numpy as np

from tpuconvert.schema.types import Array

_BLOCK = 1 << 18
"""Elements that are tested at once: a block of FLOAT32 fits into the second-level cache."""
_SMALL = 1 << 10
"""Largest number of elements that are tested one by one: the start of a sum costs more than it saves there."""


class InfinityUse(enum.Enum):
    """Meaning of an infinite operand or parameter for an operator."""

    NONE = "none"
    """Arithmetic: the result is infinite or NaN."""
    DEFINED = "defined"
    """Compares, selects, saturates or normalizes: infinities are ordinary numbers there."""
    ADDED = "added"
    """Sum or difference: a mask of zeros and infinities of one sign is meaningful, or any infinity before a softmax."""


def is_finite(array: Array) -> bool:
    """Return True if no element is NaN or infinite. Integers are finite."""
    if array.dtype.kind != "f":
        return True
    if array.size <= _SMALL:
        return bool(np.isfinite(array).all())
    if not any(array.strides):
        array = array[(slice(0, 1),) * array.ndim]  # one number everywhere, without memory
    flat = array.ravel(order="K")
    with np.errstate(all="ignore"):
        for start in range(0, flat.size, _BLOCK):
            block = flat[start : start + _BLOCK]
            # A sum of finite numbers is finite unless it overflows; it reads the block once and stores nothing.
            is_sum_finite = block.dtype.itemsize > 2 and math.isfinite(np.add.reduce(block))
            if not is_sum_finite and not np.isfinite(block).all():
                return False
    return True
