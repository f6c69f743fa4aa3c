"""Our description of the format against the accessors of the public ``tflite`` package."""

import flatbuffers
import pytest
import tflite
from flatbuffers import number_types

from tests.support.each import each
from tpuconvert.frontends.tflite.file.schema import SCHEMA, enum_names
from tpuconvert.schema.file.flatbuffer_schema import Kind

_FLAGS = {
    **{"bool": number_types.BoolFlags, "i8": number_types.Int8Flags, "u8": number_types.Uint8Flags},
    **{"i32": number_types.Int32Flags, "u32": number_types.Uint32Flags},
    **{"i64": number_types.Int64Flags, "u64": number_types.Uint64Flags, "f32": number_types.Float32Flags},
}


def accessor_name(field: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in field.split("_"))


def package_tables() -> set[str]:
    return {name for name in dir(tflite) if hasattr(getattr(tflite, name), "GetRootAs")}


def test_every_table_of_the_package_is_described() -> None:
    assert package_tables() == set(SCHEMA.tables)


@pytest.mark.parametrize("union", ["BuiltinOptions", "BuiltinOptions2", "QuantizationDetails", "SparseIndexVector"])
def test_unions_have_the_package_s_members(union: str) -> None:
    enum = getattr(tflite, union)
    numbers = {name: getattr(enum, name) for name in dir(enum) if not name.startswith("__")}
    members = [name for name, _ in sorted(numbers.items(), key=lambda item: item[1])]
    assert members == ["NONE", *SCHEMA.unions[union]]


@each("table", sorted(SCHEMA.tables))
def test_slots_and_defaults(table: str) -> None:
    """Each field is written alone with the package's function and found where the description says."""
    description = SCHEMA.tables[table]
    written = {name for name in dir(tflite) if name.startswith(f"{table}Add")}
    for field in description.fields:
        name = accessor_name(field.name)
        builder = flatbuffers.Builder(64)
        target = builder.CreateString("x")
        getattr(tflite, f"{table}Start")(builder)
        value = target
        if field.kind is Kind.SCALAR:
            value = not field.default if field.type == "bool" else field.default + 1
        getattr(tflite, f"{table}Add{name}")(builder, value)
        builder.Finish(getattr(tflite, f"{table}End")(builder))
        stored = getattr(tflite, table).GetRootAs(bytes(builder.Output()), 0)
        offset = stored._tab.Offset(4 + 2 * field.slot)
        assert offset, f"{table}.{field.name} is not in slot {field.slot}"
        if field.kind is Kind.SCALAR:
            assert stored._tab.Get(_FLAGS[field.type], stored._tab.Pos + offset) == value
        written.discard(f"{table}Add{name}")
        written.discard(f"{table}Add{name}Type") if field.kind is Kind.UNION else None
    assert written == set(), "fields of the package that the description lacks"


@each("table", sorted(SCHEMA.tables))
def test_defaults_of_an_empty_table(table: str) -> None:
    builder = flatbuffers.Builder(16)
    getattr(tflite, f"{table}Start")(builder)
    builder.Finish(getattr(tflite, f"{table}End")(builder))
    stored = getattr(tflite, table).GetRootAs(bytes(builder.Output()), 0)
    for field in SCHEMA.tables[table].fields:
        if field.kind is Kind.SCALAR:
            assert getattr(stored, accessor_name(field.name))() == field.default, field.name


def test_attributes_of_the_interpreter_are_no_members_of_an_enumeration() -> None:
    """Python 3.13 adds the integer ``__firstlineno__`` to every class."""
    enum = type("Kind", (), {"NONE": 0, "SECOND": 2, "FIRST": 1, "__firstlineno__": 7, "__static_attributes__": ()})
    assert enum_names(enum) == {0: "NONE", 1: "FIRST", 2: "SECOND"}
