"""Description of the tables of a FlatBuffers format, written as text.

One line of fields per table, in the order of their slots:

    Schema(
        tables={"Model": "version:u32=3 name:str! nodes:[Node] operator:<Op>", "Node": "ids:[i32]"},
        unions={"Op": ("Conv", "Pool")},  # tags 1, 2, ...
    )

``bool i8 u8 i16 u16 i32 u32 i64 u64 f32 f64`` are scalars (enumerations are written as their scalar), ``str`` is a
string, ``[T]`` a vector of scalars, strings or tables, ``<U>`` a union (two slots: ``<name>_type`` and the value), any
other name a table. ``=`` gives the default of a scalar, ``!`` marks a required field and a lone ``_`` skips the slot of
a deprecated field. Structs are not supported.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

SCALAR_CODES: Mapping[str, str] = {
    **{"bool": "?", "i8": "b", "u8": "B", "i16": "h", "u16": "H", "i32": "i", "u32": "I", "i64": "q", "u64": "Q"},
    **{"f32": "f", "f64": "d"},
}
"""Scalar types, as format characters of the ``struct`` module."""


class Kind(Enum):
    """Kind of a field."""

    SCALAR = "scalar"
    STRING = "string"
    TABLE = "table"
    UNION = "union"
    SCALAR_VECTOR = "vector of scalars"
    STRING_VECTOR = "vector of strings"
    TABLE_VECTOR = "vector of tables"


@dataclass(frozen=True)
class Field:
    """One field of a table.

    Attributes:
        slot: index into the vtable, from 0; for a union the slot of its value (the tag is the slot before).
        type: name of the scalar, table or union (of the element, for a vector).
        size: size and alignment in bytes of a scalar, of one element of a vector, or otherwise of the offset.
        default: value of a scalar that is not stored.
    """

    name: str
    slot: int
    kind: Kind
    type: str
    size: int = 4
    default: int | float | bool = 0
    required: bool = False


@dataclass(frozen=True, eq=False)
class Table:
    """One table: its name and its fields in the order of their slots."""

    name: str
    fields: tuple[Field, ...]


class Schema:
    """The tables and unions of one file format."""

    def __init__(self, tables: Mapping[str, str], unions: Mapping[str, tuple[str, ...]] | None = None) -> None:
        """Parse the description, whose syntax is explained in the module's docstring.

        Raises:
            ValueError: a name that is not defined, a malformed field, or a name that is used twice.
        """
        self.unions = {name: tuple(members) for name, members in (unions or {}).items()}
        self._table_names = frozenset(tables)
        self.tables = {name: Table(name, tuple(self._fields(name, text))) for name, text in tables.items()}
        for union, members in self.unions.items():
            for member in members:
                if member not in self.tables:
                    raise ValueError(f"union {union}: '{member}' is not a table")

    def _fields(self, table: str, text: str) -> Iterator[Field]:
        slot = 0
        seen: set[str] = set()
        for token in text.split():
            if token == "_":
                slot += 1
                continue
            name, colon, rest = token.partition(":")
            type_name, equals, default = rest.removesuffix("!").partition("=")
            if not colon or not name or name in seen:
                raise ValueError(f"table {table}: '{token}' is malformed or named twice")
            seen.add(name)
            kind, inner = self._kind(type_name)
            if kind is None:
                raise ValueError(f"table {table}: field '{name}' has the unknown type '{type_name}'")
            if equals and kind is not Kind.SCALAR:
                raise ValueError(f"table {table}: '{token}': only a scalar has a default")
            slot += kind is Kind.UNION
            size = struct.calcsize("<" + SCALAR_CODES.get(inner, "I"))
            number = _parse_number(inner, default or "0") if kind is Kind.SCALAR else 0
            yield Field(name, slot, kind, inner, size, number, required=rest.endswith("!"))
            slot += 1

    def _kind(self, text: str) -> tuple[Kind | None, str]:
        """Return the kind of a field, None if it is unknown, and the name of its type without brackets."""
        inner = text[1:-1]
        if text == f"<{inner}>":
            return (Kind.UNION if inner in self.unions else None), inner
        is_vector = text == f"[{inner}]"
        name = inner if is_vector else text
        if name in SCALAR_CODES:
            return (Kind.SCALAR_VECTOR if is_vector else Kind.SCALAR), name
        if name == "str":
            return (Kind.STRING_VECTOR if is_vector else Kind.STRING), name
        if name in self._table_names:
            return (Kind.TABLE_VECTOR if is_vector else Kind.TABLE), name
        return None, name


def _parse_number(type_name: str, text: str) -> int | float | bool:
    if type_name == "bool":
        return text in ("true", "1")
    return float(text) if type_name in ("f32", "f64") else int(text)
