"""Write named tuples as FlatBuffers tables.

The builder of the flatbuffers package is not used because equal models must give equal files, and its layout differs
between releases. (Release 24.3.25 also shares one vtable between tables of different sizes.)

A buffer grows from its end to its start, because a table may only refer to later bytes. Positions inside the writer are
distances from the end of the buffer, which do not change when data are prepended.

Source: FlatBuffers internals, https://flatbuffers.dev/internals/
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tpuconvert.schema.file.flatbuffer_schema import SCALAR_CODES, Field, Kind, Schema
from tpuconvert.schema.types import Array

MAX_SIZE = (1 << 31) - 1
"""Largest size of a buffer in bytes, because offsets to vtables are signed 32-bit integers."""

OFFSET = "O"
"""Code of a slot that refers to a string, a vector or a table."""

_SIZES = {OFFSET: 4, **{code: struct.calcsize("<" + code) for code in SCALAR_CODES.values()}}

Slot = tuple[int, str, int | float | bool]
"""Index in the vtable, format code (a character of the ``struct`` module, or ``OFFSET``), and default of a field.

A value that equals the default is not stored."""


_Write = Callable[[Any], int | float | bool]
"""Function that writes a string, vector or table and returns its position, which the referring table stores."""


@dataclass(frozen=True, eq=False)
class _Layout:
    """Positions of the stored fields of a table.

    Attributes:
        vtable: bytes of the vtable.
        size: size of the table in bytes.
        alignment: alignment of its widest field.
        pack: returns the bytes of the table, given the distance to the vtable and the values.
        offsets: for each stored field, its position in the table if it is an offset field, otherwise 0.
    """

    vtable: bytes
    size: int
    alignment: int
    pack: Callable[..., bytes]
    offsets: tuple[int, ...]


class TableForm:
    """Slots of one table type in memory order. A layout is computed once for each set of stored fields."""

    def __init__(self, *slots: Slot) -> None:
        self._slots = slots
        self._floats = tuple(index for index, (_, code, _) in enumerate(slots) if code in "fd")
        self.defaults = tuple(default for *_, default in slots)
        self._layouts: dict[tuple[bool, ...], _Layout] = {}

    def layout(self, values: Sequence[int | float | bool]) -> tuple[tuple[bool, ...], _Layout]:
        """Return which values are stored (not equal to the default), and the layout of a table with these values."""
        stored = tuple(map(operator.ne, values, self.defaults))
        for index in self._floats:  # compare signs: -0.0 equals 0.0, but must be stored
            if not stored[index] and math.copysign(1.0, values[index]) != math.copysign(1.0, self.defaults[index]):
                stored = (*stored[:index], True, *stored[index + 1 :])
        cached = self._layouts.get(stored)
        if cached is None:
            cached = self._layouts[stored] = self._make_layout(list(itertools.compress(self._slots, stored)))
        return stored, cached

    def _make_layout(self, slots: list[Slot]) -> _Layout:
        position, alignment, codes = 4, 4, "<i"
        offsets: dict[int, int] = {}
        for slot, code, _ in slots:
            size = _SIZES[code]
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
    """Writer of one buffer. Every method returns the position of the data that it wrote, or 0 if it wrote nothing.

    Args:
        schema: schema of the rows. The class of a row has the name of its table, and all fields of the table. The
            class of its value determines the tag of a union.
        alignments: alignment in bytes of vectors of scalars, by table and field, where it is larger than the
            alignment of an element.
    """

    def __init__(self, schema: Schema, alignments: Mapping[tuple[str, str], int] | None = None) -> None:
        self._schema = schema
        self._alignments = dict(alignments or {})
        self._alignment = max(8, *self._alignments.values()) if self._alignments else 8
        self._forms: dict[type, tuple[TableForm, list[tuple[int, _Write | None]]]] = {}
        self._parts: list[bytes] = []  # chunks of the buffer, from its end to its start
        self._size = 0
        self._strings: dict[str, int] = {}
        self._vtables: dict[bytes, int] = {}

    def _prepend(self, data: bytes, alignment: int, after: int = 0) -> int:
        """Prepend ``data`` so that its byte at ``after`` is aligned."""
        size = self._size + len(data)
        padding = -(size - after) % alignment
        self._parts.append(data + bytes(padding) if padding else data)
        self._size = size = size + padding
        if size > MAX_SIZE:
            raise OverflowError(f"more than {MAX_SIZE} bytes in one FlatBuffers buffer")
        return size

    def string(self, text: str) -> int:
        """Write a string. Equal strings are written once.

        Raises:
            ValueError: the text is not valid Unicode.
        """
        position = self._strings.get(text)
        if position is None:
            encoded = text.encode()
            position = self._prepend(struct.pack("<I", len(encoded)) + encoded + b"\0", 4)
            self._strings[text] = position
        return position

    def scalars(self, code: str, items: Sequence[int | float] | Array, alignment: int = 4) -> int:
        """Write a vector of scalars, aligned to at least ``alignment`` bytes; an empty vector is not stored."""
        count = len(items)
        if not count:
            return 0
        if isinstance(items, np.ndarray):
            data = struct.pack("<I", count) + items.astype("<" + code).tobytes()
        else:
            data = struct.pack(f"<I{count}{code}", count, *items)
        return self._prepend(data, max(_SIZES[code], alignment), after=4)

    def offsets(self, places: Sequence[int]) -> int:
        """Write a vector of strings or tables, given their positions; an empty vector is not stored."""
        if not places:
            return 0
        size = 4 + 4 * len(places)
        start = self._size + (-self._size % 4) + size
        relative = (start - 4 - 4 * index - position for index, position in enumerate(places))
        return self._prepend(struct.pack(f"<{len(places) + 1}I", len(places), *relative), 4)

    def table(self, form: TableForm, *values: int | float | bool) -> int:
        """Write a table. ``values`` are the values of the slots of ``form``, which are positions for offset slots."""
        stored, layout = form.layout(values)
        vtable = self._vtables.get(layout.vtable)
        if vtable is None:  # equal vtables are written once
            vtable = self._vtables[layout.vtable] = self._prepend(layout.vtable, 2)
        position = self._size + (-(self._size + layout.size) % layout.alignment) + layout.size
        fields = [
            position - offset - value if offset else value
            for value, offset in zip(itertools.compress(values, stored), layout.offsets, strict=True)
        ]
        return self._prepend(layout.pack(vtable - position, *fields), layout.alignment)

    def row(self, row: Any) -> int:
        """Write a named tuple and everything below it."""
        if type(row) not in self._forms:
            self._forms[type(row)] = self._make_form(type(row))
        form, fields = self._forms[type(row)]
        return self.table(form, *[write(row[index]) if write else row[index] for index, write in fields])

    def _make_form(self, row_type: Any) -> tuple[TableForm, list[tuple[int, _Write | None]]]:
        """Return the form of a table and, for each of its slots, the index in the tuple and the writing function."""

        def code(field: Field) -> str:
            return SCALAR_CODES[field.type] if field.kind is Kind.SCALAR else OFFSET

        table = row_type.__name__
        fields = sorted(self._schema.tables[table].fields, key=lambda field: -_SIZES[code(field)])
        slots = [(field.slot, code(field), field.default) for field in fields]
        writes = [(row_type._fields.index(field.name), self._write_of(table, field)) for field in fields]
        for field in fields:
            if field.kind is Kind.UNION:  # one byte, so it is the last in the order of sizes
                slots.append((field.slot - 1, SCALAR_CODES["u8"], 0))
                writes.append((row_type._fields.index(field.name), functools.partial(self._tag, field.type)))
        return TableForm(*slots), writes

    def _tag(self, union: str, value: Any) -> int:
        """Return the tag of the value of a union; 0 for a union that is not stored."""
        return 0 if value is None else 1 + self._schema.unions[union].index(type(value).__name__)

    def _write_of(self, table: str, field: Field) -> _Write | None:
        """Return the function that writes a field; None for a scalar, which is stored in the table itself."""
        if field.kind is Kind.SCALAR:
            return None
        if field.kind is Kind.SCALAR_VECTOR:
            alignment = self._alignments.get((table, field.name), 4)
            return functools.partial(self.scalars, SCALAR_CODES[field.type], alignment=alignment)
        if field.kind is Kind.UNION:  # a table without fields is an empty tuple, but not an absent one
            return lambda value: 0 if value is None else self.row(value)
        write: Callable[[Any], int] = self.string if field.kind in (Kind.STRING, Kind.STRING_VECTOR) else self.row
        if field.kind in (Kind.STRING_VECTOR, Kind.TABLE_VECTOR):
            return lambda items: self.offsets(list(map(write, items)))
        return write if field.required else lambda value: write(value) if value else 0

    def finish(self, root: int, identifier: bytes) -> bytes:
        """Return the whole buffer. Its size is a multiple of the largest alignment, at least 8."""
        total = self._size + 8 + (-(self._size + 8) % self._alignment)
        self._prepend(struct.pack("<I4s", total - root, identifier), self._alignment)
        return b"".join(reversed(self._parts))
