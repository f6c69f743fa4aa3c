"""Software bill of materials: the schema of CycloneDX, completeness, and equal bytes."""

import configparser
import json
from importlib import metadata
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import tpuconvert as tc
from tpuconvert.__main__ import main
from tpuconvert.api.sbom import EXTRAS
from tpuconvert.runtime.native.loader import extension


def document() -> dict[str, Any]:
    return tc.sbom().to_dict()


def test_document_is_valid_by_the_schema_of_cyclonedx() -> None:
    pytest.importorskip("cyclonedx", reason="oracle")
    referencing = pytest.importorskip("referencing")
    folder = files("cyclonedx.schema") / "_res"
    schemas = {name: json.loads((folder / name).read_text()) for name in SCHEMAS}
    pairs = [(schema["$id"], referencing.Resource.from_contents(schema)) for schema in schemas.values()]
    registry = referencing.Registry().with_resources(pairs)
    checker = jsonschema.Draft7Validator(schemas[SCHEMAS[0]], registry=registry)
    checker.validate(document())
    broken = {**document(), "components": [{"name": "no type"}]}
    with pytest.raises(jsonschema.ValidationError):
        checker.validate(broken)


SCHEMAS = ("bom-1.6.SNAPSHOT.schema.json", "spdx.SNAPSHOT.schema.json", "jsf-0.82.SNAPSHOT.schema.json")


def test_every_imported_package_is_listed(repository: Path) -> None:
    config = configparser.ConfigParser()
    config.read(repository / "setup.cfg", encoding="utf-8")
    required = config["options"]["install_requires"].split()
    names = {component["name"]: component for component in document()["components"]}
    for requirement in required:
        name = requirement.partition(">")[0].lower()
        assert names[name]["version"] == metadata.version(name)
        assert names[name]["scope"] == "required"
    assert set(EXTRAS) <= set(config["options.extras_require"])
    if hasattr(extension(), "NANOBIND"):  # an engine was built, and by this version
        assert names["nanobind"]["version"] == extension().NANOBIND


def test_dependencies_refer_to_components() -> None:
    content = document()
    listed = {content["metadata"]["component"]["bom-ref"], *(each["bom-ref"] for each in content["components"])}
    assert len(listed) == len(content["components"]) + 1
    edges = {entry["ref"]: entry["dependsOn"] for entry in content["dependencies"]}
    assert set(edges) == listed
    assert {target for targets in edges.values() for target in targets} <= listed
    reached, waiting = set(), [content["metadata"]["component"]["bom-ref"]]
    while waiting:
        reference = waiting.pop()
        if reference not in reached:
            reached.add(reference)
            waiting += edges[reference]
    required = {each["bom-ref"] for each in content["components"] if each["scope"] == "required"}
    assert required - {reference for reference in required if "/nanobind@" in reference} <= reached


def test_file_has_the_same_bytes_each_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = tmp_path / "a.json", tmp_path / "b.json"
    assert main(["sbom", "-o", str(first)]) == 0
    tc.sbom().save(second)
    assert first.read_bytes() == second.read_bytes()
    assert capsys.readouterr().out == ""
    assert main(["sbom", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(first.read_text())
    assert main(["sbom"]) == 0
    assert f"numpy {metadata.version('numpy')}" in capsys.readouterr().out
