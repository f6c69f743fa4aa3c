"""Memory for results that is used again once the caller has let go of them.

Steps may write results in place, so it is aligned and has readable bytes behind it, as the arena has.
"""

from __future__ import annotations

import sys
from collections import deque
from math import prod

import numpy as np

from tpuconvert.schema.types import Array

_ALIGNMENT = 64
"""Of a result, and the bytes behind it that vector kernels may read."""

_LARGE = 1 << 16
"""Bytes from which on memory comes fresh from the system, which costs more than many a network computes into it."""

_KEPT = 2
"""How many arrays per result are kept: callers often hold the results of the run before while they make new ones."""

_REFERENCES = 2
"""What ``sys.getrefcount`` says of memory that only the function asking knows: its variable, and the argument."""


class ResultMemory:
    """Makes the arrays of one result. Thread-safe.

    A large array is a view into memory that is kept here. That memory is free when no other object refers to it, and
    every array or buffer made from the result refers to it, as views do.

    Args:
        shape: of the result.
        dtype: of the result.
    """

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> None:
        self._shape, self._dtype = shape, dtype
        self._bytes = prod(shape) * dtype.itemsize
        self._kept: deque[Array] = deque(maxlen=_KEPT)

    def new(self) -> Array:
        """A contiguous array with undefined content that nobody else uses."""
        memory = self._free() if self._bytes >= _LARGE else self._fresh()
        start = -memory.ctypes.data % _ALIGNMENT
        # The view refers to the memory before other threads can see it again.
        result = memory[start : start + self._bytes].view(self._dtype).reshape(self._shape)
        if self._bytes >= _LARGE:
            self._kept.append(memory)
        return result

    def _fresh(self) -> Array:
        return np.empty(self._bytes + 2 * _ALIGNMENT, np.uint8)

    def _free(self) -> Array:
        for _ in range(len(self._kept)):
            try:
                memory = self._kept.popleft()  # one operation: no other thread has this one now
            except IndexError:  # other threads were faster
                break
            if sys.getrefcount(memory) == _REFERENCES:
                return memory
            self._kept.append(memory)
        return self._fresh()
