"""Bounded verification of a FlatBuffers file against a description of its tables, before any field is read.

The accessors of a FlatBuffers file follow offsets without checks. ``verify`` walks every table that the description
reaches and checks that each offset, vtable, vector and string is inside the buffer, that required fields are present,
and that the walk stays within a depth and a number of visits. It allocates no memory by a size that the file states.
Afterwards accessors of the same tables cannot read outside the buffer.

Source: FlatBuffers internals, https://flatbuffers.dev/internals/
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple

from tpuconvert.schema.flatbuffer_schema import INLINE, Field, Kind, Schema, Table

_U16 = struct.Struct("<H").unpack_from
_U32 = struct.Struct("<I").unpack_from
_I32 = struct.Struct("<i").unpack_from


class FlatBufferError(ValueError):
    """The buffer is not a valid FlatBuffers file of the expected schema.

    Attributes:
        path: where, in the words of the schema, such as ``subgraphs[0].operators[3].inputs``; empty for the file.
        reason: what is wrong there.
        is_limit: the file may be well formed, but it exceeds a limit of the walk.
    """

    def __init__(self, reason: str, path: str = "", *, is_limit: bool = False) -> None:
        super().__init__(f"{path}: {reason}" if path else reason)
        self.reason = reason
        self.path = path
        self.is_limit = is_limit


class Limits(NamedTuple):
    """Limits of a verification.

    Attributes:
        max_depth: nesting of tables.
        max_visits: visited tables, strings and vectors; one that two fields share counts twice.
    """

    max_depth: int = 64
    max_visits: int = 2_000_000


USUAL_LIMITS = Limits()


def verify(
    buffer: bytes | bytearray | memoryview,
    schema: Schema,
    root: str,
    identifier: bytes | None = None,
    limits: Limits = USUAL_LIMITS,
    *,
    check_alignment: bool = True,
    allow_unknown_union_tags: bool = False,
    check_utf8: bool = False,
) -> None:
    """Check that every field which ``schema`` describes can be read within the bounds of ``buffer``.

    Args:
        buffer: the whole file; its first four bytes are the offset of the root table.
        schema: description of the tables.
        root: name of the root table.
        identifier: the four bytes at offset 4, or None when the format has none.
        limits: depth and number of visits.
        check_alignment: whether a value that is not aligned to its size is an error.
        allow_unknown_union_tags: whether a union whose tag is 0 or beyond the description may hold a value (a file of
            a later schema); it is not verified and must not be read. A tag without a value is legal unless the
            field is required.
        check_utf8: whether every string must be valid UTF-8.

    Raises:
        FlatBufferError: the buffer is not valid; the message contains the path of the first error.
    """
    view = memoryview(buffer)
    if view.format != "B" or view.ndim != 1:
        view = view.cast("B")
    end = len(view)
    if end < 8:
        raise FlatBufferError(f"{end} bytes are too few for a FlatBuffers file")
    if identifier is not None and view[4:8] != identifier:
        raise FlatBufferError(f"the file identifier is {bytes(view[4:8])!r}, expected {identifier!r}")
    walk = _Walk(view, schema, limits, check_alignment, allow_unknown_union_tags, check_utf8)
    try:
        walk.table(walk.target(0), schema.tables[root], 1)
    except _Offence as offence:
        path = "".join(reversed(offence.path)).lstrip(".")
        raise FlatBufferError(offence.reason, path, is_limit=offence.is_limit) from None


class _Offence(Exception):
    """The first error. Every level of the walk appends its part of the path, innermost first."""

    def __init__(self, reason: str, *, is_limit: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.is_limit = is_limit
        self.path: list[str] = []


class _Layout(NamedTuple):
    """Checked content of one vtable, shared by all tables with that vtable."""

    size: int
    wide: tuple[tuple[Field, int], ...]  # inline fields aligned to more than the table itself
    followed: tuple[tuple[Field, int], ...]  # fields that are offsets
    tags: Mapping[int, int]  # slot of a union's value -> offset of its tag inside the table, 0 when not stored


class _Walk:
    def __init__(
        self,
        view: memoryview,
        schema: Schema,
        limits: Limits,
        check_alignment: bool,
        allow_unknown_union_tags: bool,
        check_utf8: bool,
    ) -> None:
        self.view = view
        self.end = len(view)
        self.schema = schema
        self.max_depth = limits.max_depth
        self.max_visits = limits.max_visits
        self.visits_left = limits.max_visits
        self.check_alignment = check_alignment
        self.allow_unknown_union_tags = allow_unknown_union_tags
        self.check_utf8 = check_utf8
        self.layouts: dict[tuple[int, str], _Layout] = {}

    def visit(self, count: int) -> None:
        self.visits_left -= count
        if self.visits_left < 0:
            raise _Offence(f"more than {self.max_visits} tables, strings and vectors", is_limit=True)

    def target(self, position: int) -> int:
        """Follow the unsigned offset at ``position`` and check that four bytes can be read at the target."""
        offset: int = _U32(self.view, position)[0]
        target = position + offset
        if offset == 0 or target + 4 > self.end:
            raise _Offence(f"offset {offset} at byte {position} leaves the file of {self.end} bytes")
        if target & 3 and self.check_alignment:
            raise _Offence(f"offset {offset} at byte {position} leads to byte {target}, which is not aligned to 4")
        return target

    def table(self, position: int, table: Table, depth: int) -> None:
        self.visit(1)
        if depth > self.max_depth:
            raise _Offence(f"tables are nested more than {self.max_depth} deep", is_limit=True)
        vtable = position - _I32(self.view, position)[0]
        layout = self.layouts.get((vtable, table.name))
        if layout is None:
            layout = self.layout(vtable, table)
            self.layouts[vtable, table.name] = layout
        if position + layout.size > self.end:
            raise _Offence(f"table of {layout.size} bytes at byte {position} leaves the file of {self.end} bytes")
        for field, offset in layout.wide:
            if (position + offset) % field.alignment and self.check_alignment:
                raise _at(f".{field.name}", f"byte {position + offset} is not aligned to {field.alignment}")
        for field, offset in layout.followed:
            try:
                self.follow(field, position, offset, layout, depth)
            except _Offence as offence:
                offence.path.append(f".{field.name}")
                raise

    def layout(self, vtable: int, table: Table) -> _Layout:
        view = self.view
        if vtable < 0 or vtable + 4 > self.end or (vtable & 1 and self.check_alignment):
            raise _Offence(f"vtable at byte {vtable} is outside the file or not aligned to 2")
        vtable_size: int = _U16(view, vtable)[0]
        table_size: int = _U16(view, vtable + 2)[0]
        if vtable_size < 4 or vtable_size & 1 or vtable + vtable_size > self.end or table_size < 4:
            raise _Offence(f"vtable at byte {vtable} has the sizes {vtable_size} and {table_size}")

        def offset_of(slot: int, size: int, name: str) -> int:
            entry = 4 + 2 * slot
            offset: int = _U16(view, vtable + entry)[0] if entry + 2 <= vtable_size else 0
            if offset and (offset < 4 or offset + size > table_size):
                raise _at(f".{name}", f"offset {offset} lies outside its table of {table_size} bytes")
            return offset

        wide: list[tuple[Field, int]] = []
        followed: list[tuple[Field, int]] = []
        tags: dict[int, int] = {}
        for field in table.fields:
            offset = offset_of(field.slot, field.size if field.kind in INLINE else 4, field.name)
            if field.kind is Kind.UNION:
                tags[field.slot] = offset_of(field.slot - 1, 1, f"{field.name}_type")
            if not offset:
                if field.required:
                    raise _at(f".{field.name}", "required, but missing")
                continue
            if field.kind not in INLINE:
                followed.append((field, offset))
                if offset & 3 and self.check_alignment:
                    raise _at(f".{field.name}", f"offset {offset} in its table is not aligned to 4")
            elif field.alignment > 4:
                wide.append((field, offset))
            elif offset % field.alignment and self.check_alignment:
                raise _at(f".{field.name}", f"offset {offset} in its table is not aligned to {field.alignment}")
        return _Layout(table_size, tuple(wide), tuple(followed), tags)

    def follow(self, field: Field, position: int, offset: int, layout: _Layout, depth: int) -> None:
        kind = field.kind
        if kind is Kind.UNION:
            self.union(field, position, offset, layout.tags[field.slot], depth)
            return
        target = self.target(position + offset)
        if kind is Kind.TABLE:
            self.table(target, self.schema.tables[field.type], depth + 1)
        elif kind is Kind.STRING:
            self.string(target)
        elif kind is Kind.SCALAR_VECTOR or kind is Kind.STRUCT_VECTOR:
            self.vector(target, field.size, field.alignment)
        else:
            self.reference_vector(target, field, depth)

    def union(self, field: Field, position: int, offset: int, tag_offset: int, depth: int) -> None:
        tag = self.view[position + tag_offset] if tag_offset else 0
        members = self.schema.unions[field.type]
        if not 0 < tag <= len(members):
            if self.allow_unknown_union_tags:
                return
            raise _Offence(f"tag {tag} of the union {field.type}, which has the members 1 to {len(members)}")
        self.table(self.target(position + offset), self.schema.tables[members[tag - 1]], depth + 1)

    def vector(self, target: int, size: int, alignment: int) -> int:
        """Check the bounds of a vector and return its length."""
        self.visit(1)
        length: int = _U32(self.view, target)[0]
        if target + 4 + length * size > self.end:
            raise _Offence(f"{length} elements of {size} bytes at byte {target} leave the file of {self.end} bytes")
        if length and (target + 4) % alignment and self.check_alignment:
            raise _Offence(f"elements at byte {target + 4} are not aligned to {alignment}")
        return length

    def string(self, target: int) -> None:
        length = self.vector(target, 1, 1)
        terminator = target + 4 + length
        if terminator >= self.end or self.view[terminator] != 0:
            raise _Offence(f"string at byte {target} does not end with a zero byte")
        if self.check_utf8:
            try:
                str(self.view[target + 4 : terminator], "utf-8")
            except UnicodeDecodeError as error:
                raise _Offence(f"string at byte {target} is not UTF-8: {error.reason}") from None

    def reference_vector(self, target: int, field: Field, depth: int) -> None:
        """Strings and tables: one offset per element."""
        length = self.vector(target, 4, 4)
        if length > self.visits_left:  # before walking a vector that can only run out of budget
            self.visit(length)
        index = 0
        try:
            if field.kind is Kind.STRING_VECTOR:
                for index in range(length):
                    self.string(self.target(target + 4 + 4 * index))
            else:
                table = self.schema.tables[field.type]
                for index in range(length):
                    self.table(self.target(target + 4 + 4 * index), table, depth + 1)
        except _Offence as offence:
            offence.path.append(f"[{index}]")
            raise


def _at(path: str, reason: str) -> _Offence:
    offence = _Offence(reason)
    offence.path.append(path)
    return offence
