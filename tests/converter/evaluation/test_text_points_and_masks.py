"""``evaluate`` of text, landmarks, masks and detectors without ``--decode``, with models that return their pixels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import tpuconvert as tc
from tests.converter.evaluation.test_evaluate import detector, passing, write_scene
from tpuconvert.__main__ import main
from tpuconvert.evaluation.metrics.text import edit_distance
from tpuconvert.schema.errors import UsageError

STEPS, CHARACTERS = 6, 4
"""Extents of the scores of the text recognizer; the first character is the blank."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("images").mkdir()
    return tmp_path


def recognizer(gain: float = 1.0) -> tc.Model:
    """Return a model that reads gray images of 6 x 4 pixels: a row is the scores of a step."""
    return passing((1, 1, STEPS, CHARACTERS), (1, STEPS, CHARACTERS), "color=GRAY", gain)


def write_line(name: str, *classes: int) -> None:
    pixels = np.zeros((STEPS, CHARACTERS), np.uint8)
    pixels[range(STEPS), [*classes, *[0] * (STEPS - len(classes))]] = 200
    Image.fromarray(pixels).save(Path("images") / name)


def test_lines_of_text(capsys: pytest.CaptureFixture[str]) -> None:
    write_line("a.png", 1, 1, 0, 1, 2)  # "xxy"
    write_line("b.png", 3, 3)  # "z"
    recognizer().save("net.tpum")
    recognizer(-1.0).save("other.tpum")  # without the highest scores every step is the first of the others
    Path("chars.txt").write_text("x\ny\nz\n")
    Path("texts.txt").write_text("set/a.png\txxy\nset/b.png\tzyx \n")
    arguments = ["evaluate", "net.tpum", "--data", "images", "--labels", "texts.txt", "--metric", "text"]
    assert main([*arguments, "--characters", "chars.txt", "--reference", "other.tpum", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["values"] == {"text": 0.5, "cer": 2 / 6} and found["right"] == {"text": 1}
    assert found["agreement"] == {"changed_text": 1.0}
    for labels in (["xxy", "z"], {"a.png": "xxy", "b.png": " z"}):
        evaluation = tc.evaluate(recognizer(), "images", labels, metrics="text", characters=["x", "y", "z"])
        assert evaluation.values == {"text": 1.0, "cer": 0.0}
    Path("lines.txt").write_text("xxy\nz\n")
    assert (
        tc.evaluate(recognizer(), "images", "lines.txt", metrics="text", characters=["x", "y", "z"]).values["text"]
        == 1.0
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ({"characters": None}, "metric 'text' without the characters of the model"),
        ({"labels": None}, "no texts"),
        ({"labels": ["x"]}, "1 text for 2 images"),
        ({"labels": {"a.png": "x"}}, "no text for 1 image, the first is 'b.png'"),
        ({"labels": "absent.txt"}, "holds no texts"),
        ({"labels": ["", " "]}, "the labels have no characters"),
        ({"decode": "mask"}, "expected probabilities"),
        ({"characters": ["a"]}, "1 label for a model with 4 classes"),
    ],
)
def test_wrong_calls_for_text(call: dict[str, Any], message: str) -> None:
    write_line("a.png", 1)
    write_line("b.png", 3)
    arguments = {"labels": ["x", "z"], "characters": ["x", "y", "z"], "metrics": "text", **call}
    with pytest.raises(UsageError, match=message):
        tc.evaluate(recognizer(), "images", **arguments)


def test_edits_between_strings() -> None:
    assert edit_distance("kitten", "sitting") == 3
    assert edit_distance("", "abc") == edit_distance("abc", "") == 3
    assert edit_distance("flaw", "lawn") == 2
    assert edit_distance("same", "same") == edit_distance("", "") == 0


def landmarks(gain: float = 1.0) -> tc.Model:
    """Return a model that takes gray images of 3 x 2 pixels: x and y of three points."""
    return passing((1, 1, 3, 2), (1, 6), "color=GRAY", gain)


def test_landmarks(capsys: pytest.CaptureFixture[str]) -> None:
    points = np.array([[[0, 0], [30, 40], [10, 10]], [[5, 5], [5, 15], [10, 10]]], np.float64)
    for name, values in zip(("a.png", "b.png"), points, strict=True):
        Image.fromarray(values.astype(np.uint8)).save(Path("images") / name)
    labels = points.copy()
    labels[0, 2] = 10, 25  # 15 pixels away; the diagonal of the box is 50
    evaluation = tc.evaluate(landmarks(), "images", labels, metrics="nme", decode="points2d", reference=landmarks(2))
    assert evaluation.values["nme"] == pytest.approx(15 / 3 / 50 / 2)
    assert evaluation.agreement["moved"] > 0.1
    np.save("points.npy", labels)
    landmarks().save("net.tpum")
    arguments = ["evaluate", "net.tpum", "--data", "images", "--labels", "points.npy", "--metric", "nme"]
    assert main([*arguments, "--decode", "points2d"]) == 0
    assert "nme  5.00%" in capsys.readouterr().out
    for wrong, message in (
        (labels[:1], "points of 1 image for 2 images"),
        (labels[:, :2], "the model finds 3 points, the labels have 2"),
        (labels[..., 0], "labels of points are"),
        (np.zeros_like(labels), "all labeled points of an image are the same"),
    ):
        with pytest.raises(UsageError, match=message):
            tc.evaluate(landmarks(), "images", wrong, metrics="nme", decode="points2d")
    with pytest.raises(UsageError, match="head 'classes' finds no points"):
        tc.evaluate(landmarks(), "images", labels, metrics="nme")


def test_masks_of_one_channel() -> None:
    pixels = np.array([[0, 100, 140, 255]] * 4, np.uint8)
    Image.fromarray(pixels).save("images/a.png")
    model = passing((1, 1, 4, 4), (1, 1, 4, 4), "color=GRAY,scale=0.00392156862745098")
    labels = [np.array([[0, 0, 1, 1]] * 3 + [[0, 1, 1, 1]])]
    values = tc.evaluate(model, "images", labels, metrics="miou").values
    assert values["pixel_accuracy"] == 15 / 16
    assert values["miou"] == pytest.approx((7 / 8 + 8 / 9) / 2)


def test_boxes_without_the_name_of_a_head() -> None:
    write_scene(Path("images/a.png"), [[1, 60, 0, 0, 32, 32]])
    labels = [{"boxes": [[0, 0, 32, 32]], "classes": [0]}]
    assert tc.evaluate(detector(), "images", labels, metrics="map").values["map"] == 1.0
    with pytest.raises(UsageError, match="metric 'map' for outputs of the head 'mask', which finds no boxes"):
        tc.evaluate(passing((1, 1, 64, 64), (1, 1, 64, 64), "color=GRAY,scale=0.001"), "images", labels, metrics="map")
