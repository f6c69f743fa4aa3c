"""Files with the packed weights of a model: a plan of the native engine for one model, engine and instruction set.

    header        128 bytes: magic, version, sizes, digest of description and arrays
    description   JSON: the key, inputs and outputs, buffers, and the calls that make the steps
    arrays        other arguments of the steps, 64-byte aligned
    parts         packed weights, 64-byte aligned, each with a checksum in the description and followed by 64 zeros, for
                  vectors that reach beyond the end

A file is untrusted. The description is small; everything in it is checked where it is used. The extension checks the
arguments of the steps as it checks those of the planner, and reads the parts into its own memory or maps the file.
"""

from __future__ import annotations

import json
import os
import stat
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, BinaryIO

import numpy as np

from tpuconvert.runtime.native.call_record import ELEMENT_TYPES
from tpuconvert.schema.absent_file import absent_file
from tpuconvert.schema.content_digest import Digest
from tpuconvert.schema.errors import CorruptInputError, UsageError
from tpuconvert.schema.json_text import parse_json
from tpuconvert.schema.types import Array

MAGIC = b"TPUPACK\n"
VERSION = 1
HEADER_SIZE = 128
ALIGNMENT = 64
HINT = "make it again with 'tpuconvert prepack', or leave it out"

_LAYOUT = struct.Struct("<8sIIQQQ16s72x")
_MOST_BYTES = 1 << 30
"""Largest size of description and arrays."""


@dataclass(frozen=True)
class Key:
    """The model, engine and instruction set of a file. Packed weights are valid for equal keys only.

    Args:
        model: digest in the header of the model file, in hexadecimal.
        engine: identifies sources and compiler of the extension.
        isa: the instruction set.
    """

    model: str
    engine: str
    isa: str


@dataclass
class PackedFile:
    """An open file. The descriptor is needed until the steps are made.

    Args:
        path: the file, for messages.
        descriptor: of the open file.
        description: see ``packed_plan``.
        arrays: arguments of the steps.
        parts_offset: offset of the packed weights.
        size: of the file, in bytes.
    """

    path: str
    descriptor: int
    description: Mapping[str, Any]
    arrays: list[Array]
    parts_offset: int
    size: int

    @property
    def key(self) -> Key:
        """The key of the file."""
        found = self.description["key"]
        return Key(str(found["model"]), str(found["engine"]), str(found["isa"]))

    def damaged(self, reason: object) -> CorruptInputError:
        """Return the error for content that is not valid."""
        return CorruptInputError(f"the file of packed weights is damaged: {reason}", file=self.path, hint=HINT)

    def close(self) -> None:
        """Close the file."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def part_extent(size: int) -> int:
    """Return the bytes that packed weights occupy in a file."""
    return align(size) + ALIGNMENT


def align(offset: int) -> int:
    """Round up to a multiple of the alignment."""
    return -(-offset // ALIGNMENT) * ALIGNMENT


def write_packed(file: BinaryIO, description: dict[str, Any], arrays: Sequence[Array], parts: Sequence[Array]) -> None:
    """Write a file.

    Args:
        file: new and empty.
        description: the locations of arrays are added to it; offsets of parts are relative to the first one.
        arrays: arguments of the steps.
        parts: packed weights, in the order of their offsets.
    """
    offsets, end = [], 0
    for array in arrays:
        offsets.append(end)
        end = align(end + array.nbytes)
    places = [[at, array.dtype.str, list(array.shape)] for at, array in zip(offsets, arrays, strict=True)]
    text = json.dumps({**description, "arrays": places}, allow_nan=False, separators=(",", ":")).encode()
    text = text.ljust(align(len(text)), b" ")
    body = bytearray(end)
    for array, at in zip(arrays, offsets, strict=True):
        body[at : at + array.nbytes] = np.ascontiguousarray(array).tobytes()
    size = HEADER_SIZE + len(text) + len(body) + sum(part_extent(part.nbytes) for part in parts)
    digest = Digest(text + body).digest()
    file.write(_LAYOUT.pack(MAGIC, VERSION, HEADER_SIZE, size, len(text), len(body), digest))
    file.write(text)
    file.write(body)
    for part in parts:
        file.write(part.data)
        file.write(bytes(part_extent(part.nbytes) - part.nbytes))


def open_packed(path: str | os.PathLike[str]) -> PackedFile:
    """Open a file and read its description and arrays.

    Raises:
        UsageError: it does not exist, or cannot be read.
        CorruptInputError: it is damaged, or no such file.
    """
    name = os.fspath(path)
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        raise absent_file(path) from None
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot be read: {getattr(error, 'strerror', error)}", file=name) from error
    found = PackedFile(name, descriptor, {}, [], 0, 0)
    try:
        _read(found)
    except OSError as error:
        found.close()
        raise UsageError(f"cannot be read: {error.strerror}", file=name) from error
    except BaseException:
        found.close()
        raise
    return found


def _read(found: PackedFile) -> None:
    status = os.fstat(found.descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise UsageError("it is a folder or a device, not a file of packed weights", file=found.path)
    start = os.pread(found.descriptor, HEADER_SIZE, 0)
    if not start.startswith(MAGIC) or len(start) != HEADER_SIZE:
        raise CorruptInputError("this is not a file of packed weights", file=found.path, hint=HINT)
    _, version, header, size, text_size, array_size, digest = _LAYOUT.unpack(start)
    if version != VERSION:
        raise found.damaged(f"its format version {version} is not {VERSION}")
    found.parts_offset, found.size = HEADER_SIZE + text_size + array_size, size
    if header != HEADER_SIZE or size != status.st_size or found.parts_offset > size:
        raise found.damaged(f"its header does not describe a file of {status.st_size} bytes")
    if text_size + array_size > _MOST_BYTES or text_size % ALIGNMENT or array_size % ALIGNMENT:
        raise found.damaged("its header has impossible sizes")
    memory = _allocate(text_size + array_size)
    if os.preadv(found.descriptor, [memory.data], HEADER_SIZE) != len(memory):
        raise found.damaged("it was truncated while it was read")
    if Digest(memory.data).digest() != digest:
        raise found.damaged("its digest differs from the one in its header: some bytes were changed")
    try:
        found.description = parse_json(memory[:text_size].tobytes().decode(), parse_constant=_no_constant)
        body = memory[text_size:]
        body.flags.writeable = False
        found.arrays = [_array(body, *place) for place in found.description["arrays"]]
        _ = found.key
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise found.damaged(f"its description contradicts itself ({error})") from error


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _allocate(size: int) -> Array:
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size]


def _array(body: Array, offset: int, dtype: str, shape: list[int]) -> Array:
    if dtype not in ELEMENT_TYPES or not all(type(extent) is int and extent >= 0 for extent in (offset, *shape)):
        raise ValueError("an array of an unknown type or shape")
    size = prod(shape) * np.dtype(dtype).itemsize
    if offset % ALIGNMENT or offset + size > len(body):
        raise ValueError("an array is outside of the file")
    return np.ndarray(tuple(shape), np.dtype(dtype), body, offset) if size else np.empty(tuple(shape), np.dtype(dtype))
