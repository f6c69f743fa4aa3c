"""Generate schema/tpum_generated/ from schema/tpum.fbs.

    python tools/generate_schema.py            write the package
    python tools/generate_schema.py --check    only check that it is up to date (exit code 1 otherwise)

Understands what tpum.fbs uses of the FlatBuffers schema language: enums, tables, scalars, strings, vectors of these,
defaults and ``(required)``. Every table becomes a named tuple that packs itself into a buffer; the
description that the reader proves and reads a buffer by comes from the same lines.
"""

from __future__ import annotations

import hashlib
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

from generated_file import write_or_check

ROOT = Path(__file__).resolve().parents[1]
SCHEMA = ROOT / "schema" / "tpum.fbs"
GENERATED = ROOT / "schema" / "tpum_generated" / "__init__.py"


@dataclass(frozen=True)
class Scalar:
    """One scalar type: its name for the verifier, its letter in the struct module, its bytes, and zero in Python."""

    verifier: str
    code: str
    size: int
    zero: str = "0"


SCALARS = {
    "bool": Scalar("bool", "?", 1, "False"),
    "ubyte": Scalar("u8", "B", 1),
    "int": Scalar("i32", "i", 4),
    "long": Scalar("i64", "q", 8),
    "ulong": Scalar("u64", "Q", 8),
    "double": Scalar("f64", "d", 8, "0.0"),
}


@dataclass
class EnumType:
    """An enum: the scalar it is stored as, and its members."""

    name: str
    scalar: str
    members: list[tuple[str, int]]
    doc: list[str]


@dataclass
class FieldType:
    """A field of a table; ``type`` has its brackets."""

    name: str
    type: str
    default: str
    required: bool


@dataclass
class TableType:
    """A table and its fields in the order of their slots."""

    name: str
    fields: list[FieldType]
    doc: list[str]


@dataclass
class Schema:
    """Contents of the .fbs file."""

    identifier: str = ""
    root: str = ""
    enums: dict[str, EnumType] = field(default_factory=dict)
    tables: dict[str, TableType] = field(default_factory=dict)


_STATEMENT = re.compile(
    r"""
    (?P<comment>(?:[ \t]*//[^\n]*\n)+)
  | (?P<setting>namespace|file_identifier|file_extension|root_type)\s+"?(?P<value>\w+)"?\s*;
  | enum\s+(?P<enum>\w+)\s*:\s*(?P<scalar>\w+)\s*\{(?P<members>[^}]*)\}
  | table\s+(?P<table>\w+)\s*\{(?P<fields>[^}]*)\}
  | (?P<blank>\s+)
    """,
    re.VERBOSE,
)
_FIELD = re.compile(r"(\w+)\s*:\s*(\[?\w+\]?)\s*(?:=\s*([-\w.]+))?\s*(\(\s*required\s*\))?\s*$")


def parse(text: str) -> Schema:
    """Read the schema.

    Raises:
        ValueError: at something that this program does not understand, with the text it stopped at.

    """
    schema = Schema()
    position, doc = 0, list[str]()
    while position < len(text):
        match = _STATEMENT.match(text, position)
        if match is None:
            raise ValueError(f"not understood: {text[position : position + 60]!r}")
        position = match.end()
        if match["comment"]:
            doc = [line.strip().removeprefix("//").strip() for line in match["comment"].splitlines()]
        elif match["enum"]:
            members = [_member(item) for item in match["members"].split(",") if item.strip()]
            schema.enums[match["enum"]] = EnumType(match["enum"], match["scalar"], members, doc)
        elif match["table"]:
            body = re.sub(r"//[^\n]*", "", match["fields"])
            fields = [_field(item.strip()) for item in body.split(";") if item.strip()]
            schema.tables[match["table"]] = TableType(match["table"], fields, doc)
        elif match["setting"] == "file_identifier":
            schema.identifier = match["value"]
        elif match["setting"] == "root_type":
            schema.root = match["value"]
        elif match["blank"] and match["blank"].count("\n") < 2:
            continue
        if not match["comment"]:
            doc = []
    return schema


def _member(text: str) -> tuple[str, int]:
    name, _, number = text.partition("=")
    return name.strip(), int(number)


def _field(text: str) -> FieldType:
    match = _FIELD.match(text)
    if match is None:
        raise ValueError(f"field not understood: {text!r}")
    return FieldType(match[1], match[2], match[3] or "", bool(match[4]))


def generate(text: str) -> str:
    """The Python module for a schema."""
    schema = parse(text)
    parts = [_head(schema, hashlib.sha256(text.encode()).hexdigest())]
    parts += [_enum(item) for item in schema.enums.values()]
    parts += [_table(schema, item) for item in _uses_first(schema)]
    parts.append(_tables(schema))
    return "\n\n".join(parts)


def _uses_first(schema: Schema) -> list[TableType]:
    """Tables in an order in which each follows the tables that it contains.

    Raises:
        ValueError: when a table holds itself: reading would have no bound.

    """
    ordered: list[str] = []
    waiting = list(schema.tables)
    while waiting:
        ready = [
            name
            for name in waiting
            if all(held in ordered or held not in schema.tables for held in _held_types(schema.tables[name]))
        ]
        if not ready:
            raise ValueError(f"tables hold each other: {', '.join(waiting)}")
        ordered += ready
        waiting = [name for name in waiting if name not in ready]
    return [schema.tables[name] for name in ordered]


def _held_types(table: TableType) -> list[str]:
    return [item.type.strip("[]") for item in table.fields]


def _head(schema: Schema, digest: str) -> str:
    tables = "\n".join(
        f'    "{table.name}": "{" ".join(_described(schema, item) for item in table.fields)}",'
        for table in schema.tables.values()
    )
    return f'''"""Made by tools/generate_schema.py from schema/tpum.fbs: change that file, then run the program."""

from __future__ import annotations

import enum
import functools
from typing import NamedTuple

from tpuconvert.schema import flatbuffer_reader
from tpuconvert.schema.flatbuffer_schema import Schema
from tpuconvert.schema.flatbuffer_writer import FlatBufferWriter, Integers, Reals, TableForm

SCHEMA_SHA256 = "{digest}"
FILE_IDENTIFIER = b"{schema.identifier}"
ROOT_TABLE = "{schema.root}"
TABLES = {{
{tables}
}}
"""Fields per table, in the notation of ``flatbuffer_schema``."""
'''


def _described(schema: Schema, item: FieldType) -> str:
    """A field in the notation of the verifier."""
    inner = item.type.strip("[]")
    if inner in schema.enums:
        inner = schema.enums[inner].scalar
    word = SCALARS[inner].verifier if inner in SCALARS else "str" if inner == "string" else inner
    word = f"[{word}]" if item.type.startswith("[") else word
    return f"{item.name}:{word}" + (f"={item.default}" if item.default else "") + ("!" if item.required else "")


def _doc(lines: list[str], instead: str) -> str:
    words = lines or [instead]
    if len(words) == 1:
        return f'    """{words[0]}"""\n'
    return "\n".join([f'    """{words[0]}', *(f"    {line}" for line in words[1:]), '    """']) + "\n"


def _enum(item: EnumType) -> str:
    members = "".join(f"    {name} = {number}\n" for name, number in item.members)
    return f"class {item.name}(enum.IntEnum):\n{_doc(item.doc, f'{item.name} as it is stored.')}\n{members}"


def _table(schema: Schema, table: TableType) -> str:
    fields = sorted((_declared(schema, item) for item in table.fields), key=lambda field: field[2] is not None)
    declared = "".join(
        f"    {name}: {word}{'' if default is None else f' = {default}'}{_hides_method(name)}\n"
        for name, word, default in fields
    )
    ordered = _widest_first(schema, table)
    slots = "".join(f"    {_slot(schema, slot, item)},\n" for slot, item in ordered)
    values = "".join(f"            {_written(schema, item)},\n" for _, item in ordered)
    return f'''class {table.name}(NamedTuple):
{_doc(table.doc, f"The table {table.name}.")}
{declared}
    def pack(self, writer: FlatBufferWriter) -> int:
        """Write the table and return its place."""
        return writer.table(
            _{table.name.upper()},
{values}        )


_{table.name.upper()} = TableForm(
{slots})
'''


def _tables(schema: Schema) -> str:
    """Schema of the reader, and its call."""
    classes = "".join(f'    "{name}": {name},\n' for name in schema.tables)
    enums = "".join(
        f'    ("{table.name}", "{item.name}"): {item.type},\n'
        for table in schema.tables.values()
        for item in table.fields
        if item.type in schema.enums
    )
    return f'''_ROWS = {{
{classes}}}
_ENUMS = {{
{enums}}}


@functools.cache
def _schema() -> Schema:
    return Schema(TABLES)


def unpack(buffer: memoryview) -> {schema.root}:
    """Verify and read a buffer.

    Raises:
        ValueError: the buffer is not valid.
    """
    root = flatbuffer_reader.read(buffer, _schema(), ROOT_TABLE, FILE_IDENTIFIER, _ROWS, _ENUMS)
    assert isinstance(root, {schema.root})
    return root
'''


def _hides_method(name: str) -> str:
    is_one = name in ("count", "index")
    return "  # type: ignore[assignment]  # the method of tuples of that name is not used" if is_one else ""


def _declared(schema: Schema, item: FieldType) -> tuple[str, str, str | None]:
    """Declaration of a field in Python: name, type, and default if it has one."""
    inner = item.type.strip("[]")
    if inner in schema.enums:
        return item.name, inner, f"{inner}({item.default or 0})"
    word = {"bool": "bool", "double": "float", "string": "str"}.get(inner, "int" if inner in SCALARS else inner)
    if item.type.startswith("["):
        return item.name, {"long": "Integers", "double": "Reals"}.get(inner, f"tuple[{word}, ...]"), "()"
    if inner in SCALARS:
        return item.name, word, item.default or SCALARS[inner].zero
    if inner == "string":
        return item.name, "str", None if item.required else '""'
    return (item.name, word, None) if item.required else (item.name, f"{word} | None", "None")


def _widest_first(schema: Schema, table: TableType) -> list[tuple[int, FieldType]]:
    """Fields with their slots, wide scalars first: no padding between them."""

    def size(item: FieldType) -> int:
        inner = schema.enums[item.type].scalar if item.type in schema.enums else item.type
        return SCALARS[inner].size if inner in SCALARS else 4

    return sorted(enumerate(table.fields), key=lambda entry: (-size(entry[1]), entry[0]))


def _scalar_of(schema: Schema, item: FieldType) -> Scalar | None:
    """Scalar type of a field that is stored inline, otherwise None."""
    if item.type in schema.enums:
        return SCALARS[schema.enums[item.type].scalar]
    return SCALARS.get(item.type)


def _slot(schema: Schema, slot: int, item: FieldType) -> str:
    """Arguments of the writer for a field."""
    scalar = _scalar_of(schema, item)
    return f'({slot}, "O", 0)' if scalar is None else f'({slot}, "{scalar.code}", {item.default or scalar.zero})'


def _written(schema: Schema, item: FieldType) -> str:
    """Value of a field, or the offset of what it refers to."""
    inner, is_vector, name = item.type.strip("[]"), item.type.startswith("["), f"self.{item.name}"
    if _scalar_of(schema, item) is not None:
        return name
    if is_vector and item.required:
        raise ValueError(f"{item.name}: an empty vector is not stored, so none can be required")
    if is_vector and inner in SCALARS:
        return f'writer.scalars("{SCALARS[inner].code}", {name})'
    if is_vector:
        return f"writer.offsets([{_place(inner, 'item')} for item in {name}])"
    return _place(inner, name) if item.required else f"{_place(inner, name)} if {name} else 0"


def _place(type_: str, name: str) -> str:
    return f"writer.string({name})" if type_ == "string" else f"{name}.pack(writer)"


def main() -> int:
    """Write or check the generated package."""
    return write_or_check(
        GENERATED,
        lambda: generate(SCHEMA.read_text(encoding="utf-8")).encode(),
        tool=Path(__file__).name,
        description=(__doc__ or "").splitlines()[0],
    )


if __name__ == "__main__":
    sys.exit(main())
