"""The tables of the code equal the tables in schema/file/tpum.fbs, which the FlatBuffers compiler reads."""

import enum
import json
import re
import shutil
import subprocess
from collections import namedtuple
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.networks.tpum_models import MODELS, control_model, rich_model
from tpuconvert.schema.file import tpum_tables as tpum
from tpuconvert.schema.file.file_encoder import encode
from tpuconvert.schema.file.file_format import write_model
from tpuconvert.schema.file.flatbuffer_schema import Schema
from tpuconvert.schema.file.flatbuffer_writer import FlatBufferWriter
from tpuconvert.schema.types import Chip, DType

TYPES = {"ubyte": "u8", "int": "i32", "long": "i64", "ulong": "u64", "double": "f64", "string": "str"}


@pytest.fixture
def schema_file(repository: Path) -> str:
    text = (repository / "schema" / "file" / "tpum.fbs").read_text(encoding="utf-8")
    return re.sub(r"//[^\n]*", "", text)


def test_tables_are_those_of_the_schema_file(schema_file: str) -> None:
    tables = {}
    enums = re.findall(r"enum (\w+) : ubyte", schema_file)
    names = TYPES | dict.fromkeys(enums, "u8")
    for table, body in re.findall(r"table (\w+) \{(.*?)\}", schema_file, re.DOTALL):
        fields = re.findall(r"(\w+): (\[?)(\w+)(\]?)( = \S+?)?( \((?:required|deprecated)\))?;", body)
        assert len(fields) == body.count(";"), f"a field of {table} is not understood"
        tables[table] = " ".join(
            f"{name}:{opening}{names.get(type_, type_)}{closing}{default.replace(' ', '')}{'!' if attribute else ''}"
            if "deprecated" not in attribute
            else "_"
            for name, opening, type_, closing, default, attribute in fields
        )
    expected = Schema(tables)
    assert {name: table.fields for name, table in tpum.SCHEMA.tables.items()} == {
        name: table.fields for name, table in expected.tables.items()
    }
    stored = [(name, table) for table in tables for name in re.findall(r"(\w+):", tables[table])]
    assert [(name, table) for table, row in tpum.ROWS.items() for name in row._fields] == stored


class _Group(NamedTuple):
    first: int
    count: int


class _Grouping(NamedTuple):
    lanes: int
    lane_bytes: int
    groups: tuple[_Group, ...]


def test_a_file_with_a_deprecated_table_is_read() -> None:
    """Earlier versions stored layer groups in the slot before ``subgraphs``."""
    tables, _ = encode(control_model())
    content = tables._asdict()
    texts = {name: " ".join(tpum._describe(row)) for name, row in tpum.ROWS.items()}
    assert " _ subgraphs:" in texts["Model"] and content["subgraphs"]
    texts["Model"] = texts["Model"].replace(" _ ", " grouping:_Grouping ")
    texts |= {"_Grouping": "lanes:i32 lane_bytes:i64 groups:[_Group]", "_Group": "first:i32 count:i32"}
    earlier = namedtuple("Model", [*content, "grouping"])
    writer = FlatBufferWriter(Schema(texts))
    groups = _Grouping(32, 1 << 17, (_Group(0, 2), _Group(5, 1 << 30)))
    buffer = writer.finish(writer.row(earlier(**content, grouping=groups)), tpum.FILE_IDENTIFIER)
    assert len(buffer) > len(tpum.pack(tables))
    assert tpum.unpack(buffer) == tpum.unpack(tpum.pack(tables))


def test_enums_are_those_of_the_schema_file(schema_file: str) -> None:
    for name, body in re.findall(r"enum (\w+) : ubyte \{(.*?)\}", schema_file, re.DOTALL):
        members = {member: int(number) for member, number in re.findall(r"(\w+) = (\d+)", body)}
        assert len(members) == body.count("=") > 0
        stored: type[enum.IntEnum] = getattr(tpum, name)
        assert {member.name: member.value for member in stored} == members
        fields = re.findall(rf"(\w+): {name};", schema_file)
        assert sorted(fields) == sorted(field for (_, field), type_ in tpum.ENUMS.items() if type_ is stored)


def test_enums_have_the_members_of_the_vocabulary() -> None:
    assert [item.name for item in tpum.DType] == ["NONE", *(dtype.name for dtype in DType)]
    assert [item.name for item in tpum.Chip] == ["NONE", *(chip.name for chip in Chip)]


@pytest.mark.skipif(shutil.which("flatc") is None, reason="the FlatBuffers compiler is not installed")
@pytest.mark.parametrize("name", MODELS)
def test_flatbuffers_compiler_reads_written_files(repository: Path, tmp_path: Path, name: str) -> None:
    write_model(tmp_path / "m.tpum", MODELS[name]())
    content = (tmp_path / "m.tpum").read_bytes()
    (tmp_path / "metadata.bin").write_bytes(content[int.from_bytes(content[24:32], "little") :])
    schema = str(repository / "schema" / "file" / "tpum.fbs")
    subprocess.run(["flatc", "--json", "--strict-json", schema, "--", "metadata.bin"], cwd=tmp_path, check=True)
    if name == "rich":
        read = json.loads((tmp_path / "metadata.json").read_text(encoding="utf-8"))
        model = rich_model()
        assert [node["op"] for node in read["graph"]["nodes"]] == [node.op.name for node in model.graph.nodes]
        assert read["chip"] == "BM1686"
        assert read["graph"]["nodes"][0]["inputs"][1] == -1
        scale = next(value for value in read["graph"]["values"] if value["name"] == "w")["quantization"]["scale"]
        (w,) = (value for value in model.graph.values if value.name == "w")
        assert w.quant is not None and scale == pytest.approx(w.quant.scale, rel=1e-9)  # flatc prints 12 digits
