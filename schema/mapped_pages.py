"""Mapped files and the arrays that are views of them: giving back the memory that they take, and making copies."""

from __future__ import annotations

import mmap
import os
from typing import Any, Self

import numpy as np

from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.graph import Graph
from tpuconvert.schema.types import Array

WORTH_IT = 1 << 20
"""Bytes. Less than this is not worth a system call."""

STAYING_MAPPED = 1 << 28
"""Bytes. Files of that size are too large to be in memory twice."""

_KEPT_OPEN = 1 << 26 if hasattr(os, "preadv") else 1 << 63
"""Bytes. Smaller files are read no faster, and there may be more of them than a process may have open."""


def map_file(descriptor: int) -> mmap.mmap:
    """An open file's content, which is not empty, to be read. The descriptor may be closed afterwards.

    Raises:
        OSError, ValueError, OverflowError: it cannot be mapped.
    """
    kind = MappedFile if os.fstat(descriptor).st_size >= _KEPT_OPEN else mmap.mmap
    return kind(descriptor, 0, access=mmap.ACCESS_READ)


class MappedFile(mmap.mmap):
    """A large file that is mapped to be read, and can be read as files are.

    What is copied as a whole is copied a quarter faster so: no pages are mapped and forgotten, and it comes to lie
    where copies are fast, wherever it lies in the file.
    """

    _descriptor = -1  # as long as there is none

    def __new__(cls, descriptor: int, length: int, *, access: int) -> Self:
        """Map the file behind an open descriptor, which may be closed afterwards."""
        made = super().__new__(cls, descriptor, length, access=access)
        made._descriptor = os.dup(descriptor)
        return made

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def read_into(self, start: int, part: memoryview) -> None:
        """Fill a part of memory with the bytes of the file from ``start``.

        Raises:
            UsageError: the file has become shorter.
        """
        while part:
            size = os.preadv(self._descriptor, [part], start)
            if not size:
                raise UsageError("a file that is being read was cut off by another program", hint="try it again")
            start, part = start + size, part[size:]


def file_place(data: Array | memoryview) -> tuple[MappedFile, int] | None:
    """The large file, and the offset in it in bytes, that an array or bytes in one piece are a view of."""
    mapped = _mapping(data)
    return (mapped, _offset(data, mapped)) if isinstance(mapped, MappedFile) else None


def aligned_buffer(size: int) -> memoryview:
    """So many bytes of memory that begin with a page.

    Files are copied to it and from it at full speed; elsewhere that depends on chance: in steps of 64 bytes it is as
    fast, 16 bytes off half as fast, and 8 a quarter.
    """
    return memoryview(mmap.mmap(-1, size))


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
    start = _offset(array, mapped)
    first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
    last = (start + array.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
    if first < last:
        mapped.madvise(mmap.MADV_DONTNEED, first, last - first)


def _offset(data: Array | memoryview, mapped: mmap.mmap) -> int:
    """Where a view of a mapping begins in it."""
    return _address(data) - _address(mapped)


def _address(data: Array | memoryview | mmap.mmap) -> int:
    array = data if isinstance(data, np.ndarray) else np.frombuffer(data, np.uint8)
    return int(array.__array_interface__["data"][0])


def _mapping(data: Array | memoryview) -> mmap.mmap | None:
    """The mapping that an array or bytes are a view of."""
    owner: Any = data
    while owner is not None and not isinstance(owner, mmap.mmap):
        owner = owner.obj if isinstance(owner, memoryview) else getattr(owner, "base", None)
    return owner
