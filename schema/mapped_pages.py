"""Giving back the memory that parts of a mapped file take, once they have been looked at."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np

from tpuconvert.schema.types import Array

WORTH_IT = 1 << 20
"""Bytes. Less than this is not worth a system call."""


def forget_pages(array: Array) -> None:
    """Drop the pages of an array that is a view of a mapped file; they are read again when somebody looks there.

    Does nothing for any other array, and where the system has no such call.
    """
    mapped = _mapping(array)
    if mapped is None or array.nbytes < WORTH_IT or not hasattr(mapped, "madvise"):
        return
    start = array.__array_interface__["data"][0] - np.frombuffer(mapped, np.uint8).__array_interface__["data"][0]
    first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
    last = (start + array.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
    if first < last:
        mapped.madvise(mmap.MADV_DONTNEED, first, last - first)


def _mapping(array: Array) -> mmap.mmap | None:
    """The read-only mapping that an array is a view of."""
    owner: Any = array
    while owner is not None and not isinstance(owner, mmap.mmap):
        owner = owner.obj if isinstance(owner, memoryview) else getattr(owner, "base", None)
    return owner if array.flags.c_contiguous and not array.flags.writeable else None
