"""Read the options of custom operators: the numbers in a FlexBuffers map.

The bytes are untrusted, so every offset is checked. Values other than numbers are skipped.

Source: FlexBuffers, https://flatbuffers.dev/internals/#flexbuffers
"""

from __future__ import annotations

import struct

_MAP, _BOOL = 9, 26
_CODES = {1: "bhiq", 2: "BHIQ", 3: "?efd", _BOOL: "BHIQ"}
"""``struct`` format codes for widths of 1, 2, 4 and 8 bytes, by FlexBuffers type: signed, unsigned, float, Boolean."""

_MOST_ENTRIES = 256
_MOST_KEY_BYTES = 256


def read_numbers(data: bytes) -> dict[str, int | float]:
    """Read the numbers of a map by key.

    Raises:
        ValueError: the bytes are not a map, or an offset is outside them.
    """
    if len(data) < 3:
        raise ValueError(f"{len(data)} bytes are not a map")
    packed, width = data[-2], data[-1]
    if packed >> 2 != _MAP or width not in (1, 2, 4, 8):
        raise ValueError("the options are not a map of numbers")
    start = _target(data, len(data) - 2 - width, width)
    own = 1 << (packed & 3)
    count = _read_unsigned(data, start - own, own)
    if count > _MOST_ENTRIES:
        raise ValueError(f"a map of {count} entries")
    keys, key_width = _target(data, start - 3 * own, own), _read_unsigned(data, start - 2 * own, own)
    if key_width not in (1, 2, 4, 8):
        raise ValueError(f"keys of {key_width} bytes")
    numbers: dict[str, int | float] = {}
    for index in range(count):
        name = _key(data, _target(data, keys + index * key_width, key_width))
        kind = _read_unsigned(data, start + count * own + index, 1)
        codes = _CODES.get(kind >> 2)
        code = "" if codes is None else codes[own.bit_length() - 1]
        if code and code != "?":
            numbers[name] = struct.unpack_from(f"<{code}", data, _inside(data, start + index * own, own))[0]
    return numbers


def _inside(data: bytes, position: int, size: int) -> int:
    if position < 0 or position + size > len(data):
        raise ValueError(f"byte {position} of {len(data)}")
    return position


def _read_unsigned(data: bytes, position: int, width: int) -> int:
    return int.from_bytes(data[_inside(data, position, width) : position + width], "little")


def _target(data: bytes, position: int, width: int) -> int:
    """Position to which the backward offset at ``position`` points."""
    return _inside(data, position - _read_unsigned(data, position, width), 1)


def _key(data: bytes, position: int) -> str:
    end = data.find(b"\0", position, position + _MOST_KEY_BYTES)
    if end < 0:
        raise ValueError("a name without an end")
    return data[position:end].decode("utf-8")
