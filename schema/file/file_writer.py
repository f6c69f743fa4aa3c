"""Write a ``.tpum`` file, with atomic replacement."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import BinaryIO

import numpy as np

from tpuconvert.schema.errors import InternalError, ResourceLimitError
from tpuconvert.schema.file import tpum_tables as tpum
from tpuconvert.schema.file.file_decoder import decode
from tpuconvert.schema.file.file_encoder import Blob, encode, with_metadata
from tpuconvert.schema.file.file_header import FORMAT_VERSION, HEADER_SIZE, WITHOUT_HALF, Header, align_up
from tpuconvert.schema.file.file_model import FileModel, Json
from tpuconvert.schema.system.content_digest import CHUNK, Digest
from tpuconvert.schema.system.file_replacement import replacing
from tpuconvert.schema.system.mapped_pages import aligned_buffer, file_place, forget_pages
from tpuconvert.schema.types import Array, DType


def write_model(path: str | os.PathLike[str], model: FileModel) -> None:
    """Write a model. A file at ``path`` is replaced atomically after the new file is complete.

    A process that is killed leaves the old file unchanged, and possibly a file ``.NAME.*.tmp`` next to it,
    which the next writer of the same file removes.

    Raises:
        InternalError: the written model could not be read again; nothing was written.
        UsageError: the file cannot be written there.
        ResourceLimitError: the disk is full, or the description of the graph exceeds 2 GiB.
    """
    try:
        tables, blobs = _checked_tables(model)
        with replacing(path) as file:
            _write(file, tables, blobs, model.metadata)
    except ValueError as error:
        raise InternalError(f"the model cannot be written: {error}", file=model.graph.file) from error


def _checked_tables(model: FileModel) -> tuple[tpum.Model, list[Blob]]:
    """Encode a model without its metadata, and check that the tables can be decoded."""
    tables, blobs = encode(replace(model, metadata={}))
    decode(tables, sum(_last(tables)), _stand_in)
    return tables, blobs


def _last(tables: tpum.Model) -> tuple[int, int]:
    """Offset and size of the last constant, whose end is the end of the weight segment."""
    return (tables.buffers[-1].offset, tables.buffers[-1].size) if tables.buffers else (0, 0)


def _stand_in(_: tpum.Buffer, dtype: DType, shape: tuple[int, ...]) -> Array:
    """Return an array of zero strides, which takes no memory: the check does not read the elements."""
    return np.broadcast_to(np.zeros((), dtype.numpy), shape)


def _pack(tables: tpum.Model) -> bytes:
    try:
        metadata = tpum.pack(tables)
    except OverflowError as error:
        raise ResourceLimitError("the description of the graph exceeds 2 GiB") from error
    return metadata.ljust(align_up(len(metadata)), b"\0")


def _write(file: BinaryIO, tables: tpum.Model, blobs: list[Blob], metadata: Mapping[str, Json]) -> None:
    """Write weights, metadata and header.

    The header is written last because it contains the digest of the rest. ``model.metadata`` is evaluated after the
    weights are written because it may contain the digest of the source file, which is computed while they are copied.
    """
    weights_size = align_up(sum(_last(tables)))
    _reserve(file, HEADER_SIZE + weights_size)
    content = _Content(file)
    for blob, buffer in zip(blobs, tables.buffers, strict=True):
        content.pad(HEADER_SIZE + buffer.offset)
        content.write(blob.bytes())
        forget_pages(blob.array)
    content.pad(HEADER_SIZE + weights_size)
    packed = _pack(with_metadata(tables, metadata))
    content.write(packed)
    file.seek(0)
    graphs = (tables.graph, *tables.subgraphs)
    has_half = any(value.data_dtype is tpum.DType.FLOAT16 for graph in graphs for value in graph.values)
    version = FORMAT_VERSION if has_half else WITHOUT_HALF
    file.write(Header(len(packed), weights_size, content.digest.digest(), version).pack())


class _Content:
    """Writer of everything after the header, which computes the digest.

    Writes are split at multiples of CHUNK in the file, so that most of them consist of whole pages.
    """

    def __init__(self, file: BinaryIO) -> None:
        file.seek(HEADER_SIZE)
        self.digest = Digest()
        self._file = file
        self._position = HEADER_SIZE
        self._copied = aligned_buffer(CHUNK)

    def pad(self, position: int) -> None:
        """Write zeros up to a position in the file."""
        self.write(bytes(position - self._position))

    def write(self, data: bytes | memoryview) -> None:
        """Write bytes. If they are a view of a large mapped file, read them through its descriptor, which is faster."""
        location = file_place(data) if isinstance(data, memoryview) else None
        start = 0
        while start < len(data):
            end = min(start + CHUNK - self._position % CHUNK, len(data))
            if location is None:
                part = data[start:end]
            else:
                source, offset = location
                part = self._copied[: end - start]
                source.read_into(offset + start, part)
            self.digest.update(part)
            self._file.write(part)
            self._position += end - start
            start = end


_MUCH = 1 << 26
"""Bytes. Reserving space for a smaller file takes longer than it saves."""
_NOT_THERE = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.ENODEV)


def _reserve(file: BinaryIO, size: int) -> None:
    """Reserve disk space if the system supports it: this is faster, and a full disk is detected at once."""
    if size >= _MUCH and hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(file.fileno(), 0, size)
        except OSError as error:
            if error.errno not in _NOT_THERE:
                raise
