"""Constants of an open ``.tpum`` file in separate pieces of memory, which can be dropped and read again.

A session packs the weights of a model. If each weight has its own memory, it can be freed as soon as it is packed, so
that the weights are never in memory twice. A later run with an observer reads them again.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tpuconvert.schema.errors import CorruptInputError
from tpuconvert.schema.file import tpum_tables as tpum
from tpuconvert.schema.file.file_header import ALIGNMENT, Header
from tpuconvert.schema.graph.graph import Value
from tpuconvert.schema.graph.graph_elements import DroppedData
from tpuconvert.schema.system.content_digest import Digest
from tpuconvert.schema.system.mapped_pages import read_at
from tpuconvert.schema.types import Array, DType

IS_SUPPORTED = hasattr(os, "preadv")
"""False on Windows, where an open file could not be replaced."""

PIECE = 1 << 16
"""Smallest size in bytes of a piece of memory with a constant of its own. Smaller constants share pieces."""


class _Piece(NamedTuple):
    """Bytes ``start..end-1`` of the weight segment."""

    start: int
    end: int


class ConstantFile:
    """The weight segment of an open file, in pieces.

    Args:
        descriptor: of the open file; it may be closed afterwards.
        path: the file, for messages.
        header: its header, of the version whose metadata come last.
        buffers: locations of the constants in the weight segment, in ascending order and inside it.
    """

    def __init__(self, descriptor: int, path: str, header: Header, buffers: Sequence[tpum.Buffer]) -> None:
        self._descriptor = os.dup(descriptor)
        self._path = path
        self._header = header
        self._pieces = _pieces(buffers, header.weights_size)
        self._piece_of = _piece_of(buffers, self._pieces)
        self._memory: list[Array] | None = None
        self._values: list[tuple[Value, tpum.Buffer]] = []
        self._lock = threading.Lock()

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. Dropped constants can no longer be read."""
        if getattr(self, "_descriptor", -1) >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def read_metadata(self) -> bytearray:
        """Read the bytes after the weight segment."""
        metadata = bytearray(self._header.metadata_size)
        read_at(self._descriptor, self._path, self._header.metadata_offset, memoryview(metadata))
        return metadata

    def read(self, metadata: bytes | bytearray) -> bool:
        """Read all pieces. Return True if the digest in the header equals the digest of the pieces and the metadata."""
        digest, memory = Digest(), []
        for piece in self._pieces:
            array = _allocate(piece.end - piece.start)
            read_at(self._descriptor, self._path, self._header.weights_offset + piece.start, array.data)
            digest.update(array.data)
            array.flags.writeable = False
            memory.append(array)
        digest.update(metadata)
        self._memory = memory
        return digest.digest() == self._header.digest

    def view(self, buffer: tpum.Buffer, dtype: DType, shape: tuple[int, ...]) -> Array:
        """Return a constant as a view of its piece."""
        stored = dtype.numpy.newbyteorder("<")
        if not buffer.size:
            return np.frombuffer(b"", stored).reshape(shape)
        assert self._memory is not None, "the pieces were read"
        number = self._piece_of[buffer.offset]
        return np.ndarray(shape, stored, self._memory[number], buffer.offset - self._pieces[number].start)

    def forget(self) -> None:
        """Leave the pieces to the constants that are views of them."""
        self._memory = None

    def drop(self, value: Value, buffer: tpum.Buffer) -> None:
        """Free the data of a constant, unless they are in use elsewhere. They are read again at the next access."""
        self._values.append((value, buffer))
        value.data = DroppedData(self.restore)

    def restore(self) -> None:
        """Read all dropped constants again.

        Raises:
            CorruptInputError: the file was closed, or its content was changed meanwhile.
            UsageError: the file was truncated.
        """
        with self._lock:
            if not self._values:  # another thread has done it
                return
            if self._descriptor < 0 or not self.read(self.read_metadata()):
                raise CorruptInputError(
                    "it was changed while a session had it open, so that its weights cannot be read again",
                    file=self._path,
                    hint="replace a model file with 'mv' or os.replace instead of writing into it, and open it again",
                )
            for value, buffer in self._values:
                value.data = self.view(buffer, value.dtype, value.type.static_shape)
            self._values.clear()
            self.forget()


def _pieces(buffers: Sequence[tpum.Buffer], size: int) -> list[_Piece]:
    """Divide the weight segment into pieces that begin with a constant: large constants have one of their own."""
    starts = [0]
    for buffer in buffers:
        is_full = buffer.offset - starts[-1] >= PIECE or buffer.size >= PIECE
        if is_full and buffer.offset > starts[-1]:
            starts.append(buffer.offset)
    ends = [*starts[1:], size]
    return [_Piece(start, end) for start, end in zip(starts, ends, strict=True) if end > start]


def _piece_of(buffers: Sequence[tpum.Buffer], pieces: Sequence[_Piece]) -> dict[int, int]:
    """Index of the piece that contains a constant, by the offset of the constant."""
    pieces_by_offset, number = {}, 0
    for buffer in buffers:
        while number + 1 < len(pieces) and pieces[number + 1].start <= buffer.offset:
            number += 1
        pieces_by_offset[buffer.offset] = number
    return pieces_by_offset


def _allocate(size: int) -> Array:
    """Allocate aligned memory."""
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size]
