"""Replace large tensors of an ONNX file by references before protobuf parses it, so that their bytes are not copied.

protobuf copies every tensor when it parses, and again when ``raw_data`` is read. This module scans the file down to its
initializers and replaces a large ``raw_data`` by external data with the offset in the model file itself. The location
is ``OWN_FILE``, which cannot be the name of a file. All other bytes, and tensors with an unusual encoding, are passed
to protobuf unchanged.

Source: https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

from collections.abc import Callable

Pieces = list[bytes | memoryview]
"""Consecutive parts of an encoded message."""

Shortener = Callable[[memoryview, int, int], Pieces]
"""Function that shortens a message, given the file and the offsets of the message's begin and end."""

OWN_FILE = "\0"
"""Location of external data in the model file itself. It is harmless if a file contains this location already."""

LEAST_BYTES = 1 << 12
"""Smallest data that are replaced by a reference; copying is faster for smaller ones."""

_GRAPH = 7  # field of ModelProto
_INITIALIZER = 5  # field of GraphProto
_RAW_DATA, _EXTERNAL_DATA, _DATA_LOCATION = 9, 13, 14  # fields of TensorProto
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_LONGEST_VARINT = 10


class _UnusualError(Exception):
    """The encoding is not supported by this module, so that protobuf has to parse the original bytes."""


def without_raw_data(file: memoryview) -> bytes | memoryview:
    """Return the file with references in place of large raw data, or the file itself if it cannot be scanned."""
    try:
        return b"".join(_parts(file, 0, len(file), _GRAPH, _graph))
    except (_UnusualError, IndexError):
        return file


def _graph(file: memoryview, start: int, end: int) -> Pieces:
    return _parts(file, start, end, _INITIALIZER, _tensor)


def _parts(file: memoryview, start: int, end: int, field: int, shorten: Shortener) -> Pieces:
    """Return a message with all submessages of one field shortened."""
    parts: Pieces = []
    copied = position = start
    field_tag = field << 3 | _BYTES
    while position < end:
        tag_at = position
        tag, value_at, position = _field(file, position, end)
        if tag == field_tag and position - value_at >= LEAST_BYTES:
            inner = shorten(file, value_at, position)
            length = sum(map(len, inner))
            parts += (file[copied:tag_at], _varint(tag), _varint(length), *inner)
            copied = position
    parts.append(file[copied:end])
    return parts


def _tensor(file: memoryview, start: int, end: int) -> Pieces:
    """Return a tensor with a reference in place of its raw data, if it is large and has the usual encoding."""
    position = start
    raw: tuple[int, int, int] | None = None
    while position < end:
        tag_at = position
        tag, value_at, position = _field(file, position, end)
        if tag >> 3 in (_EXTERNAL_DATA, _DATA_LOCATION) or (tag >> 3 == _RAW_DATA and raw is not None):
            return [file[start:end]]
        if tag == _RAW_DATA << 3 | _BYTES:
            raw = tag_at, value_at, position
    if raw is None or raw[2] - raw[1] < LEAST_BYTES:
        return [file[start:end]]
    tag_at, value_at, after = raw
    reference = _entry("offset", str(value_at)) + _entry("length", str(after - value_at))
    return [file[start:tag_at], _IN_OWN_FILE, reference, file[after:end]]


def _field(file: memoryview, position: int, end: int) -> tuple[int, int, int]:
    """Return the tag of the field at a position, and the offsets where its value begins (after the length) and ends."""
    tag, position = _read_varint(file, position)
    kind = tag & 7
    after = position
    if kind == _BYTES:
        length, position = _read_varint(file, position)
        after = position + length
    elif kind == _VARINT:
        _, after = _read_varint(file, position)
    elif kind in (_FIXED64, _FIXED32):
        after = position + (8 if kind == _FIXED64 else 4)
    else:
        raise _UnusualError
    if after > end or tag >> 3 == 0:
        raise _UnusualError
    return tag, position, after


def _read_varint(file: memoryview, position: int) -> tuple[int, int]:
    value = 0
    for index in range(_LONGEST_VARINT):
        byte = file[position + index]
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value, position + index + 1
    raise _UnusualError


def _varint(value: int) -> bytes:
    data = bytearray()
    while value >= 0x80:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    data.append(value)
    return bytes(data)


def _entry(key: str, value: str) -> bytes:
    """Encode one entry of ``external_data``: a message with two strings of less than 60 bytes each."""
    content = b"\n%c%b\x12%c%b" % (len(key), key.encode(), len(value), value.encode())  # key: field 1, value: field 2
    return b"%c%c%b" % (_EXTERNAL_DATA << 3 | _BYTES, len(content), content)


_IN_OWN_FILE = _entry("location", OWN_FILE) + bytes((_DATA_LOCATION << 3 | _VARINT, 1))
"""Encoded fields of TensorProto that declare external data, with the model file as their location."""
