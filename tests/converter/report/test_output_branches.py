"""Branches of an output in the report: rows, contents, the verdict, and the card."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest

from tools.bench.synthetic_report import describe_network
from tpuconvert.report.html_page import to_html
from tpuconvert.report.output_branches import output_branches


def detector(
    boxes: float,
    scores: float,
    shapes: tuple[list[int], ...] = ([1, 4, 2100], [1, 18, 2100]),
    *,
    quantized: bool = True,
) -> dict[str, Any]:
    """The description of a network whose output joins two tensors with these SQNRs in dB."""
    description = describe_network(40)
    layers = description["layers"]
    names = [layers[index]["outputs"][0]["name"] for index in (10, 20)]
    for index, shape in zip((10, 20), shapes, strict=True):
        layers[index]["outputs"][0]["shape"] = shape
    verification = description["verification"]
    verification["is_quantized"] = quantized
    verification |= {"first_difference": None, "most_noise_added_at": []}
    pattern = copy.deepcopy(verification["layers"][0])
    verification["layers"] = [
        {**pattern, "name": name, "op": "mul", "stage": "quantize", "reads": [], "sqnr_db": sqnr, "max_absolute": 1.0}
        for name, sqnr in zip(names, (boxes, scores), strict=True)
    ]
    whole = {**pattern, "name": "output", "op": "concat", "reads": names, "sqnr_db": boxes, "max_absolute": 1.0}
    verification["layers"].append(whole)
    verification["outputs"] = [{**whole, "op": "output"}]
    description["outputs"][0]["shape"] = [1, 22, 2100]
    return description


def compared(description: dict[str, Any]) -> str:
    """The section with the comparison, as text without tags; names of classes of rows and paragraphs stay."""
    (section,) = re.findall(r'<section class="panel" id="compared">.*?</section>', to_html(description), re.DOTALL)
    return str(re.sub(r"<(?!tr|p)[^>]*>", " ", section))


def test_boxes_and_scores_have_a_row_each() -> None:
    description = detector(44.0, 31.0)
    boxes, scores = output_branches(description)["output"]
    assert (boxes.content, boxes.part) == ("boxes", "[:, 0:4]")
    assert (scores.content, scores.part) == ("scores", "[:, 4:22]")
    text = compared(description)
    assert "boxes [:, 0:4]:" in text and "scores [:, 4:22]:" in text


def test_scores_below_the_limit_are_named_though_the_whole_output_is_good() -> None:
    text = compared(detector(44.0, 17.1))
    assert (
        '<p class="verdict bad">the SQNR of scores of &#x27;output&#x27; is 17.1 dB, below the limit of 20 dB' in text
    )
    assert text.count('<tr class="bad">') == 1
    assert text.index('<tr class="bad">') < text.index("scores [:")
    page = to_html(detector(44.0, 17.1))
    (card,) = re.findall(r'<div class="card warn">.*?</div>', page)
    assert "17.1 dB" in card and "scores of" in card


@pytest.mark.parametrize("stage", ["quantize", "legalize"])
def test_good_outputs_have_no_warning_though_a_tensor_inside_is_below_the_limit(stage: str) -> None:
    description = detector(44.0, 31.0)
    first = {**description["verification"]["layers"][0], "sqnr_db": 12.0, "stage": stage}
    description["verification"]["first_difference"] = first
    text = compared(description)
    assert '<p class="verdict">no output is below the limit of 20 dB' in text
    assert "bad" not in text
    assert "first tensor below 20 dB" in text


@pytest.mark.parametrize("stage", ["import", "optimize"])
def test_difference_that_is_not_from_the_quantization_is_a_warning(stage: str) -> None:
    description = detector(44.0, 31.0)
    first = {**description["verification"]["layers"][0], "stage": stage}
    description["verification"]["first_difference"] = first
    assert '<p class="verdict bad">' in compared(description)


def test_contradiction_of_another_engine_is_a_warning() -> None:
    description = detector(44.0, 31.0)
    description["verification"]["opinion"] = {
        "engine": "onnxruntime", "problem": "", "exactness": None, "outputs": 1, "tensors": 1, "is_exact": False,
        "largest_difference": 0.5, "contradictions": ["output differs"],
    }  # fmt: skip
    assert '<p class="verdict bad">output differs' in compared(description)


def test_tensor_of_a_float_model_has_no_limit() -> None:
    assert "bad" not in compared(detector(44.0, 17.1, quantized=False))


def test_parts_that_are_not_the_whole_output_have_no_range() -> None:
    parts = output_branches(detector(44.0, 31.0, ([1, 4, 2100], [1, 9, 2100])))["output"]
    assert [(part.part, part.content) for part in parts] == [("", ""), ("", "")]


def test_output_that_reads_a_tensor_that_was_not_compared_has_no_branches() -> None:
    description = detector(44.0, 31.0)
    description["verification"]["layers"][-1]["reads"][0] = "unknown"
    assert output_branches(description) == {}


@pytest.mark.parametrize("cause", ["weights", "activations"])
def test_error_of_a_node_is_stated_with_its_cause(cause: str) -> None:
    description = detector(44.0, 31.0)
    name, operand = (description["layers"][index]["outputs"][0]["name"] for index in (20, 10))
    noise = {"noise": 0.0055, "cosine": 0.99, "flips": None, "sqnr_db": 22.6}
    node = {
        "name": name, "op": "conv", "isolated": noise, "from_weights": noise, "from_activations": noise,
        "accumulated_sqnr_db": None, "keep_float": [name, operand], "measured": None, "cause": cause, "rule": "RULE",
    }  # fmt: skip
    description["attribution"] = {
        "file": "", "samples": 4, "origin": "", "model": noise, "nodes": [node], "integer_nodes": 1, "unmatched": [],
    }  # fmt: skip
    (sentence,) = re.findall(r'<p class="cause">(.*?)</p>', to_html(description))
    assert sentence.startswith("0.55% of the power, mostly from ")
    assert ("its weights" if cause == "weights" else "rounding ") in sentence
    assert f'data-node="{20 if cause == "weights" else 10}" data-picture=' in sentence
