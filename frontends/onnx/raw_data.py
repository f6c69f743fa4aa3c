"""Takes large tensors out of an ONNX file before protobuf sees it, so that their bytes are never copied.

Protobuf copies every tensor when it parses, and once more when it is asked for. Here the file is walked as far as its
initializers, and of those that store much in ``raw_data`` only a reference to the place in the file is left, written as
external data in the file ``OWN_FILE``, a name that no file system knows. Everything else, and whatever looks
unusual, stays as it is for protobuf to judge.

Source: https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

from collections.abc import Callable

Pieces = list[bytes | memoryview]
"""A message that is to be joined."""

Shortener = Callable[[memoryview, int, int], Pieces]
"""Gives the pieces of the shorter form of a message that lies between two bytes of a file."""

OWN_FILE = "\0"
"""Location of external data that lie in the model file itself. One that a model states itself gets the same bytes."""

LEAST_BYTES = 1 << 12
"""Shorter data are copied faster than they are referred to."""

_GRAPH = 7  # of ModelProto
_INITIALIZER = 5  # of GraphProto
_RAW_DATA, _EXTERNAL_DATA, _DATA_LOCATION = 9, 13, 14  # of TensorProto
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_LONGEST_VARINT = 10


class _UnusualError(Exception):
    """Something that is better left to protobuf."""


def without_raw_data(file: memoryview) -> bytes | memoryview:
    """The file with references in the place of large raw data; the file itself where it cannot be walked."""
    try:
        return b"".join(_parts(file, 0, len(file), _GRAPH, _graph))
    except (_UnusualError, IndexError):
        return file


def _graph(file: memoryview, start: int, end: int) -> Pieces:
    return _parts(file, start, end, _INITIALIZER, _tensor)


def _parts(
    file: memoryview, start: int, end: int, field: int, shortened: Callable[[memoryview, int, int], Pieces]
) -> Pieces:
    """A message with all submessages of one field shortened, as pieces to be joined."""
    parts: Pieces = []
    kept = position = start
    wanted = field << 3 | _BYTES
    while position < end:
        tag_at = position
        tag, value_at, position = _field(file, position, end)
        if tag == wanted and position - value_at >= LEAST_BYTES:
            inner = shortened(file, value_at, position)
            length = sum(map(len, inner))
            parts += (file[kept:tag_at], _varint(tag), _varint(length), *inner)
            kept = position
    parts.append(file[kept:end])
    return parts


def _tensor(file: memoryview, start: int, end: int) -> Pieces:
    """A tensor with a reference in the place of its raw data, if it is large and in no way unusual."""
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
    place = _entry("offset", str(value_at)) + _entry("length", str(after - value_at))
    return [file[start:tag_at], _IN_OWN_FILE, place, file[after:end]]


def _field(file: memoryview, position: int, end: int) -> tuple[int, int, int]:
    """Tag of the field at a position, where its value begins (of one with a length: behind that) and where it ends."""
    tag = file[position]
    position += 1
    if tag >= 0x80:
        tag, position = _read_varint(file, position - 1)
    kind = tag & 7
    after = position
    if kind == _BYTES:
        length = file[position]
        position += 1
        if length >= 0x80:  # else it is the number itself, as tags are: most fields are read without another call
            length, position = _read_varint(file, position - 1)
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
    byte = file[position]
    if byte < 0x80:
        return byte, position + 1
    value = byte & 0x7F
    for place in range(1, _LONGEST_VARINT):
        byte = file[position + place]
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value, position + place + 1
    raise _UnusualError


def _varint(value: int) -> bytes:
    data = bytearray()
    while value >= 0x80:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    data.append(value)
    return bytes(data)


def _entry(key: str, value: str) -> bytes:
    """One entry of ``external_data``: a message with the two strings, each of which has less than 60 bytes."""
    content = b"\n%c%b\x12%c%b" % (len(key), key.encode(), len(value), value.encode())  # the fields 1 and 2
    return b"%c%c%b" % (_EXTERNAL_DATA << 3 | _BYTES, len(content), content)


_IN_OWN_FILE = _entry("location", OWN_FILE) + bytes((_DATA_LOCATION << 3 | _VARINT, 1))
"""Fields of a tensor whose data are external, and lie in the model file."""
