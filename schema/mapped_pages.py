"""Arrays that are views of mapped files: giving back the memory that they take, and making copies of them."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np

from tpuconvert.schema.graph import Graph
from tpuconvert.schema.types import Array

WORTH_IT = 1 << 20
"""Bytes. Less than this is not worth a system call."""

STAYING_MAPPED = 1 << 28
"""Bytes. Files of that size are too large to be in memory twice."""


def own_constants(graph: Graph) -> None:
    """Copy the constants that are views of a mapped file, so that it may be written anew while the graph is in use.

    Those of files of ``STAYING_MAPPED`` bytes stay views.
    """
    for value in graph.values:
        if value.data is not None:
            value.data = _owned(value.data)
        if value.stored is not None:
            value.stored = _owned(value.stored)


def _owned(array: Array) -> Array:
    mapped = _mapping(array)
    return array if mapped is None or len(mapped) >= STAYING_MAPPED else array.copy()


def forget_pages(array: Array) -> None:
    """Drop the pages of an array that is a view of a mapped file; they are read again when somebody looks there.

    Does nothing for any other array, and where the system has no such call.
    """
    if array.nbytes < WORTH_IT or array.flags.writeable or not array.flags.c_contiguous:
        return
    mapped = _mapping(array)
    if mapped is None or not hasattr(mapped, "madvise"):
        return
    start = array.__array_interface__["data"][0] - np.frombuffer(mapped, np.uint8).__array_interface__["data"][0]
    first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
    last = (start + array.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
    if first < last:
        mapped.madvise(mmap.MADV_DONTNEED, first, last - first)


def _mapping(array: Array) -> mmap.mmap | None:
    """The mapping that an array is a view of."""
    owner: Any = array
    while owner is not None and not isinstance(owner, mmap.mmap):
        owner = owner.obj if isinstance(owner, memoryview) else getattr(owner, "base", None)
    return owner
