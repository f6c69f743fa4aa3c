"""``tpuconvert run`` with --draw, --labels and --decode."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import tpuconvert as tc
from tests.support.networks.planted_images import classifier, detector, gray, planted
from tpuconvert.__main__ import main
from tpuconvert.outputs.head import recognize_head
from tpuconvert.outputs.labels import labels_of_metadata
from tpuconvert.samples.preprocess import Preprocess

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with a detector, a classifier, and two images."""
    monkeypatch.chdir(tmp_path)
    detector((1, 0.75, (0.25, 0.5, 0.75, 1)), (0, 0.5, (0, 0, 0.5, 0.5))).save("boxes.tpum")
    classifier(0.1, 0.7, 0.2).save("classes.tpum")
    Path("images").mkdir()
    gray(400, 200).save("images/a.png")
    gray(200, 400).save("images/b.bmp")
    Path("two.txt").write_text("cat\ndog\n")
    Path("three.json").write_text('["cat", "dog", "bird"]')
    return tmp_path


def test_one_image_and_a_file(capsys: Captured) -> None:
    assert main(["run", "boxes.tpum", "images/a.png", "--labels", "two.txt", "--draw", "out.jpg"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[-4:] == [
        "a.png  (detection_output)",
        "     0.750  dog  (100, 100) to (300, 200)",
        "     0.500  cat  (0, 0) to (200, 100)",
        "wrote out.jpg",
    ]
    with Image.open("out.jpg") as picture:
        assert (picture.format, picture.size) == ("JPEG", (400, 200))


def test_folder_of_images_and_a_folder(capsys: Captured) -> None:
    assert main(["run", "boxes.tpum", "images", "--draw", "new/results"]) == 0
    assert capsys.readouterr().out.splitlines()[-2:] == ["wrote new/results/a.png", "wrote new/results/b.bmp.png"]
    with Image.open("new/results/b.bmp.png") as picture:
        assert picture.size == (200, 400)


def test_json(capsys: Captured) -> None:
    assert main(["run", "boxes.tpum", "images/a.png", "--labels", "two.txt", "--draw", "o.png", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["drawn"] == ["o.png"]
    [result] = found["results"]
    assert (result["head"], result["height"], result["width"]) == ("detection_output", 200, 400)
    assert result["objects"][0] == {
        "index": 1,
        "label": "dog",
        "score": 0.75,
        "box": [100, 100, 300, 200],
        "points": [],
    }


def test_scores_have_the_names_of_the_classes(capsys: Captured) -> None:
    assert main(["run", "classes.tpum", "images/a.png", "--labels", "three.json"]) == 0
    assert "    a.png  1 dog: 0.7  2 bird: 0.2  0 cat: 0.1" in capsys.readouterr().out.splitlines()
    np.save("x.npy", np.zeros((1, 3, 40, 80), np.float32))
    assert main(["run", "classes.tpum", "x.npy", "--labels", "three.json", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["outputs"][0]["best"][0][0] == {"index": 1, "value": pytest.approx(0.7), "label": "dog"}
    assert found["results"] == []


@pytest.mark.parametrize("source", ["images/a.png", "x.npy"])
def test_wrong_number_of_labels(source: str, capsys: Captured) -> None:
    np.save("x.npy", np.zeros((1, 3, 40, 80), np.float32))
    assert main(["run", "classes.tpum", source, "--labels", "two.txt"]) == 2
    assert "two.txt: 2 labels for a model with 3 classes" in capsys.readouterr().err


def test_label_of_a_class_that_a_detector_found_is_missing(capsys: Captured) -> None:
    Path("one.txt").write_text("cat\n")
    assert main(["run", "boxes.tpum", "images/a.png", "--labels", "one.txt"]) == 2
    assert "one.txt: the model found class 1, which has no label: there are 1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("labels.json", '{"0": "a", "2": "b"}', "the keys are not 0 to 1"),
        ("labels.json", "[1, 2]", "1 is not a label"),
        ("labels.json", "[", "no labels"),
        ("labels.txt", "", "the file is empty"),
    ],
)
def test_damaged_labels(name: str, text: str, message: str, capsys: Captured) -> None:
    Path(name).write_text(text)
    assert main(["run", "classes.tpum", "images/a.png", "--labels", name]) == 4
    assert message in capsys.readouterr().err


def test_json_object_of_labels(capsys: Captured) -> None:
    Path("index.json").write_text('{"1": ["n02", "dog"], "0": ["n01", "cat"], "2": ["n03", "bird"]}')
    assert main(["run", "classes.tpum", "images/a.png", "--labels", "index.json"]) == 0
    assert "1 dog: 0.7" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["images", "--draw", "images"], "images: this file is read"),
        (["images/a.png", "--draw", "images/a.png"], "images/a.png: this file is read"),
        (["images", "--draw", "out.png"], "out.png: one file for 2 images"),
        (["images/a.png", "--draw", "out.gif"], "name a .png or .jpg or .jpeg file, or a folder"),
        (["images/a.png", "--draw", "two.txt"], "two.txt: is a file, expected a folder"),
        (["x.npy", "--draw", "out.png"], "--draw is for image files, the inputs are arrays"),
        (["images/a.png", "--decode", "yunett"], "did you mean 'yunet'?"),
        (["images/a.png", "--decode", "yolov8"], "the head expects one output [1, 4 + classes, N]"),
    ],
)
def test_refused_calls(arguments: list[str], message: str, capsys: Captured) -> None:
    np.save("x.npy", np.zeros((1, 3, 40, 80), np.float32))
    before = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}
    assert main(["run", "boxes.tpum", *arguments]) == 2
    assert message in capsys.readouterr().err
    assert {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()} == before


def test_function_that_decodes() -> None:
    def decode(outputs: Any, size: tuple[int, int]) -> Any:
        return [[0, 0, size[1], size[0]]], [1.0], [0], [[[3, 4]]]

    with tc.Session("boxes.tpum") as session:
        (item,) = session.draw("images/a.png", decode=decode, labels=["all"]).found.objects
    assert (item.label, item.box, item.points) == ("all", (0, 0, 400, 200), ((3, 4),))


def test_labels_of_the_metadata_are_used_if_they_fit() -> None:
    metadata = {"outputs": [{"name": "y", "labels": ["cat", "dog", "bird"]}, {}]}
    assert labels_of_metadata(metadata, 0).fit(3).name(1) == "dog"
    assert labels_of_metadata(metadata, None).names == ("cat", "dog", "bird")
    assert labels_of_metadata(metadata, 0).fit(4).name(1) == "class 1"
    for other in ({}, {"outputs": "x"}, {"outputs": [{"labels": [1]}]}, {"outputs": [{"labels": "ab"}]}):
        assert labels_of_metadata(other, None).names == ()


@pytest.mark.parametrize(
    ("shapes", "head"),
    [
        ([(1, 10)], "classes"),
        ([(1, 1, 1, 7)], "detection_output"),
        ([(1, 10, 1, 1)], "classes"),
        ([(1, 1, 200, 7)], "detection_output"),
        ([(1, 6300, 85)], "yolov5"),
        ([(1, 84, 2100)], "yolov8"),
        ([(1, 100, 4), (1, 100, 3)], "ssd"),
        ([(1, 100, 2), (1, 100, 4)], "ssd"),
        ([(1, 21, 320, 320)], "segmentation"),
        ([(1, 21, 40, 40)], "segmentation"),
        ([(1, 85, 20, 20)], ""),
        ([(1, 1, 320, 320)], "mask"),
        ([(1, 320, 320)], ""),
        ([(1, 10), (1, 20)], ""),
        ([(1, 1, 1, 1404), (1, 1, 1, 1)], "points3d"),
    ],
)
def test_head_is_found_from_the_shapes_of_the_outputs(shapes: list[tuple[int, ...]], head: str) -> None:
    outputs = {f"y{index}": np.zeros(shape, np.float32) for index, shape in enumerate(shapes)}
    rule = Preprocess(size=(320, 320))
    if head:
        assert recognize_head(outputs, rule).name == head
    else:
        with pytest.raises(tc.UsageError, match="the meaning of the outputs is not known: 'y0'"):
            recognize_head(outputs, rule)


def test_batch_of_images(capsys: Captured) -> None:
    scores = np.array([[0.9, 0.1], [0.2, 0.8]], np.float32)
    planted({"y": scores}, batch=2).save("batch.tpum")
    assert main(["run", "batch.tpum", "images", "--labels", "two.txt", "--json"]) == 0
    results = json.loads(capsys.readouterr().out)["results"]
    assert [result["classes"][0]["label"] for result in results] == ["cat", "dog"]
    assert [(result["width"], result["height"]) for result in results] == [(400, 200), (200, 400)]
