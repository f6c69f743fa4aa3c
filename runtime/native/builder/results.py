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

_BLOCK_RESULTS = 8
"""Largest number of small results in one block of at most ``_LARGE`` bytes. The block lives as long as one of them."""


def _take_first(pool: deque[Array]) -> tuple[Array, int]:
    """Remove the first array of a pool. Return it and its reference count.

    Raises:
        IndexError: the pool is empty.
    """
    memory = pool.popleft()  # ``popleft`` is atomic: no other thread gets this array.
    return memory, sys.getrefcount(memory)


# Measured by the function that uses it: the number of references that the interpreter itself holds depends on its
# version. It is 2 up to Python 3.13, and 1 from 3.14 on, which borrows the reference of the local variable.
_REFERENCES = _take_first(deque([np.empty(1, np.uint8)]))[1]
"""Reference count that ``_take_first`` returns for an array without other references."""


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
        self._ready: deque[tuple[Array, int]] = deque()

    def new(self) -> Array:
        """Return a contiguous, uninitialized array that has no other references."""
        if self._bytes < _LARGE:
            try:
                memory, start = self._ready.popleft()  # ``popleft`` is atomic: no other thread gets this part.
            except IndexError:
                memory, start = self._divide_block()
            return np.ndarray(self._shape, self._dtype, memory, start)
        memory = self._free()
        # Create the view, which holds a reference, before other threads can see the memory.
        result: Array = np.ndarray(self._shape, self._dtype, memory, _padding(memory))
        self._kept.append(memory)
        return result

    def _divide_block(self) -> tuple[Array, int]:
        """Allocate a block for a few small results; return it with the offset of one, and keep the others.

        Finding an aligned address takes longer than the allocation.
        """
        stride = -(-(self._bytes + _ALIGNMENT) // _ALIGNMENT) * _ALIGNMENT
        count = max(1, min(_BLOCK_RESULTS, _LARGE // stride))
        memory = np.empty(count * stride + _ALIGNMENT, np.uint8)
        start = _padding(memory)
        self._ready.extend((memory, start + index * stride) for index in range(1, count))
        return memory, start

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


def _padding(memory: Array) -> int:
    """Bytes from the start of an array to the next aligned address."""
    return -memory.ctypes.data % _ALIGNMENT
