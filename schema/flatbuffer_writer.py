"""Writing FlatBuffers tables; what the generated classes pack themselves with.

Not the builder of the flatbuffers package: its layout differs between releases, and the same model shall give the same
bytes wherever it is written. (Release 24.3.25 also lets tables of different sizes share a vtable.)

A buffer grows from its end to its start, because a table may only refer to what stands behind it. Inside the writer
a place is counted from the end of the buffer; it does not move when more is put in front.

Source: FlatBuffers internals, https://flatbuffers.dev/internals/
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

from tpuconvert.schema.types import Array

MAX_SIZE = (1 << 31) - 1
"""Bytes; offsets to vtables are signed 32-bit numbers."""

OFFSET = "O"
"""The code of a slot that refers to a string, a vector or a table."""

_LAYOUTS = {code: struct.Struct("<" + code) for code in "?bBhHiIqQfd"}

Integers = tuple[int, ...] | Array
Reals = tuple[float, ...] | Array
"""Vectors of 64-bit numbers; long ones that were read are arrays."""

Slot = tuple[int, str, int | float | bool, int | float | bool]
"""Place in the schema, code (a letter of the struct module, or ``OFFSET``), value, default: not stored when equal."""


class FlatBufferWriter:
    """Writes one buffer. Every method returns the place of what it wrote, 0 for nothing."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []  # from the end of the buffer to its start
        self._size = 0
        self._strings: dict[str, int] = {}
        self._vtables: dict[bytes, int] = {}

    def _prepend(self, data: bytes, alignment: int, after: int = 0) -> int:
        """Put ``data`` in front, with the byte at ``after`` in it aligned."""
        padding = -(self._size + len(data) - after) % alignment
        self._parts += (bytes(padding), data)
        self._size += padding + len(data)
        if self._size > MAX_SIZE:
            raise OverflowError(f"more than {MAX_SIZE} bytes in one FlatBuffers buffer")
        return self._size

    def string(self, text: str) -> int:
        """A string. The same one is written once.

        Raises:
            ValueError: when it is not Unicode.
        """
        place = self._strings.get(text)
        if place is None:
            encoded = text.encode()
            place = self._prepend(struct.pack("<I", len(encoded)) + encoded + b"\0", 4)
            self._strings[text] = place
        return place

    def scalars(self, code: str, items: Sequence[int | float] | Array) -> int:
        """A vector of numbers; an empty one is not stored."""
        count = len(items)
        if not count:
            return 0
        if isinstance(items, np.ndarray):
            data = _LAYOUTS["I"].pack(count) + items.astype("<" + code).tobytes()
        else:
            data = struct.pack(f"<I{count}{code}", count, *items)
        return self._prepend(data, max(_LAYOUTS[code].size, 4), after=4)

    def offsets(self, places: Sequence[int]) -> int:
        """A vector of strings or tables; an empty one is not stored."""
        if not places:
            return 0
        size = 4 + 4 * len(places)
        start = self._size + (-self._size % 4) + size
        relative = (start - 4 - 4 * index - place for index, place in enumerate(places))
        return self._prepend(struct.pack(f"<{len(places) + 1}I", len(places), *relative), 4)

    def table(self, slots: Sequence[Slot]) -> int:
        """A table. Its fields are laid out in the order given."""
        stored: list[tuple[int, int, str, int | float | bool]] = []  # slot, offset in the table, code, value
        position, alignment = 4, 4
        for slot, code, value, default in slots:
            if code == OFFSET:
                size, is_default = 4, not value
            else:  # bits are compared: -0.0 equals 0.0, but is another value
                layout = _LAYOUTS[code]
                size, is_default = layout.size, value is default or layout.pack(value) == layout.pack(default)
            if not is_default:
                position += -position % size
                stored.append((slot, position, code, value))
                position += size
                alignment = max(alignment, size)
        vtable = self._vtable(stored, position)
        place = self._size + (-(self._size + position) % alignment) + position
        data = bytearray(position)
        struct.pack_into("<i", data, 0, vtable - place)
        for _, offset, code, value in stored:
            if code == OFFSET:
                _LAYOUTS["I"].pack_into(data, offset, place - offset - int(value))
            else:
                _LAYOUTS[code].pack_into(data, offset, value)
        return self._prepend(bytes(data), alignment)

    def _vtable(self, stored: Sequence[tuple[int, int, str, int | float | bool]], table_size: int) -> int:
        """A vtable. The same one is written once."""
        offsets = {slot: offset for slot, offset, _, _ in stored}
        entries = [offsets.get(slot, 0) for slot in range(1 + max(offsets, default=-1))]
        data = struct.pack(f"<{len(entries) + 2}H", 4 + 2 * len(entries), table_size, *entries)
        place = self._vtables.get(data)
        if place is None:
            place = self._vtables[data] = self._prepend(data, 2)
        return place

    def finish(self, root: int, identifier: bytes) -> bytes:
        """The whole buffer: its size is a multiple of eight, which makes all alignments hold."""
        total = self._size + 8 + (-(self._size + 8) % 8)
        self._prepend(struct.pack("<I4s", total - root, identifier), 8)
        return b"".join(reversed(self._parts))
