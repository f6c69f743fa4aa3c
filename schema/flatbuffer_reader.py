"""Read a FlatBuffers file into named tuples, after the verifier has checked it.

Source: FlatBuffers internals, https://flatbuffers.dev/internals/
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tpuconvert.schema.array_fields import LONG
from tpuconvert.schema.flatbuffer_schema import SCALAR_CODES, Field, Kind, Schema, Table
from tpuconvert.schema.flatbuffer_verifier import Limits, verify
from tpuconvert.schema.types import Array

_U32 = struct.Struct("<I").unpack_from
_I32 = struct.Struct("<i").unpack_from
_ARRAY_TYPES = {"i64": "<i8", "u64": "<u8", "f64": "<f8"}


def read(
    buffer: memoryview,
    schema: Schema,
    root: str,
    identifier: bytes,
    rows: Mapping[str, Any],
    enums: Mapping[tuple[str, str], type[enum.IntEnum]] | None = None,
    limits: Limits | None = None,
    *,
    allow_unknown_union_tags: bool = False,
) -> Any:
    """Verify a buffer and return its root table with everything below it. The result does not refer to the buffer.

    Args:
        buffer: the whole file.
        schema: description of the tables.
        root: name of the root table.
        identifier: the four bytes at offset 4.
        rows: a named tuple class per table. Fields of the table that the class lacks are not read; fields that are not
            stored take the default of the class. Vectors are tuples; long vectors of 64-bit numbers are arrays.
        enums: the enum of a scalar field, by table and field name.
        limits: of the verifier. The default allows one visit per byte: every visit follows an offset of four bytes, so
            a buffer without shared tables needs fewer.
        allow_unknown_union_tags: read a union with an unknown tag as a union that is not stored.

    Raises:
        FlatBufferError: the buffer is not valid.
        ValueError: an enum has no member of a stored number, or the parts that are read overlap.
    """
    verify(
        buffer,
        schema,
        root,
        identifier,
        limits or Limits(max_visits=len(buffer)),
        allow_unknown_union_tags=allow_unknown_union_tags,
        check_utf8=True,
    )
    reader = _Reader(bytes(buffer), schema, rows, enums or {})
    return reader.table(reader.target(0), schema.tables[root])


class _Layout(NamedTuple):
    """Size and class of all tables with one vtable, and a function per stored field: table position to value."""

    size: int
    row: Callable[..., Any]
    fields: tuple[tuple[str, Callable[[int], Any]], ...]


class _Reader:
    """Read the tables of one verified buffer.

    The sizes of all tables, strings and vectors that are read must not exceed the size of the buffer, where a string
    counts once. Otherwise a hostile file could refer to one long vector from thousands of tables and exhaust the
    memory. A valid writer shares only strings and vtables.
    """

    def __init__(
        self,
        content: bytes,
        schema: Schema,
        rows: Mapping[str, Any],
        enums: Mapping[tuple[str, str], type[enum.IntEnum]],
    ) -> None:
        self._content = content
        self._bytes_left = len(content)
        self._schema = schema
        self._rows = rows
        self._enums = enums
        self._strings: dict[int, str] = {}
        self._layouts: dict[tuple[int, str], _Layout] = {}

    def target(self, position: int) -> int:
        """Follow the offset at ``position``."""
        return position + int(_U32(self._content, position)[0])

    def table(self, position: int, table: Table) -> Any:
        """Read the table at ``position``."""
        vtable = position - int(_I32(self._content, position)[0])
        layout = self._layouts.get((vtable, table.name))
        if layout is None:
            layout = self._layouts[vtable, table.name] = self._layout(vtable, table)
        self._spend(layout.size)
        return layout.row(**{name: read_field(position) for name, read_field in layout.fields})

    def _layout(self, vtable: int, table: Table) -> _Layout:
        row = self._rows[table.name]
        vtable_size, table_size = struct.unpack_from("<HH", self._content, vtable)
        offsets = struct.unpack_from(f"<{vtable_size // 2 - 2}H", self._content, vtable + 4)
        stored = [
            (field.name, self._field_reader(table, field, offsets))
            for field in table.fields
            if field.name in row._fields and field.slot < len(offsets) and offsets[field.slot]
        ]
        return _Layout(table_size, row, tuple(stored))

    def _field_reader(self, table: Table, field: Field, offsets: Sequence[int]) -> Callable[[int], Any]:
        """Return the function that reads a field. ``offsets`` are the positions in the table, by slot."""
        content, offset = self._content, offsets[field.slot]
        if field.kind is Kind.SCALAR:
            unpack = struct.Struct("<" + SCALAR_CODES[field.type]).unpack_from
            members = self._enums.get((table.name, field.name))
            if members is not None:
                return lambda position: members(unpack(content, position + offset)[0])
            return lambda position: unpack(content, position + offset)[0]
        if field.kind is Kind.UNION:
            tag_offset = offsets[field.slot - 1]
            return lambda position: self._union(
                field, position + offset, content[position + tag_offset] if tag_offset else 0
            )
        read_target = self._target_reader(field)
        return lambda position: read_target(self.target(position + offset))

    def _target_reader(self, field: Field) -> Callable[[int], Any]:
        """Return the function that reads what the offset of a field leads to."""
        if field.kind is Kind.STRING:
            return self._string
        if field.kind is Kind.SCALAR_VECTOR:
            return lambda start: self._scalars(start, field)
        if field.kind is Kind.STRING_VECTOR:
            return lambda start: tuple(map(self._string, self._targets(start)))
        table = self._schema.tables[field.type]
        if field.kind is Kind.TABLE:
            return lambda start: self.table(start, table)
        assert field.kind is Kind.TABLE_VECTOR, f"structs are not read: {field.name}"
        return lambda start: tuple([self.table(position, table) for position in self._targets(start)])

    def _union(self, field: Field, position: int, tag: int) -> Any:
        members = self._schema.unions[field.type]
        if not 0 < tag <= len(members):
            return None
        return self.table(self.target(position), self._schema.tables[members[tag - 1]])

    def _spend(self, size: int) -> None:
        self._bytes_left -= size
        if self._bytes_left < 0:
            raise ValueError("parts of the metadata overlap")

    def _string(self, start: int) -> str:
        known = self._strings.get(start)
        if known is None:
            size = _U32(self._content, start)[0]
            self._spend(size)
            known = self._strings[start] = self._content[start + 4 : start + 4 + size].decode()
        return known

    def _scalars(self, start: int, field: Field) -> tuple[Any, ...] | Array:
        count = _U32(self._content, start)[0]
        self._spend(count * field.size)
        if count > LONG and field.type in _ARRAY_TYPES:
            return np.frombuffer(self._content, _ARRAY_TYPES[field.type], count, start + 4)
        return struct.unpack_from(f"<{count}{SCALAR_CODES[field.type]}", self._content, start + 4)

    def _targets(self, start: int) -> list[int]:
        """Follow the offsets of the vector at ``start``."""
        count = _U32(self._content, start)[0]
        self._spend(4 * count)
        offsets = struct.unpack_from(f"<{count}I", self._content, start + 4)
        return [start + 4 + 4 * index + offset for index, offset in enumerate(offsets)]
