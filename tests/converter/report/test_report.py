"""Reports: text, JSON and HTML agree, and hostile names in a model are escaped."""

import json
import re
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

from tests.support.networks.compared_graphs import verify
from tests.support.networks.small_models import model_of, scaled_and_shifted
from tpuconvert.model.description import describe_graph, describe_model
from tpuconvert.model.model import Model
from tpuconvert.model.notes import note_lines
from tpuconvert.model.summary import summary_text
from tpuconvert.operators.attribute_text import short_lists
from tpuconvert.report.full_text import full_text
from tpuconvert.report.html_page import to_html
from tpuconvert.schema.file.file_model import Note
from tpuconvert.schema.graph.graph import Graph, Port
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.types import DType, QuantParams, TensorType
from tpuconvert.text.table import table
from tpuconvert.text.text_format import LONGEST, shorten
from tpuconvert.verify.difference import Difference
from tpuconvert.verify.verification import Verification

NOTES = (Note("float", "y", "softmax: 8-bit probabilities"), Note("float", "z", "softmax: 8-bit probabilities"))


@pytest.fixture
def model() -> Model:
    return model_of(scaled_and_shifted(), notes=NOTES, preprocessing={"mean": [1.0]})


def test_summary_has_what_one_wants_to_know(model: Model) -> None:
    text = summary_text(describe_model(model.content))
    assert text.splitlines()[0] == "small.onnx for BM1686, float (made by tpuconvert 0.0.0)"
    assert "input   x  float32[1, 4]" in text
    assert "output  y  float32[1, 4]" in text
    assert "2 nodes: add, mul" in text
    assert "stays in float: softmax x2 ('y', 'z'): 8-bit probabilities" in text
    assert "mean=1.0" in text
    assert text == model.summary()


def test_full_text_has_a_line_per_node(model: Model) -> None:
    lines = full_text(describe_model(model.content)).splitlines()
    assert lines[-2].split() == ["0", "mul", "product", "FLOAT32[1,", "4]", "-", "Mul", "'mul_0'"]
    assert lines[-1].split() == ["1", "add", "y", "FLOAT32[1,", "4]", "-", "Add", "'add_0'"]


def test_description_has_plain_values(model: Model) -> None:
    description = describe_model(model.content)
    assert json.loads(json.dumps(description)) == description
    assert description["chip"] == "BM1686"
    assert [layer["op"] for layer in description["layers"]] == ["mul", "add"]
    assert description["constant_bytes"] == 2 * 4 * 4
    assert description["layers"][1]["inputs"] == ["product", "shift"]
    assert description["notes"][0] == {"kind": "float", "node": "y", "message": NOTES[0].message}


def test_a_description_without_layers_has_all_the_rest(model: Model) -> None:
    whole, short = describe_model(model.content), describe_model(model.content, layers=False)
    assert len(whole["layers"]) == whole["nodes"] > 0
    assert short == whole | {"layers": []}


def test_source_graph_has_a_description_too() -> None:
    assert "small.onnx: source graph" in full_text(describe_graph(scaled_and_shifted()))


def test_many_nodes_with_one_reason_are_counted() -> None:
    notes = [{"kind": "float", "node": f"n{i}", "message": "mul: why" if i else "add: why"} for i in range(8)]
    assert note_lines(notes) == ["  stays in float: mul x7, add ('n0', 'n1', 'n2' ...): why"]


def test_operators_of_warnings_come_from_the_nodes() -> None:
    notes = [{"kind": "chip", "node": name, "message": "unfinished"} for name in ("a", "b")]
    assert note_lines(notes) == ["  runs with a warning: 'a', 'b': unfinished"]
    assert note_lines(notes, {"a": "lut", "b": "lut"}) == ["  runs with a warning: lut x2 ('a', 'b'): unfinished"]


def test_reasons_that_differ_in_names_only_are_one() -> None:
    notes = [{"kind": "float", "node": f"n{i}", "message": f"mul: 'x{i}' is float"} for i in range(400)]
    notes.append({"kind": "source", "node": "", "message": "input 'x' is taken as [1]"})
    assert note_lines(notes) == [
        "  about the source: input 'x' is taken as [1]",
        "  stays in float: mul x400 ('n0', 'n1', 'n2' ...): 'x0' is float (the others alike)",
    ]


def test_long_names_are_cut_in_the_middle() -> None:
    assert shorten("short") == "short"
    assert shorten("0123456789", 9) == "012...789"
    assert len(shorten("x" * 300)) == LONGEST


def test_table_is_aligned() -> None:
    assert table([("a", "bb"), ("ccc", "d")]) == ["a    bb", "ccc  d"]


class Tags(HTMLParser):
    """Check that tags are balanced, and collect them with their attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.open: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.attributes += attrs
        if tag not in ("meta", "br", "wbr"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def parse_page(page: str) -> Tags:
    tags = Tags()
    tags.feed(page)
    assert tags.open == []
    return tags


def block_of(page: str) -> dict[str, Any]:
    """The data of a page."""
    found = re.search(r'<script type="application/json" id="report-data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    block: dict[str, Any] = json.loads(found[1])
    return block


def test_page_is_well_formed_and_needs_nothing_from_elsewhere(model: Model) -> None:
    feeds = [{"x": np.zeros((1, 4), np.float32)}]
    verification = verify(scaled_and_shifted(), scaled_and_shifted(), model, feeds)
    page = to_html(describe_model(model.content, verification.to_dict()))
    tags = parse_page(page)
    assert not {"link", "img", "iframe", "object"} & set(tags.seen)
    assert tags.seen.count("script") == 2, "the data and the program"
    names = {name for name, _ in tags.attributes}
    assert not {"style", "src", "srcset"} & names, "the policy forbids them"
    assert not any(name.startswith("on") for name in names)
    assert all((address or "").startswith("#") for name, address in tags.attributes if name == "href")
    assert re.findall(r"https?://[^\"]*", page) == ["http://www.w3.org/2000/svg"], "a name of XML, not an address"
    for word in ("product", "Compared with the source", "8-bit probabilities", "exact"):
        assert word in page


def test_names_from_a_file_stay_text() -> None:
    hostile = "<script>alert(1)</script>\"'&"
    graph = scaled_and_shifted(name=hostile)
    graph.rename(graph.nodes[0].outputs[0], hostile)
    page = to_html(describe_model(model_of(graph, notes=(Note("float", hostile, hostile),)).content))
    tags = parse_page(page)
    assert tags.seen.count("script") == 2, "the data and the program"
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page


def test_page_shortens_and_counts() -> None:
    graph = scaled_and_shifted()
    long_name = "block/" * 40
    graph.rename(graph.nodes[0].outputs[0], long_name)
    notes = [Note("float", f"n{i}", "mul: no integer form") for i in range(20)]
    notes += [Note("chip", graph.nodes[0].name, "the vendor marks mul as unfinished")]
    page = to_html(describe_model(model_of(graph, notes=tuple(notes), quantize="int8").content))
    parse_page(page)
    shown = page.split("<script")[0]
    assert shown.count("no integer form") == 1
    assert "mul x20" in page
    assert "and 12 more" in page
    assert "Chip warnings" in page
    assert f'title="{long_name}"' in page


def test_page_of_a_quantized_model_shows_the_noise() -> None:
    source, final = Graph("g"), Graph("g")
    quants = [QuantParams((0.5, 1.0), (0, 0), DType.INT8, 1), QuantParams.per_tensor(4.0, 0, DType.INT8)]
    for g, dtype in ((source, DType.FLOAT32), (final, DType.INT8)):
        x = g.input("x", TensorType(dtype, (1, 2)), Port("x", "float32" if g is source else "int8", (1, 2)))
        y = g.add(Permute(order=(0, 1)), x, name="y")
        z = g.add(Permute(order=(0, 1)), y, name="z")
        if g is final:
            x.quant = y.quant = quants[0]
            z.quant = quants[1]
        g.output(z, Port("z", "float32" if g is source else "int8", (1, 2)))
    verification = Verification(
        "small.onnx",
        1,
        (
            Difference("x"),
            Difference("y", "permute"),
            Difference("z", "permute", "quantize", ("y",), added=0.25, max_absolute=3.0),
        ),
        (Difference("z", "output"),),
        True,
        0,
    )
    description = describe_model(model_of(final, quantize="int8").content, verification.to_dict())
    page = to_html(description)
    parse_page(page)
    for words in (
        "Tensors with the most quantization noise",
        "25.00%",
        "None: every operator computes with",
    ):
        assert words in page
    (model,) = block_of(page)["models"]
    assert model["nodes"]["scale"] == [[0.5, 1, 2, 1], 4]
    assert model["nodes"]["range"] == [[-128, 127], [-512, 508]]
    assert model["nodes"]["noise_added"] == [0, 0.25]
    assert model["worst"] == [1]
    assert "most noise is added at 'z' (25.00% of its power)" in full_text(description)


def test_page_finds_a_noisy_tensor_that_is_channels_first_in_the_model() -> None:
    graph = Graph("g")
    x = graph.input("x", TensorType(DType.INT8, (1, 2)), Port("x", "int8", (1, 2)))
    y = graph.add(Permute(order=(0, 1)), x, name="y:nchw")
    x.quant = y.quant = QuantParams.per_tensor(0.625, 0, DType.INT8)
    graph.output(y, Port("y", "int8", (1, 2)))
    noisy = Difference("y:nchw", "permute", "quantize", ("x",), added=0.25, max_absolute=3.0)
    verification = Verification("small.tflite", 1, (Difference("x"), noisy), (Difference("y", "output"),), True, 0)
    page = to_html(describe_model(model_of(graph, quantize="int8").content, verification.to_dict()))
    section = page.split("Tensors with the most quantization noise")[1].split("</section>")[0]
    assert "0.625" in section


def test_long_lists_of_numbers_are_told_by_their_range() -> None:
    assert short_lists("shift_vec=(-1, -30, 4, 2, 7), axes=(0, 1)") == "shift_vec=(5 numbers, -30 to 7), axes=(0, 1)"
