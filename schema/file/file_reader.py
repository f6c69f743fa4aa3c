"""Read a ``.tpum`` file, which is untrusted input.

The header is checked first, then the digest of the rest, then structure and content of the FlatBuffers metadata: a
matching digest proves nothing, because an attacker can recompute it. Constants are read-only views of the mapped file.
"""

from __future__ import annotations

import mmap
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from tpuconvert.schema.errors import CorruptInputError, UsageError
from tpuconvert.schema.file import constant_file
from tpuconvert.schema.file import tpum_tables as tpum
from tpuconvert.schema.file.constant_file import ConstantFile
from tpuconvert.schema.file.file_decoder import Constant, UnknownOperatorsError, check_buffers, decode
from tpuconvert.schema.file.file_header import HEADER_SIZE, MAGIC, Header, HeaderError
from tpuconvert.schema.file.file_model import FileModel
from tpuconvert.schema.file.flatbuffer_reader import FlatBufferError
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.system.file_errors import unreadable
from tpuconvert.schema.system.gc_control import collect_if_due, note_arrays, reduced_gc_frequency
from tpuconvert.schema.system.mapped_pages import COPIED_BYTES, forget_pages, map_file
from tpuconvert.schema.text.visible_text import shell_word
from tpuconvert.schema.types import Array, DType

_DAMAGED = "copy or download it again, or convert the model again"


@reduced_gc_frequency()
def read_model(path: str | os.PathLike[str]) -> FileModel:
    """Read a model. The file stays mapped as long as one of its constants is in use.

    A program that modifies the file in place modifies the constants. ``write_model`` replaces the file instead.

    Raises:
        CorruptInputError: the file is damaged, not a ``.tpum`` file, from a newer version, or needs a plugin.
        UsageError: the file does not exist or cannot be read.
    """
    collect_if_due()
    path = Path(path)
    mapped, start, size = _map(path)
    note_arrays(size)
    try:
        if mapped is None or not start.startswith(MAGIC):
            raise HeaderError(*_identify_other_file(start, size, path))
        header = Header.unpack(start, size)
        view = memoryview(mapped)
        if not header.is_digest_of(view[HEADER_SIZE:]):
            raise HeaderError("its digest differs from the one in its header: some bytes were changed")
        return _decode_metadata(mapped, view, header)
    except HeaderError as error:
        raise CorruptInputError(str(error), file=str(path), hint=error.hint or _DAMAGED) from error
    except UnknownOperatorsError as error:
        raise CorruptInputError(str(error), file=str(path), hint=_plugin_hint(error)) from error
    except FlatBufferError as error:
        raise CorruptInputError(f"its description is damaged: {error}", file=str(path), hint=_DAMAGED) from error
    except ValueError as error:
        raise CorruptInputError(f"it contradicts itself: {error}", file=str(path), hint=_DAMAGED) from error


class OpenModel(NamedTuple):
    """A model whose constants can be dropped from memory, and the locations of the large ones in its file."""

    model: FileModel
    file: ConstantFile | None = None
    buffers: Mapping[Value, tpum.Buffer] = MappingProxyType({})

    def drop(self, value: Value) -> None:
        """Free the data of a constant of a session's graph. They are read again at the next access."""
        buffer = self.buffers.get(value)
        if buffer is not None and self.file is not None:
            self.file.drop(value, buffer)
        elif self.file is None and value.data is not None:
            forget_pages(value.data)

    def close(self) -> None:
        """Close the file, if it is open: dropped constants can no longer be read."""
        if self.file is not None:
            self.file.close()


def open_model(path: str | os.PathLike[str]) -> OpenModel:
    """Read a model like ``read_model``, so that its constants can be dropped from memory if its file allows it.

    It raises the errors of ``read_model``.
    """
    collect_if_due()
    if not constant_file.IS_SUPPORTED:
        return OpenModel(read_model(path))
    try:
        constants = _open_constants(Path(path))
    except (OSError, ValueError, OverflowError):
        constants = None  # read_model finds and reports the first error
    return constants or OpenModel(read_model(path))


@reduced_gc_frequency()
def _open_constants(path: Path) -> OpenModel | None:
    """Return the model of a file whose constants are copied one by one; None for a large or an old file.

    The metadata are decoded before the digest is computed, which is correct for any content: they are untrusted in any
    case.
    """
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size >= COPIED_BYTES:
            return None
        start = os.pread(descriptor, HEADER_SIZE, 0)
        if not start.startswith(MAGIC):
            return None
        header = Header.unpack(start, status.st_size)
        if header.metadata_offset < header.weights_offset:
            return None
        note_arrays(status.st_size)
        metadata = os.pread(descriptor, header.metadata_size, header.metadata_offset)
        tables = tpum.unpack(metadata)
        check_buffers(tables.buffers, header.weights_size)
        file = ConstantFile(descriptor, str(path), header, tables.buffers)
    finally:
        os.close(descriptor)
    if not file.read(metadata):
        return None
    model = decode(tables, header.weights_size, file.view)
    file.forget()
    return OpenModel(model, file, _large_constants(tables, model.graph))


def _large_constants(tables: tpum.Model, graph: Graph) -> dict[Value, tpum.Buffer]:
    """Locations of the constants with separate memory, without constants of subgraphs."""
    buffers = {}
    for stored in tables.graph.values:
        is_view = stored.data >= 0 and stored.data_dtype is tpum.DType.NONE  # not widened from FLOAT16
        value = graph.find(stored.name) if is_view else None
        if value is not None and tables.buffers[stored.data].size >= constant_file.PIECE:
            buffers[value] = tables.buffers[stored.data]
    return buffers


def _map(path: Path) -> tuple[memoryview | mmap.mmap | None, bytes, int]:
    """Return the content of the file (None if it is empty), its first bytes and its size."""
    descriptor = _open(path)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise UsageError("it is a folder or a device, not a model file", file=str(path), hint="name a .tpum file")
        if not status.st_size:
            return None, b"", 0
        mapped = map_file(descriptor, path)
        return mapped, bytes(mapped[:HEADER_SIZE]), status.st_size
    except OSError as error:
        raise unreadable(error, path) from error
    except (ValueError, OverflowError) as error:
        hint = "it may exceed the address space: use a 64-bit Python"
        raise UsageError(f"cannot be read ({error})", file=str(path), hint=hint) from error
    finally:
        os.close(descriptor)  # the mapping stays valid


def _open(path: Path) -> int:
    """Open a file and return its descriptor."""
    try:
        # Without O_NONBLOCK, opening a pipe would wait for a writer.
        return os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0))
    except OSError as error:
        raise unreadable(error, path) from error
    except ValueError as error:  # the name contains a null character
        raise UsageError(f"cannot be read ({error})", file=str(path), hint="check the path") from error


def _decode_metadata(mapped: memoryview | mmap.mmap, view: memoryview, header: Header) -> FileModel:
    metadata = view[header.metadata_offset : header.metadata_offset + header.metadata_size]
    return decode(tpum.unpack(metadata), header.weights_size, _views(mapped, header.weights_offset))


def _views(mapped: memoryview | mmap.mmap, weights_offset: int) -> Constant:
    """Return a function that creates constants as views of the mapping, also beyond an offset of 2 GiB."""
    little = {dtype: dtype.numpy.newbyteorder("<") for dtype in DType}

    def view(buffer: tpum.Buffer, dtype: DType, shape: tuple[int, ...]) -> Array:
        stored = little[dtype]
        if not buffer.size:  # an empty constant may be at the end of the file, where NumPy cannot create a view
            return np.frombuffer(b"", stored).reshape(shape)
        return np.ndarray(shape, stored, mapped, weights_offset + buffer.offset)

    return view


def _identify_other_file(start: bytes, size: int, path: Path) -> tuple[str, str]:
    """Guess the format of a file without the magic from its first bytes. Return the error message and the hint."""
    text = start.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    source, model = (shell_word(name) for name in (path, _result_name(path)))
    convert_first = f"convert it first: tpuconvert convert {source} -o {model}"
    if not size:
        return "it is empty", _DAMAGED
    if start.startswith(MAGIC[:4]) or MAGIC.startswith(start):
        return "its first bytes were changed, as a transfer in text mode does", "copy it again in binary mode"
    if text.startswith(b"version https://git-lfs"):
        return "this is a Git LFS pointer, not the file itself", "run 'git lfs pull' in its repository"
    if text.startswith((b"<!doctype", b"<html", b"<?xml", b"<head")):
        return "this is a web page, not a .tpum file", "use the direct download link"
    if start[4:8] == b"TFL3":
        return "this is a TFLite model, not a .tpum file", convert_first
    if start[:1] == b"\x08" and start[2:3] in (b"\x12", b"\x1a", b"\x22", b"\x3a", b"\x42"):
        return "this looks like an ONNX model, not like a .tpum file", convert_first
    if text.startswith((b"name:", b"layer", b"input")):
        return "this looks like a Caffe prototxt, not like a .tpum file", convert_first
    return "this is not a .tpum file", "give a file that 'tpuconvert convert' has written"


def _result_name(source: Path) -> Path:
    """Return the name of the model that a file is converted to, which is another one."""
    return source.with_suffix(".converted.tpum" if source.suffix == ".tpum" else ".tpum")


def _plugin_hint(error: UnknownOperatorsError) -> str:
    if error.plugins:
        return f"the model needs: {', '.join(error.plugins)}; load it with --plugin FILE.py, or install it"
    return "load the plugin that defines them with --plugin FILE.py, or upgrade tpuconvert"
