"""Description of the tables of a FlatBuffers format, written as text.

One line of fields per table, in the order of their slots:

    Schema(
        tables={"Model": "version:u32=3 name:str! nodes:[Node] pad:Size operator:<Op>", "Node": "ids:[i32]"},
        structs={"Size": "h:i32 w:i32"},
        unions={"Op": ("Conv", "Pool")},  # tags 1, 2, ...
    )

``bool i8 u8 i16 u16 i32 u32 i64 u64 f32 f64`` are scalars (enumerations are written as their scalar), ``str`` is a
string, ``[T]`` a vector of scalars, strings, structs or tables, ``<U>`` a union (two slots: ``<name>_type`` and the
value), any other name a table or a struct. ``=`` gives the default of a scalar, ``!`` marks a required field and a lone
``_`` skips the slot of a deprecated field.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum

SCALAR_CODES: Mapping[str, str] = {
    **{"bool": "?", "i8": "b", "u8": "B", "i16": "h", "u16": "H", "i32": "i", "u32": "I", "i64": "q", "u64": "Q"},
    **{"f32": "f", "f64": "d"},
}
"""Letters of the ``struct`` module."""

_SCALAR_SIZES = {name: struct.calcsize("<" + code) for name, code in SCALAR_CODES.items()}


class Kind(Enum):
    """Kind of a field."""

    SCALAR = "scalar"
    STRUCT = "struct"
    STRING = "string"
    TABLE = "table"
    UNION = "union"
    SCALAR_VECTOR = "vector of scalars"
    STRUCT_VECTOR = "vector of structs"
    STRING_VECTOR = "vector of strings"
    TABLE_VECTOR = "vector of tables"


INLINE = (Kind.SCALAR, Kind.STRUCT)


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
        """Size and alignment of a struct; its members may be structs that are defined before it."""
        size = 0
        alignment = 1
        for token in text.split():
            _, _, type_name = token.partition(":")
            if type_name in _SCALAR_SIZES:
                part, part_alignment = _SCALAR_SIZES[type_name], _SCALAR_SIZES[type_name]
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
                field = replace(field, default=_parse_default(field.type, default))
            slot += 1
            yield field

    def _field(self, table: str, name: str, slot: int, type_name: str, required: bool) -> Field:
        if type_name in _SCALAR_SIZES:
            size = _SCALAR_SIZES[type_name]
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
            if inner in _SCALAR_SIZES:
                size = _SCALAR_SIZES[inner]
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
