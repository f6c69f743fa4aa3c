"""The data of the report: schema, columns, edges, size, and the same data in the page and in the JSON file."""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from tests.support.commands.json_calls import strict
from tests.support.networks.small_models import examples, model_of, scaled_and_shifted
from tools.bench.synthetic_report import describe_network
from tpuconvert.__main__ import main
from tpuconvert.model.description import describe_graph, describe_model
from tpuconvert.report.html_page import to_html
from tpuconvert.report.page.packing import pack_block, pack_column, pack_counts
from tpuconvert.report.report_data import report_data, to_compact_json, worst_nodes
from tpuconvert.report.report_description import describe_for_report
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.types import DType, QuantParams, TensorType

MEGABYTE = 1_000_000


@pytest.fixture
def checker(repository: Path) -> jsonschema.Draft202012Validator:
    text = (repository / "docs" / "reference" / "schemas" / "report.schema.json").read_text(encoding="utf-8")
    return jsonschema.Draft202012Validator(strict(json.loads(text)))


def check_block(checker: jsonschema.Draft202012Validator, block: dict[str, Any]) -> None:
    checker.validate(block)
    for model in block["models"]:
        assert {len(column) for column in model["nodes"].values()} <= {model["facts"]["nodes"]}
        ends = model["facts"]["nodes"] + len(model["inputs"]) + len(model["outputs"])
        assert all(0 <= index < ends for index in model["edges"]) and len(model["edges"]) % 2 == 0


def test_reports_of_the_commands_match_the_schema(
    checker: jsonschema.Draft202012Validator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source, samples = str(examples() / "digits.onnx"), str(examples() / "calibration.npz")
    pixels = ["--preprocess", "color=GRAY,scale=0.0625"]
    int8 = ["--quantize", "int8", "--calibration", samples, *pixels]
    convert = ["convert", source, "-o", "net.tpum", *int8, "--verify", "--report", "convert.json"]
    calls = {
        "convert": convert,
        "attribute": [
            "attribute",
            source,
            "net.tpum",
            "--data",
            samples,
            "--samples",
            "2",
            "--report",
            "attribute.json",
        ],
        "inspect": ["inspect", "net.tpum", "--report", "inspect.json"],
        "source": ["inspect", source, "--report", "source.json"],
    }
    models = {}
    for name, call in calls.items():
        assert main(call) == 0
        block = json.loads(Path(f"{name}.json").read_text())
        check_block(checker, block)
        (models[name],) = block["models"]
    assert "sqnr" in models["convert"]["nodes"] and "verification" in models["convert"]
    assert "isolated" in models["attribute"]["nodes"]
    first = models["attribute"]["worst"][0]
    assert models["attribute"]["nodes"]["fix"][first].startswith("--keep-float ")
    assert "seconds" in models["inspect"]["nodes"] and "sqnr" not in models["inspect"]["nodes"]
    assert "chip" not in models["source"] and models["source"]["nodes"]["constants"]


def test_page_and_json_file_have_the_same_data() -> None:
    description = describe_network(200)
    block = report_data(description)
    found = re.search(r'id="report-data">(.*?)</script>', to_html(description), re.DOTALL)
    assert found is not None
    packed = json.loads(found[1])
    for name, column in packed["models"][0]["nodes"].items():
        assert unpack(column) == block["models"][0]["nodes"][name], name
    assert "at" in packed["models"][0]["nodes"]["op"] and "front" in packed["models"][0]["nodes"]["name"]
    assert len(to_compact_json(pack_block(block))) < 0.6 * len(to_compact_json(block))


def unpack(column: Any) -> list[Any]:
    """The entries of a packed column, as docs/guides/report.md describes them."""
    if isinstance(column, list):
        return column
    if "at" in column:
        return [column["values"][place] for place in column["at"]]
    key, last, found = column["key"], {}, []
    for entry in column["front"]:
        if entry is None:
            found.append(None)
            continue
        start, length, rest = entry[:key], int(entry[key : key + 2], 36), entry[key + 2 :]
        last[start] = last.get(start, start)[:length] + rest
        found.append(last[start].split("\n") if "lists" in column else last[start])
    return found


@pytest.mark.parametrize(
    "column",
    [
        ["block/a", "block/b", None, "block/b/c", "x" * 2000, "x" * 2001],
        [["Conv 'a'", "Relu 'a'"], None, ["Conv 'a'", "Relu 'b'"]] * 9,
        ["Conv '/a/b/c'", "Relu '/a/b/c'", "Conv '/a/b/d'", None, "Relu '/a/b/d'"] * 3,
        [["two\nlines"], ["one"]] * 9,
        [[], ["one"]] * 9,
        ["\U0001f600 name", "\U0001f600 named"] * 2,
        [1, 2, 3],
        [None, 1.5] * 50,
    ],
)
def test_packed_columns_have_the_same_entries(column: list[Any]) -> None:
    assert unpack(json.loads(json.dumps(pack_column(column)))) == column


def test_counts_are_levels_in_the_page() -> None:
    assert pack_counts([0, 1, 3, 1023]) == "ACEU"  # 2 * log2(1 + count) is 0, 2, 4 and 20


def test_columns_are_as_the_graph() -> None:
    model = model_of(scaled_and_shifted())
    (found,) = report_data(describe_for_report(model))["models"]
    nodes = found["nodes"]
    assert nodes["name"] == ["product", "y"]
    assert nodes["op"] == ["mul", "add"]
    assert nodes["shape"] == [[1, 4], [1, 4]]
    assert nodes["constants"] == [["FLOAT32[1, 4]"], ["FLOAT32[1, 4]"]]
    assert nodes["sources"] == [["Mul 'mul_0'"], ["Add 'add_0'"]]
    assert "scale" not in nodes and "sqnr" not in nodes, "columns without any value are absent"
    assert found["edges"] == [2, 0, 0, 1, 1, 3], "input x is 2, output y is 3"


def test_scales_ranges_and_zero_points() -> None:
    graph = Graph("g")
    x = graph.input("x", TensorType(DType.INT8, (1, 2)))
    y = graph.add(Permute(order=(0, 1)), x, name="y")
    z = graph.add(Permute(order=(0, 1)), y, name="z")
    y.quant = QuantParams((0.5, 2.0), (1, -3), DType.INT8, 1)
    z.quant = QuantParams.per_tensor(0.25, 2, DType.INT8)
    graph.output(z)
    (found,) = report_data(describe_model(model_of(graph, quantize="int8").content))["models"]
    assert found["nodes"]["scale"] == [[0.5, 2, 2, 1], 0.25]
    assert found["nodes"]["zero_point"] == [[-3, 1], 2]
    assert found["nodes"]["range"] == [[-250, 260], [-32.5, 31.25]]  # (-128 + 3) * 2, (127 + 3) * 2; -130 / 4, 125 / 4


def test_worst_nodes_are_by_attribution_then_noise_then_time() -> None:
    description = describe_network(40)
    by_noise = worst_nodes(description)
    noise = {entry["name"]: entry["noise_added"] for entry in description["verification"]["layers"]}
    assert noise[description["layers"][by_noise[0]]["name"]] == max(noise.values())
    costs = [layer["seconds"] for layer in description["cost"]["layers"]]
    assert worst_nodes({**description, "verification": None})[0] == int(np.argmax(costs))
    attribution = {"nodes": [{"name": description["layers"][5]["name"]}]}
    assert worst_nodes({**description, "attribution": attribution}) == [5]


def test_block_is_deterministic_and_small(checker: jsonschema.Draft202012Validator) -> None:
    check_block(checker, report_data(describe_network(500)))
    page = to_html(describe_network(180))
    assert page == to_html(describe_network(180))
    assert len(page.encode()) <= MEGABYTE  # ResNet50 has about 180 nodes in INT8


@pytest.mark.slow
def test_page_of_10_000_nodes_is_deterministic_and_small() -> None:
    page = to_html(describe_network(10_000))
    assert page == to_html(describe_network(10_000))
    assert len(page.encode()) <= 3 * MEGABYTE  # limit of the issue: what a mail server accepts, with a margin


def test_text_of_a_model_cannot_end_the_data() -> None:
    hostile = "</script><!-- \u2028 ##[command]\x1b"
    graph = scaled_and_shifted(name=hostile)
    graph.rename(graph.nodes[0].outputs[0], hostile)
    page = to_html(describe_graph(graph))
    found = re.search(r'id="report-data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    assert not set("<\u2028\x1b") & set(found[1])
    assert json.loads(found[1])["models"][0]["nodes"]["name"][0] == hostile
