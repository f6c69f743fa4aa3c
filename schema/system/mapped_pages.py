"""Memory-mapped files and the arrays that are views of them: releasing pages and copying constants."""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Callable
from typing import Any, Self

import numpy as np

from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.system.content_digest import CHUNK, Digest
from tpuconvert.schema.types import Array

_ALIGNMENT = 64
"""Alignment in bytes of a copied file: the alignment of constants in a .tpum file, and of vectors of 512 bits."""

WORTH_IT = 1 << 20
"""Size in bytes of an array. For a smaller array a system call costs more than it saves."""

STAYING_MAPPED = 1 << 28
"""Size in bytes of a file. Constants in a larger file stay views of it; copies would take too much memory."""

COPIED_BYTES = 1 << 26
"""Size in bytes from which a file is mapped. A smaller one is copied into memory: if another process truncates a mapped
file, the next access to its lost pages ends the process with the signal SIGBUS, which Python cannot handle."""


def map_file(descriptor: int, path: str | os.PathLike[str]) -> memoryview | mmap.mmap:
    """Return the content of an open, non-empty file, read-only: a copy, or a mapping of a large file.

    The descriptor may be closed afterwards; ``path`` is for messages.

    Raises:
        OSError, ValueError, OverflowError: the file cannot be mapped.
        UsageError: the file was truncated meanwhile.
    """
    size = os.fstat(descriptor).st_size
    if size < COPIED_BYTES:
        return _read_file(descriptor, path, size)
    if hasattr(os, "preadv"):
        return MappedFile(descriptor, path)
    return mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)


def _read_file(descriptor: int, path: str | os.PathLike[str], size: int) -> memoryview:
    # Not aligned_buffer: its pages are a mapping, which forget_pages would clear.
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    content = memoryview(memory[start : start + size].data)
    with open(descriptor, "rb", buffering=0, closefd=False) as file:
        done = 0
        while done < size:
            count = file.readinto(content[done:])
            if not count:
                raise truncated(path)
            done += count
    memory.flags.writeable = False
    return content.toreadonly()


def read_at(descriptor: int, path: str | os.PathLike[str], start: int, part: memoryview) -> None:
    """Fill ``part`` with the bytes of an open file from ``start`` on.

    Raises:
        UsageError: the file ends before.
    """
    while part:
        size = os.preadv(descriptor, [part], start)
        if not size:
            raise truncated(path)
        start, part = start + size, part[size:]


def truncated(path: str | os.PathLike[str]) -> UsageError:
    """Return the error for a file that became shorter while it was read."""
    return UsageError("it was truncated while it was read", file=os.fspath(path), hint="try again with all of it")


class MappedFile(mmap.mmap):
    """A large file that is mapped read-only and can also be read through its descriptor.

    Copying constants through the descriptor is 25 % faster than through the mapping: no pages are mapped and released,
    and the alignment of the destination does not depend on the position in the file. Computing the digest of parts that
    are read in file order takes a tenth of the time of a separate pass over the file.
    """

    _descriptor = -1  # not open
    _digest: Digest  # digest of the first ``_digested`` bytes
    _digested = 0
    _is_digested = False  # set by ``digest_while_reading``
    _path: str
    _lock: threading.Lock

    def __new__(cls, descriptor: int, path: str | os.PathLike[str]) -> Self:
        """Map the file of an open descriptor, which may be closed afterwards."""
        mapping = super().__new__(cls, descriptor, 0, access=mmap.ACCESS_READ)
        mapping._path = os.fspath(path)
        mapping._descriptor = os.dup(descriptor)
        mapping._digest = Digest()
        mapping._lock = threading.Lock()
        return mapping

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def is_at(self, path: str | os.PathLike[str]) -> bool:
        """Return True if this is the file at ``path``."""
        try:
            return os.path.samestat(os.fstat(self._descriptor), os.stat(path))
        except OSError:
            return False

    def read_into(self, start: int, part: memoryview) -> None:
        """Fill a part of memory with the bytes of the file from ``start``.

        Raises:
            UsageError: the file was truncated meanwhile.
        """
        with self._lock:
            if self._is_digested and start - self._digested <= CHUNK:
                self._digest_up_to(start)  # include the bytes between two constants
            read_at(self._descriptor, self._path, start, part)
            digested = self._digested - start
            if self._is_digested and 0 <= digested < len(part):
                self._digest.update(part[digested:])
                self._digested = start + len(part)

    def digest_while_reading(self) -> Callable[[], str]:
        """Compute the digest of the file while its parts are read.

        Returns:
            A function that reads the rest of the file and returns the digest in hexadecimal.
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
            read_at(self._descriptor, self._path, self._digested, part)
            self._digest.update(part)
            self._digested += len(part)


def large_file(array: Array) -> MappedFile | None:
    """Return the mapped file of ``STAYING_MAPPED`` bytes or more that a large array is a view of."""
    mapped = _mapping(array) if array.nbytes >= WORTH_IT else None
    return mapped if isinstance(mapped, MappedFile) and len(mapped) >= STAYING_MAPPED else None


def copy_if_mapped(array: Array) -> Array:
    """Return a copy of a view of a mapped file, unless the file stays mapped, and other arrays as they are."""
    mapped = _mapping(array)
    return array if mapped is None or len(mapped) >= STAYING_MAPPED else array.copy()


def file_place(data: Array | memoryview) -> tuple[MappedFile, int] | None:
    """Return the large mapped file that contiguous data are a view of, and the byte offset in it."""
    mapped = _mapping(data)
    return (mapped, _offset(data, mapped)) if isinstance(mapped, MappedFile) else None


def aligned_buffer(size: int) -> memoryview:
    """Allocate page-aligned memory.

    Copies between files and memory are fastest if the memory is aligned. Measured on Zen 4: full speed at a multiple of
    32 bytes, two thirds of it with an offset of 16 bytes, less than a third with an offset of 8.
    """
    return memoryview(mmap.mmap(-1, size))


def forget_pages(array: Array) -> None:
    """Release the pages of an array that is a view of a mapped file. The next access reads them again.

    Do nothing for other arrays, and on systems without ``madvise``.
    """
    is_contiguous = array.flags.c_contiguous or array.flags.f_contiguous  # also a transposed weight
    if array.nbytes < WORTH_IT or array.flags.writeable or not is_contiguous:
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
    """Byte offset of a view in its mapping."""
    return _address(data) - _address(mapped)


def _address(data: Array | memoryview | mmap.mmap) -> int:
    array = data if isinstance(data, np.ndarray) else np.frombuffer(data, np.uint8)
    return int(array.__array_interface__["data"][0])


def _mapping(data: Array | memoryview) -> mmap.mmap | None:
    """Return the mapping that data are a view of, or None."""
    owner: Any = data
    while owner is not None and not isinstance(owner, mmap.mmap):
        owner = owner.obj if isinstance(owner, memoryview) else getattr(owner, "base", None)
    return owner
