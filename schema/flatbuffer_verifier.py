"""Bounded verification of a FlatBuffers file against a description of its tables, before any field is read.

A FlatBuffers file is a web of offsets that accessors follow blindly. ``verify`` walks everything that a description of
the tables can reach and proves that each offset, vtable, vector and string lies inside the buffer, that required
fields are present, and that the walk ends within a depth and a number of visits. Nothing is allocated by a size that
the file states. Whoever reads the buffer through accessors made from the same tables cannot leave it afterwards.

A description is written as text, one line of fields per table, in the order of their slots:

    Schema(
        tables={"Model": "version:u32=3 name:str! nodes:[Node] pad:Size operator:<Op>", "Node": "ids:[i32]"},
        structs={"Size": "h:i32 w:i32"},
        unions={"Op": ("Conv", "Pool")},  # tags 1, 2, ...
    )

``bool i8 u8 i16 u16 i32 u32 i64 u64 f32 f64`` are scalars (enumerations are written as their scalar), ``str`` is a
string, ``[T]`` a vector of scalars, strings, structs or tables, ``<U>`` a union (two slots: ``<name>_type`` and the
value), any other name a table or a struct. ``=`` gives the default of a scalar, ``!`` marks a required field and a lone
``_`` leaves the slot of a deprecated field unread.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

_U16 = struct.Struct("<H").unpack_from
_U32 = struct.Struct("<I").unpack_from
_I32 = struct.Struct("<i").unpack_from

SCALAR_SIZES: Mapping[str, int] = {
    **{"bool": 1, "i8": 1, "u8": 1, "i16": 2, "u16": 2, "i32": 4, "u32": 4, "i64": 8, "u64": 8},
    **{"f32": 4, "f64": 8},
}


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


@dataclass(frozen=True)
class Limits:
    """How far a walk may go.

    Attributes:
        max_depth: nesting of tables.
        max_visits: tables, strings and vectors that are looked at; one that two fields share counts twice.
    """

    max_depth: int = 64
    max_visits: int = 2_000_000


USUAL_LIMITS = Limits()


class Kind(Enum):
    """What a slot of a table holds."""

    SCALAR = "scalar"
    STRUCT = "struct"
    STRING = "string"
    TABLE = "table"
    UNION = "union"
    SCALAR_VECTOR = "vector of scalars"
    STRUCT_VECTOR = "vector of structs"
    STRING_VECTOR = "vector of strings"
    TABLE_VECTOR = "vector of tables"


_INLINE = (Kind.SCALAR, Kind.STRUCT)


@dataclass(frozen=True)
class Field:
    """One field of a table.

    Attributes:
        slot: index into the vtable, from 0; for a union the slot of its value (the tag is the slot before).
        type: name of the scalar, struct, table or union (of the element, for a vector).
        size: bytes inside the table, or of one element of a vector.
        alignment: of the field inside the table, or of one element of a vector; bytes.
        default: of a scalar that is not stored.
    """

    name: str
    slot: int
    kind: Kind
    type: str
    size: int = 4
    alignment: int = 4
    default: int | float | bool = 0
    required: bool = False


@dataclass(frozen=True, eq=False)
class Table:
    """One table: its name and its fields in the order of their slots."""

    name: str
    fields: tuple[Field, ...]


class Schema:
    """The tables, structs and unions of one file format."""

    def __init__(
        self,
        tables: Mapping[str, str],
        structs: Mapping[str, str] | None = None,
        unions: Mapping[str, tuple[str, ...]] | None = None,
    ) -> None:
        """Parse the description (see the module's text).

        Raises:
            ValueError: a name that is not defined, a malformed field, or a name that is used twice.
        """
        self.structs: dict[str, tuple[int, int]] = {}
        for name, text in (structs or {}).items():
            self.structs[name] = self._struct_layout(text)
        self.unions = {name: tuple(members) for name, members in (unions or {}).items()}
        self._table_names = frozenset(tables)
        self.tables = {name: Table(name, tuple(self._fields(name, text))) for name, text in tables.items()}
        for union, members in self.unions.items():
            for member in members:
                if member not in self.tables:
                    raise ValueError(f"union {union}: '{member}' is not a table")

    def _struct_layout(self, text: str) -> tuple[int, int]:
        """Size and alignment of a struct; structs may hold structs that stand before them."""
        size = 0
        alignment = 1
        for token in text.split():
            _, _, type_name = token.partition(":")
            if type_name in SCALAR_SIZES:
                part, part_alignment = SCALAR_SIZES[type_name], SCALAR_SIZES[type_name]
            elif type_name in self.structs:
                part, part_alignment = self.structs[type_name]
            else:
                raise ValueError(f"struct field '{token}': '{type_name}' is neither a scalar nor a struct")
            size = -(-size // part_alignment) * part_alignment + part
            alignment = max(alignment, part_alignment)
        return -(-size // alignment) * alignment, alignment

    def _fields(self, table: str, text: str) -> Iterator[Field]:
        slot = 0
        seen: set[str] = set()
        for token in text.split():
            if token == "_":
                slot += 1
                continue
            name, colon, rest = token.partition(":")
            required = rest.endswith("!")
            type_name, equals, default = rest.removesuffix("!").partition("=")
            if not colon or not name or name in seen:
                raise ValueError(f"table {table}: '{token}' is malformed or named twice")
            seen.add(name)
            if type_name.startswith("<") and type_name.endswith(">"):
                slot += 1
            field = self._field(table, name, slot, type_name, required)
            if equals:
                if field.kind is not Kind.SCALAR:
                    raise ValueError(f"table {table}: '{token}': only a scalar has a default")
                field = Field(**{**field.__dict__, "default": _parse_default(field.type, default)})
            slot += 1
            yield field

    def _field(self, table: str, name: str, slot: int, type_name: str, required: bool) -> Field:
        if type_name in SCALAR_SIZES:
            size = SCALAR_SIZES[type_name]
            zero: int | float | bool = _parse_default(type_name, "0")
            return Field(name, slot, Kind.SCALAR, type_name, size, size, zero, required)
        if type_name in self.structs:
            return Field(name, slot, Kind.STRUCT, type_name, *self.structs[type_name], required=required)
        if type_name == "str":
            return Field(name, slot, Kind.STRING, type_name, required=required)
        if type_name in self._table_names:
            return Field(name, slot, Kind.TABLE, type_name, required=required)
        inner = type_name[1:-1]
        if type_name == f"<{inner}>" and inner in self.unions:
            return Field(name, slot, Kind.UNION, inner, required=required)
        if type_name == f"[{inner}]":
            if inner in SCALAR_SIZES:
                size = SCALAR_SIZES[inner]
                return Field(name, slot, Kind.SCALAR_VECTOR, inner, size, size, required=required)
            if inner in self.structs:
                return Field(name, slot, Kind.STRUCT_VECTOR, inner, *self.structs[inner], required=required)
            if inner == "str":
                return Field(name, slot, Kind.STRING_VECTOR, inner, required=required)
            if inner in self._table_names:
                return Field(name, slot, Kind.TABLE_VECTOR, inner, required=required)
        raise ValueError(f"table {table}: field '{name}' has the unknown type '{type_name}'")


def _parse_default(type_name: str, text: str) -> int | float | bool:
    if type_name == "bool":
        return text in ("true", "1")
    return float(text) if type_name in ("f32", "f64") else int(text)


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
    """Prove that every field which ``schema`` describes can be read from ``buffer`` without leaving it.

    Args:
        buffer: the whole file; its first four bytes are the offset of the root table.
        schema: description of the tables.
        root: name of the root table.
        identifier: the four bytes at offset 4, or None when the format has none.
        limits: depth and number of visits.
        check_alignment: whether a value that is not aligned to its size is an error.
        allow_unknown_union_tags: whether a union whose tag is 0 or beyond the description may hold a value (a file of
            a later schema); it stays unverified and nobody may read it. A tag without a value is legal unless the
            field is required.
        check_utf8: whether every string must be valid UTF-8.

    Raises:
        FlatBufferError: the only error; the message holds the path of the first offence.
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
    """A finding on its way up; every level adds its part of the path, innermost first."""

    def __init__(self, reason: str, *, is_limit: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.is_limit = is_limit
        self.path: list[str] = []


@dataclass(frozen=True)
class _Layout:
    """What one vtable says about one table: checked once, shared by all tables with that vtable."""

    size: int
    wide: tuple[tuple[Field, int], ...]  # inline fields aligned to more than the table itself
    followed: tuple[tuple[Field, int], ...]  # fields that lead elsewhere
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
        """Follow the unsigned offset that stands at ``position``; at least four bytes lie behind the target."""
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

        def stored(slot: int, size: int, name: str) -> int:
            entry = 4 + 2 * slot
            offset: int = _U16(view, vtable + entry)[0] if entry + 2 <= vtable_size else 0
            if offset and (offset < 4 or offset + size > table_size):
                raise _at(f".{name}", f"offset {offset} lies outside its table of {table_size} bytes")
            return offset

        wide: list[tuple[Field, int]] = []
        followed: list[tuple[Field, int]] = []
        tags: dict[int, int] = {}
        for field in table.fields:
            offset = stored(field.slot, field.size if field.kind in _INLINE else 4, field.name)
            if field.kind is Kind.UNION:
                tags[field.slot] = stored(field.slot - 1, 1, f"{field.name}_type")
            if not offset:
                if field.required:
                    raise _at(f".{field.name}", "required, but missing")
                continue
            if field.kind not in _INLINE:
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
