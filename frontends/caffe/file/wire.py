"""Read protobuf's wire format field by field, without message types.

A weight file has hundreds of megabytes of floats and few other fields, and Caffe forks use the same field number for
different layer parameters. Reading only the needed fields is faster than parsing messages, copies nothing, and avoids
these conflicts. Every length is checked against the remaining bytes before it is used.
"""

from collections.abc import Iterator

import numpy as np

from tpuconvert.schema.types import Array

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_MOST_VARINT_BYTES = 10
_FIRST_WINDOW = 16


class WireError(Exception):
    """The bytes are not a protobuf message."""


class AmbiguousWireError(WireError):
    """A value is stored twice."""


Field = tuple[int, int, int, memoryview]
"""Field number, wire type, value of a VARINT (otherwise 0), and bytes of other wire types (empty for a VARINT)."""

_NOTHING = memoryview(b"")


def read_varint(data: memoryview, position: int) -> tuple[int, int]:
    """Read an unsigned integer; return it and the position after it.

    Raises:
        WireError: the data end before the integer does, or it has more than 64 bits.

    """
    value = 0
    for count in range(_MOST_VARINT_BYTES):
        if position >= len(data):
            raise WireError(f"the data end inside a number at byte {position}")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            if value >> 64:
                break
            return value, position
    raise WireError(f"a number of more than 64 bits at byte {position}")


def read_fields(data: memoryview) -> Iterator[Field]:
    """Yield the fields of one message in file order; consecutive unpacked 32-bit values of a field are one BYTES field.

    Raises:
        WireError: a field extends beyond the data, or its number or wire type is invalid.

    """
    position = 0
    while position < len(data):
        start = position
        tag, position = read_varint(data, position)
        number, kind = tag >> 3, tag & 7
        if not 0 < number < 1 << 29:
            raise WireError(f"field number {number} at byte {start}")
        if kind == VARINT:
            value, position = read_varint(data, position)
            yield number, kind, value, _NOTHING
            continue
        if kind == FIXED32 and position == start + 1:
            run = _run_length(data, start)
            packed = np.frombuffer(data, np.uint8, run * 5, start).reshape(run, 5)[:, 1:]
            position = start + 5 * run
            yield number, BYTES, 0, memoryview(packed.tobytes())
            continue
        if kind == BYTES:
            length, position = read_varint(data, position)
        elif kind in (FIXED32, FIXED64):
            length = 4 if kind == FIXED32 else 8
        else:
            raise WireError(f"wire type {kind} at byte {start}")
        if length > len(data) - position:
            missing = length - (len(data) - position)
            raise WireError(f"{missing} bytes are missing at the end of field {number} (byte {start})")
        yield number, kind, 0, data[position : position + length]
        position += length


def _run_length(data: memoryview, start: int) -> int:
    """Number of consecutive 32-bit fields with the same one-byte tag."""
    max_fields = (len(data) - start) // 5
    if max_fields == 0:
        raise WireError(f"the data end inside field {data[start] >> 3} (byte {start})")
    window = _FIRST_WINDOW
    while True:  # compare in growing windows: scanning the whole file for each short run would take quadratic time
        tags = np.frombuffer(data, np.uint8, min(window, max_fields) * 5, start)[::5]
        different = np.flatnonzero(tags != data[start])
        if len(different):
            return int(different[0])
        if window >= max_fields:
            return max_fields
        window *= 4


def read_varints(data: memoryview) -> list[int]:
    """Integers of a packed field, as signed 64-bit values."""
    values, position = [], 0
    while position < len(data):
        value, position = read_varint(data, position)
        values.append(value - (1 << 64) if value >> 63 else value)
    return values


def read_array(pieces: list[memoryview], dtype: str) -> Array:
    """Little-endian elements of a packed field, which may be stored in several pieces.

    Raises:
        WireError: the length of a piece is not a multiple of the element size.

    """
    size = np.dtype(dtype).itemsize
    for piece in pieces:
        if len(piece) % size:
            raise WireError(f"{len(piece)} bytes do not hold elements of {size} bytes")
    arrays = [np.frombuffer(piece, dtype) for piece in pieces]
    return np.concatenate(arrays) if arrays else np.empty(0, dtype)
