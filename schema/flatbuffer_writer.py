"""Writing FlatBuffers tables; what the generated classes pack themselves with.

Not the builder of the flatbuffers package: its layout differs between releases, and the same model shall give the same
bytes wherever it is written. (Release 24.3.25 also lets tables of different sizes share a vtable.)

A buffer grows from its end to its start, because a table may only refer to what stands behind it. Inside the writer
a place is counted from the end of the buffer; it does not move when more is put in front.

Source: FlatBuffers internals, https://flatbuffers.dev/internals/
"""

from __future__ import annotations

import itertools
import math
import operator
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

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

Slot = tuple[int, str, int | float | bool]
"""Place in the schema, code (a letter of the struct module, or ``OFFSET``), default: not stored when equal."""


@dataclass(frozen=True, eq=False)
class _Layout:
    """Where the stored fields of a table lie.

    Attributes:
        vtable: as it is written.
        size: of the table, in bytes.
        alignment: of its widest field.
        pack: makes the table of the distance to the vtable and the values.
        offsets: for every stored field where it lies, 0 for one that holds its value itself.
    """

    vtable: bytes
    size: int
    alignment: int
    pack: Callable[..., bytes]
    offsets: tuple[int, ...]


class TableForm:
    """The slots of one kind of table, in the order in which its fields are laid out.

    Which of them are stored differs from table to table; what follows from that is computed once.
    """

    def __init__(self, *slots: Slot) -> None:
        self._slots = slots
        self._reals = tuple(index for index, (_, code, _) in enumerate(slots) if code in "fd")
        self.defaults = tuple(default for *_, default in slots)
        self._layouts: dict[tuple[bool, ...], _Layout] = {}

    def layout(self, values: Sequence[int | float | bool]) -> tuple[tuple[bool, ...], _Layout]:
        """Which of these values are stored, and where."""
        stored = tuple(map(operator.ne, values, self.defaults))
        for index in self._reals:  # bits are compared: -0.0 equals 0.0, but is another value
            if not stored[index] and math.copysign(1.0, values[index]) != math.copysign(1.0, self.defaults[index]):
                stored = (*stored[:index], True, *stored[index + 1 :])
        known = self._layouts.get(stored)
        if known is None:
            known = self._layouts[stored] = self._laid_out(list(itertools.compress(self._slots, stored)))
        return stored, known

    def _laid_out(self, slots: list[Slot]) -> _Layout:
        position, alignment, codes = 4, 4, "<i"
        offsets: dict[int, int] = {}
        for slot, code, _ in slots:
            size = 4 if code == OFFSET else _LAYOUTS[code].size
            padding = -position % size
            codes += f"{padding}x{'I' if code == OFFSET else code}"
            offsets[slot] = position + padding
            position += padding + size
            alignment = max(alignment, size)
        entries = [offsets.get(slot, 0) for slot in range(1 + max(offsets, default=-1))]
        vtable = struct.pack(f"<{len(entries) + 2}H", 4 + 2 * len(entries), position, *entries)
        places = tuple(offsets[slot] if code == OFFSET else 0 for slot, code, _ in slots)
        return _Layout(vtable, position, alignment, struct.Struct(codes).pack, places)


class FlatBufferWriter:
    """Writes one buffer. Every method returns the place of what it wrote, 0 for nothing."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []  # from the end of the buffer to its start
        self._size = 0
        self._strings: dict[str, int] = {}
        self._vtables: dict[bytes, int] = {}

    def _prepend(self, data: bytes, alignment: int, after: int = 0) -> int:
        """Put ``data`` in front, with the byte at ``after`` in it aligned."""
        size = self._size + len(data)
        padding = -(size - after) % alignment
        self._parts.append(data + bytes(padding) if padding else data)
        self._size = size = size + padding
        if size > MAX_SIZE:
            raise OverflowError(f"more than {MAX_SIZE} bytes in one FlatBuffers buffer")
        return size

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

    def table(self, form: TableForm, *values: int | float | bool) -> int:
        """A table, with the values of its slots in the order of the form; of what it refers to, the place."""
        stored, layout = form.layout(values)
        vtable = self._vtables.get(layout.vtable)
        if vtable is None:  # the same one is written once
            vtable = self._vtables[layout.vtable] = self._prepend(layout.vtable, 2)
        place = self._size + (-(self._size + layout.size) % layout.alignment) + layout.size
        fields = [
            place - offset - value if offset else value
            for value, offset in zip(itertools.compress(values, stored), layout.offsets, strict=True)
        ]
        return self._prepend(layout.pack(vtable - place, *fields), layout.alignment)

    def finish(self, root: int, identifier: bytes) -> bytes:
        """The whole buffer: its size is a multiple of eight, which makes all alignments hold."""
        total = self._size + 8 + (-(self._size + 8) % 8)
        self._prepend(struct.pack("<I4s", total - root, identifier), 8)
        return b"".join(reversed(self._parts))
