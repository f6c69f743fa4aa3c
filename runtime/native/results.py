"""Pool of result arrays, which are reused once the caller has released them.

Steps write results directly to these arrays. They are therefore aligned and have slack, like buffers of the arena.
"""

from __future__ import annotations

import sys
from collections import deque
from math import prod

import numpy as np

from tpuconvert.schema.types import Array

_ALIGNMENT = 64
"""Alignment of a result in bytes, and number of bytes after it that vector kernels may read."""

_LARGE = 1 << 16
"""Minimum size of pooled results, in bytes: allocating new pages costs more than a run of a small network."""

_KEPT = 2
"""Maximum number of arrays in the pool of a result. Callers often hold the previous results during a run."""


def _take_first(kept: deque[Array]) -> tuple[Array, int]:
    """Remove the first array of a pool. Return it and its reference count.

    Raises:
        IndexError: the pool is empty.
    """
    memory = kept.popleft()  # ``popleft`` is atomic: no other thread gets this array.
    return memory, sys.getrefcount(memory)


# Measured by the function that uses it: the number of references that the interpreter itself holds depends on its
# version. It is 2 up to Python 3.13, and 1 from 3.14 on, which borrows the reference of the local variable.
_REFERENCES = _take_first(deque([np.empty(1, np.uint8)]))[1]
"""Reference count of an array that nobody else refers to, as ``_take_first`` returns it."""


class ResultMemory:
    """Allocator for the arrays of one result. Thread-safe.

    A large array is a view of pooled memory. The memory is free when only the pool refers to it, because every view of
    the result holds a reference.

    Args:
        shape: shape of the result.
        dtype: type of the result.
    """

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> None:
        self._shape, self._dtype = shape, dtype
        self._bytes = prod(shape) * dtype.itemsize
        self._kept: deque[Array] = deque(maxlen=_KEPT)

    def new(self) -> Array:
        """Return a contiguous, uninitialized array that has no other references."""
        memory = self._free() if self._bytes >= _LARGE else self._fresh()
        start = -memory.ctypes.data % _ALIGNMENT
        # Create the view, which holds a reference, before other threads can see the memory.
        result = memory[start : start + self._bytes].view(self._dtype).reshape(self._shape)
        if self._bytes >= _LARGE:
            self._kept.append(memory)
        return result

    def _fresh(self) -> Array:
        return np.empty(self._bytes + 2 * _ALIGNMENT, np.uint8)

    def _free(self) -> Array:
        for _ in range(len(self._kept)):
            try:
                memory, references = _take_first(self._kept)
            except IndexError:  # Other threads have emptied the pool.
                break
            if references == _REFERENCES:
                return memory
            self._kept.append(memory)
        return self._fresh()
