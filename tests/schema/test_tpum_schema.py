"""The tables of the code are those of schema/tpum.fbs, and the FlatBuffers compiler reads what is written."""

import enum
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from tpum_models import MODELS, rich_model

from tpuconvert.schema import tpum_tables as tpum
from tpuconvert.schema.file_format import write_model
from tpuconvert.schema.flatbuffer_schema import Schema
from tpuconvert.schema.types import Chip, DType

TYPES = {"ubyte": "u8", "int": "i32", "long": "i64", "ulong": "u64", "double": "f64", "string": "str"}


@pytest.fixture
def schema_file(repository: Path) -> str:
    text = (repository / "schema" / "tpum.fbs").read_text(encoding="utf-8")
    return re.sub(r"//[^\n]*", "", text)


def test_tables_are_those_of_the_schema_file(schema_file: str) -> None:
    tables = {}
    enums = re.findall(r"enum (\w+) : ubyte", schema_file)
    names = TYPES | dict.fromkeys(enums, "u8")
    for table, body in re.findall(r"table (\w+) \{(.*?)\}", schema_file, re.DOTALL):
        fields = re.findall(r"(\w+): (\[?)(\w+)(\]?)( = \S+?)?( \(required\))?;", body)
        assert len(fields) == body.count(";"), f"a field of {table} is not understood"
        tables[table] = " ".join(
            f"{name}:{opening}{names.get(type_, type_)}{closing}{default.replace(' ', '')}{'!' if required else ''}"
            for name, opening, type_, closing, default, required in fields
        )
    expected = Schema(tables)
    assert {name: table.fields for name, table in tpum.SCHEMA.tables.items()} == {
        name: table.fields for name, table in expected.tables.items()
    }
    stored = [(name, table) for table in tables for name in re.findall(r"(\w+):", tables[table])]
    assert [(name, table) for table, row in tpum.ROWS.items() for name in row._fields] == stored


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
    schema = str(repository / "schema" / "tpum.fbs")
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
