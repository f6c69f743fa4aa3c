"""Heads of text recognizers and of masks with one channel, and the labels of ONNX files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

import tpuconvert as tc
from tests.support.networks.planted_images import SIZE, gray, planted
from tests.support.onnx import models as onnx_models
from tpuconvert.__main__ import main
from tpuconvert.outputs.head import ClassMap, DecodedImage, Text, find_head, recognize_head
from tpuconvert.outputs.interpretation import Interpreter
from tpuconvert.outputs.labels import ClassNames, labels_of_metadata
from tpuconvert.samples.preprocess import Preprocess
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.types import Array

RULE = Preprocess(size=(32, 64))


def steps(*classes: int, count: int = 5) -> Array:
    """Scores [1, T, count], 0.8 for one class of each step."""
    scores = np.full((1, len(classes), count), 0.05, np.float32)
    scores[0, range(len(classes)), classes] = 0.8
    return scores


def read(outputs: dict[str, Array], labels: object = None) -> tuple[str, float]:
    found = Interpreter(RULE, ClassNames.of(labels), {}).interpret(outputs, (32, 64))  # type: ignore[arg-type]
    assert found.head == "ctc" and found.text is not None
    return found.text.text, round(found.text.score, 4)


def test_repeats_are_merged_and_blanks_left_out() -> None:
    scores = steps(0, 2, 2, 0, 2, 1, 0)
    for outputs in (scores, scores.reshape(7, 1, 5)):
        assert read({"y": outputs}, ["", "a", "b", "c", "d"]) == ("bba", 0.8)
    assert read({"y": scores}, list("abcd")) == ("bba", 0.8)  # the blank has no label
    assert read({"y": steps(0, 4, 0, 1)}, list("abc")) == (" a", 0.8)  # nor has the space, as in lists of PaddleOCR
    assert read({"y": steps(4, 1, 4, 4, 0)}, list("abcd")) == ("ba", 0.8)  # the last class is the blank
    assert read({"y": steps(0, 0)}, list("abcd")) == ("", 0.0)
    assert read({"y": steps(1, 2, 3, 4, 2, 3)}, list("abc")) == ("abc bc", 0.8)  # one space is not a blank


def test_class_numbers_need_no_scores() -> None:
    numbers = np.array([[0, 3, 3, 0, 1]])
    assert read({"y": numbers}, ["", "a", "b", "c"]) == ("ca", 1.0)
    assert read({"y": numbers}) == ("3 1", 1.0)


def test_sequences_without_labels_are_not_recognized() -> None:
    outputs = {"y": steps(0, 2, 2, 0)}
    for labels in (0, 2, 6):
        with pytest.raises(UsageError, match="the meaning of the outputs is not known"):
            recognize_head(outputs, RULE, labels)
    decoded = find_head("ctc").decode(outputs, DecodedImage(RULE, (32, 64)))
    assert isinstance(decoded, Text) and decoded.classes.tolist() == [2]
    with pytest.raises(UsageError, match=r"expected one output with scores \[1, steps, characters\]"):
        find_head("ctc").decode({"y": np.zeros((2, 3, 4), np.float32)}, DecodedImage(RULE, (32, 64)))


def test_text_is_printed_and_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    planted({"y": steps(0, 1, 0, 4, 2)}).save("net.tpum")
    gray(160, 80).save("a.png")
    Path("chars.txt").write_text("H\ni\n!\n \n")
    assert main(["run", "net.tpum", "a.png", "--labels", "chars.txt", "--draw", "b.png"]) == 0
    assert capsys.readouterr().out.splitlines()[-3:] == ["a.png  (ctc)", "     0.800  H i", "wrote b.png"]
    assert main(["run", "net.tpum", "a.png", "--labels", "chars.txt", "--decode", "ctc", "--json"]) == 0
    [result] = json.loads(capsys.readouterr().out)["results"]
    assert result["text"]["text"] == "H i"
    drawing = tc.Session("net.tpum").draw("a.png", labels="chars.txt")
    assert drawing.picture.height > 2 * 80  # enlarged, with a caption
    Path("few.txt").write_text("a\nb\n")
    assert main(["run", "net.tpum", "a.png", "--labels", "few.txt", "--decode", "ctc"]) == 2
    assert "2 labels for a model with 5 classes" in capsys.readouterr().err


def decode_mask(array: Array, min_score: float = 0.4, rule: Preprocess = RULE) -> Array:
    head = recognize_head({"y": array}, rule)
    assert head.name == "mask"
    decoded = head.decode({"y": array}, DecodedImage(rule, (64, 128), min_score))
    assert isinstance(decoded, ClassMap)
    return decoded.classes


def test_pixels_of_a_mask_have_a_sufficient_probability() -> None:
    array = np.full((1, 1, 32, 64), 0.1, np.float32)
    array[0, 0, 8:16, 4:8] = 0.6
    expected = np.zeros((64, 128), int)
    expected[16:32, 8:16] = 1
    nhwc = Preprocess(size=(32, 64), layout="NHWC")
    for classes in (
        decode_mask(array),
        decode_mask(array.reshape(32, 64)),
        decode_mask(array.reshape(1, 32, 64, 1), rule=nhwc),
    ):
        np.testing.assert_array_equal(classes, expected)
    assert not decode_mask(array, 0.7).any() and decode_mask(array, 0.05).all()
    assert not decode_mask(np.zeros_like(array)).any()


@pytest.mark.parametrize(
    "array",
    [
        np.full((1, 1, 32, 64), -0.5), np.full((1, 1, 32, 64), 3.0), np.full((1, 1, 64, 128), 0.5),
        np.full((1, 1, 2, 4), 0.5),
    ],
    ids=["logits", "depth", "finer than the input", "coarse"],
)  # fmt: skip
def test_other_maps_are_not_masks(array: Array) -> None:
    with pytest.raises(UsageError, match="the meaning of the outputs is not known"):
        recognize_head({"y": array}, RULE)


def test_mask_of_logits_is_refused() -> None:
    with pytest.raises(UsageError, match=r"expected probabilities \[1, 1, rows, columns\]") as caught:
        find_head("mask").decode({"y": np.full((1, 1, 32, 64), -0.5)}, DecodedImage(RULE, (32, 64)))
    assert "after its sigmoid" in str(caught.value.hint)


def model_with(**metadata: str | bytes) -> onnx.ModelProto:
    nodes = [onnx_models.one("ReduceMean", "x", axes=[2, 3], keepdims=0, outputs=["y"])]
    proto = onnx_models.model(nodes, {"x": np.zeros((1, 3, *SIZE), np.float32)}, ["y"], {})
    onnx.helper.set_model_props(proto, {key: str(value) for key, value in metadata.items()})
    return proto


@pytest.mark.parametrize(
    ("metadata", "labels"),
    [
        (
            {"names": "{0: 'person', 2: \"driver's {cup}\", 1: 'b\\'c, 3: d'}"},
            ("person", "b'c, 3: d", "driver's {cup}"),
        ),
        ({"character": "'\n \n疗\n"}, ("'", " ", "疗")),
        ({"names": "{0: 'a', 2: 'b'}"}, ()),
        ({"names": "{0: 'a', 1: __import__('os')}"}, ()),
        ({"names": "{0: '\\x'}"}, ()),
        ({"names": ""}, ()),
        ({"description": "{0: 'a'}"}, ()),
    ],
)
def test_labels_of_an_onnx_file(metadata: dict[str, str], labels: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(model_with(**metadata).SerializeToString())
    model = tc.convert(tmp_path / "net.onnx")
    assert labels_of_metadata(model.metadata, None).names == labels
    assert labels_of_metadata(model.metadata, 0).names == labels
