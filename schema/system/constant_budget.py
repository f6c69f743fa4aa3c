"""Limit on the memory of all constants that a conversion computes.

A file of a kilobyte can double a constant in each of its nodes. Limits for one operator do not bound the sum, so the
sum is charged where constants are created: folded operators of a frontend, and constants that are added to a graph.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator
from contextvars import ContextVar

import numpy as np

from tpuconvert.schema.system.limits import current_limits, exceeded
from tpuconvert.schema.types import Array

PER_FILE_BYTE = 20
"""Bytes that may be computed for each byte of the source files. Weights of 4 bits become 8 times as large in FLOAT32,
and some are stored in two layouts."""


class ConstantBudget:
    """Bytes that constants of one conversion may still have.

    An allocation is charged once, however many views of it there are. Data of the file itself are not charged, since
    they are in the buffer of the file.

    Args:
        file: name of the source file, for the error.
        file_bytes: size of the source files.
    """

    def __init__(self, file: str, file_bytes: int) -> None:
        self._file = file
        self._limit = current_limits().max_computed_bytes
        self._left = self._limit + PER_FILE_BYTE * file_bytes
        self._charged: dict[int, weakref.ref[Array]] = {}

    def add_file(self, size: int) -> None:
        """Extend the budget by a file that the source file refers to."""
        self._left += PER_FILE_BYTE * size

    def allows(self, size: int) -> bool:
        """Return True if constants of this size, in bytes, may be computed."""
        return size <= self._left

    def charge(self, array: Array | np.generic, node: str = "") -> None:
        """Charge a constant.

        Raises:
            ResourceLimitError: all constants together are too large.
        """
        if not isinstance(array, np.ndarray):
            return  # a NumPy scalar
        root = array
        while isinstance(root.base, np.ndarray):
            root = root.base
        charged = self._charged.get(id(root))
        if charged is None or charged() is not root:
            self._charged[id(root)] = weakref.ref(root)
            size = root.nbytes if root.base is None else 0
        else:
            size = 0
        if 0 in array.strides and array.nbytes > root.nbytes:
            size = array.nbytes  # broadcast: the elements are written out later
        self._left -= size
        if self._left < 0:
            excess = f"its computed constants take {self._limit - self._left:,} bytes"
            raise exceeded(excess, "max_computed_bytes", file=self._file, node=node)


_current: ContextVar[ConstantBudget | None] = ContextVar("constant_budget", default=None)


def current_budget() -> ConstantBudget | None:
    """Return the budget of the conversion that is reading its source, or None."""
    return _current.get()


@contextlib.contextmanager
def constant_budget(file: str, file_bytes: int) -> Iterator[None]:
    """Start a budget for a block that reads a source; graphs that are created in it keep the budget."""
    token = _current.set(ConstantBudget(file, file_bytes))
    try:
        yield
    finally:
        _current.reset(token)
