"""The page of supported source operators, and its statements about ONNX."""

import re
from pathlib import Path

import pytest
from onnx import defs

from tests.support.onnx.cases import elements, further, operators, tensors, versions, windows
from tests.support.onnx.models import graph_of, model, one, ramp
from tests.support.onnx.oracles import NEWEST_OPSET
from tests.support.onnx.reference import NEEDS_NEWEST
from tpuconvert.frontends.registry import FORMATS, Kind, registry
from tpuconvert.operators.tables import refused_operators, source_operators
from tpuconvert.schema.definition.op import OpKind
from tpuconvert.schema.errors import UnsupportedError
from tpuconvert.schema.graph.graph import Graph

MOVES = {"reshape", "permute", "cast", "squeeze", "expand_dims", "constdata", "copy"}


@pytest.mark.parametrize("source_format", FORMATS)
def test_rows(source_format: str) -> None:
    rows, refused = source_operators(source_format), refused_operators(source_format)
    names = [(row["domain"], row["operator"]) for row in rows]
    assert len(set(names)) == len(names)
    assert not {row["operator"] for row in refused} & {name for domain, name in names if not domain}
    assert {row["kind"] for row in rows} <= {kind.value for kind in Kind if kind is not Kind.REFUSED}
    assert all(row["limits"] for row in refused)


def test_ranges_of_versions() -> None:
    rows = {row["operator"]: row["versions"] for row in source_operators("onnx") if not row["domain"]}
    assert rows["Softmax"] == ["1-12", "13+"]
    assert rows["Upsample"] == ["1-6", "7-8", "9+"]
    assert rows["Resize"] == ["10", "11+"]


# The registry's statements about an operator, compared with the graphs that its converter creates.


def kind_of(graph: Graph) -> Kind:
    computing = [node for node in graph.nodes if node.op.name not in MOVES]
    if any(node.op.kind is OpKind.HOST for node in computing):
        return Kind.HOST
    if not graph.nodes:
        return Kind.FOLDED
    return Kind.DIRECT if len(computing) <= 1 else Kind.DECOMPOSED


def test_kinds_are_what_the_converters_do(tmp_path: Path) -> None:
    made: dict[str, list[Kind]] = {}
    for table in (versions, operators, further, elements, tensors, windows):
        for case in table.CASES:
            *_, newest = case.in_all_versions(NEWEST_OPSET)
            if len(made.get(case.op, ())) < 6:
                made.setdefault(case.op, []).append(kind_of(graph_of(newest.model(), tmp_path)))
    by_definition = {
        entry.name for entry in registry("onnx").others()
    }  # control flow: the result depends on the bodies
    wrong = []
    for row in source_operators("onnx"):
        kinds = made.get(row["operator"], []) if not row["domain"] and row["operator"] not in by_definition else []
        if kinds and Kind(row["kind"]) not in kinds:
            wrong.append((row["operator"], row["kind"], [kind.value for kind in kinds]))
    assert wrong == []


# Completeness

FIRST_OPSET = 7


def test_every_operator_of_the_standard_is_converted_or_refused() -> None:
    refused = {row["operator"] for row in refused_operators("onnx")}
    rows = source_operators("onnx")
    first = {row["operator"]: int(row["versions"][0].split("-")[0].rstrip("+")) for row in rows if not row["domain"]}
    missing = []
    for schema in defs.get_all_schemas_with_history():
        if schema.domain or schema.name in refused or schema.deprecated:
            continue
        if schema.name not in first or first[schema.name] > max(schema.since_version, FIRST_OPSET):
            missing.append(f"{schema.name}-{schema.since_version}")
    assert missing == []


@NEEDS_NEWEST
def test_every_operator_of_the_mapping_is_converted(repository: Path) -> None:
    page = repository.parent / "shared" / "spec" / "mapping.md"
    if not page.is_file():
        pytest.skip("the mapping of source operators is not there")
    section = page.read_text(encoding="utf-8").split("## 5. ONNX")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (\w+)(?: \(deprecated\))? \| [\d,]+ \| ([DXFHN]) \|", section, re.MULTILINE)
    known = {row["operator"] for row in source_operators("onnx") if not row["domain"]}
    assert len(rows) > 200
    assert [name for name, kind in rows if kind != "N" and name not in known] == []
    beyond = {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}  # constants with a seed
    assert {name for name, kind in rows if kind == "N"} == set(registry("onnx").refusals) | beyond


def test_a_refused_operator_says_why(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="random numbers"):
        graph_of(model([one("Bernoulli", "x")], {"x": ramp(2)}, ["y"]), tmp_path)
