"""Mapped files and the arrays that are views of them: giving back the memory that they take, and making copies."""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Callable
from typing import Any, Self

import numpy as np

from tpuconvert.schema.content_digest import CHUNK, Digest
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.graph import Graph
from tpuconvert.schema.types import Array

WORTH_IT = 1 << 20
"""Bytes. Less than this is not worth a system call."""

STAYING_MAPPED = 1 << 28
"""Bytes. Files of that size are too large to be in memory twice."""

_KEPT_OPEN = 1 << 26 if hasattr(os, "preadv") else 1 << 63
"""Bytes. Smaller files are read no faster, and there may be more of them than a process may have open."""


def map_file(descriptor: int, path: str | os.PathLike[str]) -> mmap.mmap:
    """An open file's content, which is not empty, to be read. The descriptor may be closed afterwards.

    Messages name the path.

    Raises:
        OSError, ValueError, OverflowError: it cannot be mapped.
    """
    if os.fstat(descriptor).st_size >= _KEPT_OPEN:
        return MappedFile(descriptor, path)
    return mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)


class MappedFile(mmap.mmap):
    """A large file that is mapped to be read, and can be read as files are.

    What is copied as a whole is copied a quarter faster so: no pages are mapped and forgotten, and it comes to lie
    where copies are fast, wherever it lies in the file. The digest of a file whose parts are read in their order costs
    a tenth of another pass through memory.
    """

    _descriptor = -1  # as long as there is none
    _digest: Digest  # of the bytes before _digested
    _digested = 0
    _is_digested = False  # whether somebody wants it
    _path: str
    _lock: threading.Lock

    def __new__(cls, descriptor: int, path: str | os.PathLike[str]) -> Self:
        """Map the file behind an open descriptor, which may be closed afterwards."""
        made = super().__new__(cls, descriptor, 0, access=mmap.ACCESS_READ)
        made._path = os.fspath(path)
        made._descriptor = os.dup(descriptor)
        made._digest = Digest()
        made._lock = threading.Lock()
        return made

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def is_at(self, path: str | os.PathLike[str]) -> bool:
        """Whether this is the file at that path; not if there is none."""
        try:
            return os.path.samestat(os.fstat(self._descriptor), os.stat(path))
        except OSError:
            return False

    def read_into(self, start: int, part: memoryview) -> None:
        """Fill a part of memory with the bytes of the file from ``start``.

        Raises:
            UsageError: the file has become shorter.
        """
        with self._lock:
            if self._is_digested and start - self._digested <= CHUNK:
                self._digest_up_to(start)  # what stands between two constants
            self._read(start, part)
            known = self._digested - start
            if self._is_digested and 0 <= known < len(part):
                self._digest.update(part[known:])
                self._digested = start + len(part)

    def digest_while_reading(self) -> Callable[[], str]:
        """Make the digest of the whole file, of what is read from now on while it is read.

        Returns:
            What gives the digest in hexadecimal digits. It reads what is still missing.
        """
        self._is_digested = True
        return self._whole_digest

    def _whole_digest(self) -> str:
        with self._lock:
            self._digest_up_to(len(self))
            return self._digest.hexdigest()

    def _digest_up_to(self, end: int) -> None:
        buffer = aligned_buffer(CHUNK) if self._digested < end else memoryview(b"")
        while self._digested < end:
            part = buffer[: end - self._digested]
            self._read(self._digested, part)
            self._digest.update(part)
            self._digested += len(part)

    def _read(self, start: int, part: memoryview) -> None:
        while part:
            size = os.preadv(self._descriptor, [part], start)
            if not size:
                raise UsageError("it was cut off while it was read", file=self._path, hint="try again with all of it")
            start, part = start + size, part[size:]


def large_files(graph: Graph) -> list[MappedFile]:
    """The mapped files that large constants of a graph are views of, as far as they stay mapped."""
    arrays = (array for value in graph.values for array in (value.data, value.stored) if array is not None)
    mappings = (_mapping(array) for array in arrays if array.nbytes >= WORTH_IT)
    found = {id(mapped): mapped for mapped in mappings if isinstance(mapped, MappedFile)}
    return [mapped for mapped in found.values() if len(mapped) >= STAYING_MAPPED]


def file_place(data: Array | memoryview) -> tuple[MappedFile, int] | None:
    """The large file, and the offset in it in bytes, that an array or bytes in one piece are a view of."""
    mapped = _mapping(data)
    return (mapped, _offset(data, mapped)) if isinstance(mapped, MappedFile) else None


def aligned_buffer(size: int) -> memoryview:
    """So many bytes of memory that begin with a page.

    Files are copied to it and from it at full speed; elsewhere that depends on chance. Measured on Zen 4: as fast at a
    multiple of 32 bytes, two thirds as fast 16 beside one, and not a third 8 beside one.
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
