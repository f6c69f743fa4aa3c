"""Reports: text, JSON and page say the same, and nothing of a hostile model gets out of its quotes."""

import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from converter.small_models import model_of, scaled_and_shifted

from tpuconvert.model import Model
from tpuconvert.report import describe_graph, describe_model, full_text, note_lines, summary_text, table, to_json
from tpuconvert.report_page import to_html
from tpuconvert.schema.file_model import Note
from tpuconvert.verification import verify

NOTES = (Note("float", "y", "softmax: 8-bit probabilities"), Note("float", "z", "softmax: 8-bit probabilities"))


@pytest.fixture
def model() -> Model:
    return model_of(scaled_and_shifted(), notes=NOTES, preprocessing={"mean": [1.0]})


def test_summary_has_what_one_wants_to_know(model: Model) -> None:
    text = summary_text(describe_model(model))
    assert text.splitlines()[0] == "small.onnx for BM1686, float (made by tpuconvert 0.0.0)"
    assert "input   x  float32[1, 4]" in text
    assert "output  y  float32[1, 4]" in text
    assert "2 nodes: add, mul" in text
    assert "stays in float: 'y', 'z': softmax: 8-bit probabilities" in text
    assert "mean=1.0" in text
    assert text == model.summary()


def test_full_text_has_a_line_per_node(model: Model) -> None:
    lines = full_text(describe_model(model)).splitlines()
    assert lines[-2].split() == ["0", "mul", "product", "FLOAT32[1,", "4]", "-", "Mul", "'mul_0'"]
    assert lines[-1].split() == ["1", "add", "y", "FLOAT32[1,", "4]", "-", "Add", "'add_0'"]


def test_json_reads_back(model: Model) -> None:
    description = json.loads(to_json(describe_model(model)))
    assert description["chip"] == "BM1686"
    assert [layer["op"] for layer in description["layers"]] == ["mul", "add"]
    assert description["constant_bytes"] == 2 * 4 * 4
    assert description["layers"][1]["inputs"] == ["product", "shift"]
    assert description["notes"][0] == {"kind": "float", "node": "y", "message": NOTES[0].message}


def test_source_graph_has_a_description_too() -> None:
    assert "small.onnx: source graph" in full_text(describe_graph(scaled_and_shifted()))


def test_many_nodes_with_one_reason_are_counted() -> None:
    notes = [{"kind": "float", "node": f"n{i}", "message": "why"} for i in range(8)]
    assert note_lines(notes) == ["  stays in float: 'n0', 'n1', 'n2', 'n3', 'n4' and 3 more: why"]


def test_table_is_aligned() -> None:
    assert table([("a", "bb"), ("ccc", "d")]) == ["a    bb", "ccc  d"]


class Tags(HTMLParser):
    """Checks that tags are balanced and collects them with their attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.open: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.attributes += attrs
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def parsed(page: str) -> Tags:
    tags = Tags()
    tags.feed(page)
    assert tags.open == []
    return tags


def test_page_is_well_formed_and_needs_nothing_from_elsewhere(model: Model) -> None:
    feeds = [{"x": np.zeros((1, 4), np.float32)}]
    verification = verify(scaled_and_shifted(), scaled_and_shifted(), model, feeds)
    page = to_html(describe_model(model, verification))
    tags = parsed(page)
    assert not {"script", "link", "img", "iframe"} & set(tags.seen)
    assert not re.search(r"(https?:)?//", page)
    assert {name for name, _ in tags.attributes} <= {"class", "style", "charset", "lang", "name", "content"}
    for word in ("product", "Compared with the source", "8-bit probabilities", "exact"):
        assert word in page


def test_names_from_a_file_stay_text() -> None:
    hostile = "<script>alert(1)</script>\"'&"
    graph = scaled_and_shifted(name=hostile)
    graph.rename(graph.nodes[0].outputs[0], hostile)
    page = to_html(describe_model(model_of(graph, notes=(Note("float", hostile, hostile),))))
    tags = parsed(page)
    assert "script" not in tags.seen
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
