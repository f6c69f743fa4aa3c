"""The generated classes belong to schema/tpum.fbs, and what they write is what the FlatBuffers compiler reads."""

import hashlib
import json
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tpum_models import MODELS, rich_model

from tpuconvert.schema import tpum_generated as tpum
from tpuconvert.schema.file_format import write_model
from tpuconvert.schema.types import Chip, DType


@pytest.fixture(scope="module")
def generator(repository: Path) -> dict[str, Any]:
    return runpy.run_path(str(repository / "tools" / "generate_schema.py"))


def test_generated_code_belongs_to_the_schema(repository: Path) -> None:
    schema = (repository / "schema" / "tpum.fbs").read_bytes()
    assert hashlib.sha256(schema).hexdigest() == tpum.SCHEMA_SHA256, "run python tools/generate_schema.py"
    program = [sys.executable, "tools/generate_schema.py", "--check"]
    done = subprocess.run(program, cwd=repository, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_changed_schema_changes_the_code(repository: Path, generator: dict[str, Any]) -> None:
    text = (repository / "schema" / "tpum.fbs").read_text(encoding="utf-8")
    changed = text.replace("  json: string (required);", "  json: string (required);\n  count: long = -7;")
    assert "count: int = -7" in generator["generate"](changed)
    assert "count:i64=-7" in generator["generate"](changed)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("struct S { x: int; }", "not understood"),
        ("table A { x: B; }\ntable B { x: A; }", "hold each other"),
        ("table A { x; }", "field not understood"),
        ("table A { x: [int] (required); }", "required"),
    ],
)
def test_generator_rejects_unsupported_schema(generator: dict[str, Any], text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        generator["generate"](text)


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
