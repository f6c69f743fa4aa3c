"""Heads: outputs that encode known boxes, recognition, functions of the user, and heads of plugins."""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from tests.support.networks.planted_images import gray, planted
from tpuconvert.__main__ import main
from tpuconvert.outputs import head as registry
from tpuconvert.outputs.detector import BoxHead, UserFunction, check_detections, find_detector
from tpuconvert.outputs.head import DecodedImage, Head, all_heads, detector_names, find_head, recognize_head
from tpuconvert.samples.preprocess import Preprocess
from tpuconvert.schema.arithmetic.boxes import Detections
from tpuconvert.schema.errors import UsageError

SIZE = (32, 64)
"""(height, width) of the input."""

BOX = [8.0, 4.0, 24.0, 28.0]
CENTER = [16.0, 16.0, 16.0, 24.0]
"""``BOX`` as center x, center y, width, height."""


def decode(name: str, outputs: Mapping[str, np.ndarray], least: float = 0.1) -> list[tuple[list[float], float, int]]:
    head = find_head(name)
    assert isinstance(head, BoxHead)
    found = head.candidates(outputs, SIZE, least)
    return [
        (np.round(box, 5).tolist(), round(float(score), 5), int(kind))
        for box, score, kind in zip(found.boxes, found.scores, found.classes, strict=True)
    ]


def test_yolov5() -> None:
    rows = np.array([[*CENTER, 0.5, 0.8, 0.1, 0.4], [*CENTER, 0.0, 1, 1, 1]], np.float32)
    assert decode("yolov5", {"y": rows[np.newaxis]}) == [(BOX, 0.4, 0), (BOX, 0.2, 2)]


def test_yolov8() -> None:
    rows = np.array([[*CENTER, 0.05, 0.7], [*CENTER, 0.3, 0.0]], np.float32)
    assert decode("yolov8", {"y": rows.T[np.newaxis]}) == [(BOX, 0.7, 1), (BOX, 0.3, 0)]


@pytest.mark.parametrize("classes", [2, 4])
def test_ssd(classes: int) -> None:
    boxes = np.array([[BOX[0] / 64, BOX[1] / 32, BOX[2] / 64, BOX[3] / 32]] * 2, np.float32)
    scores = np.zeros((2, classes), np.float32)
    scores[0] = 0.9
    scores[1, 1] = 0.4
    outputs = {"scores": scores[np.newaxis], "boxes": boxes[np.newaxis]}
    wanted = [(BOX, 0.9, index) for index in range(classes - 1)] + [(BOX, 0.4, 0)]
    assert decode("ssd", outputs) == wanted


def test_detection_output() -> None:
    row = [BOX[0] / 64, BOX[1] / 32, BOX[2] / 64, BOX[3] / 32]
    rows = np.array([[0, 3, 0.8, *row], [-1, 1, 0.9, *row], [0, 0, 0.9, *row], [0, 1, 0.05, *row]], np.float32)
    assert decode("detection_output", {"y": rows[np.newaxis, np.newaxis]}) == [(BOX, 0.8, 2)]


def test_yunet() -> None:
    """The face is in the cell (row 1, column 2) of stride 16, whose corner is (32, 16)."""
    outputs: dict[str, np.ndarray] = {}
    for stride in (8, 16, 32):
        count = (SIZE[0] // stride) * (SIZE[1] // stride)
        outputs |= {f"{kind}_{stride}": np.zeros((1, count, 1), np.float32) for kind in ("cls", "obj")}
        outputs[f"bbox_{stride}"] = np.zeros((1, count, 4), np.float32)
    place = 1 * (64 // 16) + 2
    outputs["cls_16"][0, place], outputs["obj_16"][0, place] = 0.5, 0.32
    outputs["bbox_16"][0, place] = 0.25, -0.5, np.log(0.5), np.log(1.5)
    assert decode("yunet", outputs) == [([32.0, -4.0, 40.0, 20.0], 0.4, 0)]
    del outputs["obj_8"]
    with pytest.raises(UsageError, match="the head expects cls_8, obj_8 and bbox_8"):
        decode("yunet", outputs)


def test_fastestdet() -> None:
    """The box lies around the corner of the cell (row 1, column 3) of a grid of 2 x 4 cells of 16 pixels."""
    grid = np.zeros((1, 5 + 3, 2, 4), np.float32)
    grid[0, :, 1, 3] = 0.5, np.arctanh(0.5), 0, 0, np.log(0.25 / 0.75), 0.2, 0.8, 0.7
    score = round(0.5**0.6 * 0.8**0.4, 5)
    assert decode("fastestdet", {"y": grid}) == [([40.0, 12.0, 72.0, 20.0], score, 1)]


@pytest.mark.parametrize("name", detector_names())
def test_unsuitable_outputs_are_described(name: str) -> None:
    with pytest.raises(UsageError, match=r"the model's outputs are 'y' \[1, 10\], the head expects") as caught:
        decode(name, {"y": np.zeros((1, 10), np.float32)})
    assert "module:function" in str(caught.value.hint)


def test_unknown_head() -> None:
    with pytest.raises(UsageError, match="there is no head 'yellow'") as caught:
        find_head("yellow")
    assert all(name in str(caught.value.hint) for name in detector_names())
    with pytest.raises(UsageError, match="head 'classes' finds no boxes"):
        find_detector("classes")


def test_outputs_of_two_layouts_are_refused() -> None:
    """For an input of 32 x 32 pixels there are 21 cells: 63 rows of 16 classes, or 21 columns of 59 classes."""
    outputs = {"y": np.zeros((1, 63, 21), np.float32)}
    with pytest.raises(UsageError, match=r"several heads have outputs 'y' \[1, 63, 21\]: yolov5, yolov8"):
        recognize_head(outputs, Preprocess(size=(32, 32)))


@pytest.mark.parametrize("head", all_heads(), ids=lambda head: head.name)
def test_other_outputs_are_not_recognized(head: Head) -> None:
    """Every head looks at any names, ranks and extents without an error."""
    for shape in (
        (),
        (1,),
        (0,),
        (1, 1),
        (7,),
        (1, 1, 1),
        (1, 1, 1, 1),
        (1, 3, 5),
        (1, 0, 4),
        (2, 2, 2, 2, 2),
        (1, 1, 3, 7, 7),
    ):
        for count in (1, 2, 3):
            outputs = {f"y{index}": np.zeros(shape, np.float32) for index in range(count)}
            is_recognized = head.matches(outputs, Preprocess(size=SIZE)) and head.fits_labels(outputs, 0)
            assert not is_recognized, (shape, count)


PLUGIN = """
import numpy as np
import tpuconvert as tc
from tpuconvert.outputs.detector import BoxHead
from tpuconvert.schema.arithmetic.boxes import Detections


@tc.register_head("{name}")
class Corner(BoxHead):
    class_names = ("corner",)

    def matches(self, outputs, rule):
        return list(outputs) == ["corner"]

    def candidates(self, outputs, size, min_score):
        x, y, score = outputs["corner"][0]
        return Detections(np.array([[x, y, size[1], size[0]]]), np.array([score]), np.array([0]))
"""


def test_head_of_a_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(registry, "_HEADS", {head.name: head for head in all_heads()})
    monkeypatch.chdir(tmp_path)
    Path("corner.py").write_text(PLUGIN.format(name="corner"))
    Path("twice.py").write_text(PLUGIN.format(name="yolov8"))
    planted({"corner": np.array([[20, 10, 0.75]], np.float32)}).save("net.tpum")
    gray(160, 80).save("a.png")
    for decode in ((), ("--decode", "corner")):
        assert main(["run", "net.tpum", "a.png", "--draw", "b.png", "--json", "--plugin", "corner.py", *decode]) == 0
        [result] = json.loads(capsys.readouterr().out)["results"]
        assert (result["head"], result["objects"][0]["label"]) == ("corner", "corner")
        assert result["objects"][0]["box"] == [40, 20, 160, 80]  # the input has half of the pixels of the image
    assert main(["run", "net.tpum", "a.png", "--plugin", "twice.py"]) == 2
    assert "there is a head 'yolov8' already" in capsys.readouterr().err


def test_user_function() -> None:
    found = find_detector("math:floor")
    assert isinstance(found, UserFunction) and found.name == "math:floor"
    image = DecodedImage(Preprocess(size=SIZE), (8, 4))
    (box,) = find_detector(lambda outputs, size: ([[0, 0, *size]], [1.0], [0])).decode({}, image).boxes
    assert box.tolist() == [0, 0, 8, 4]
    found = check_detections(([[0, 0, 1, 1]], [0.5], [3]), "f")
    assert isinstance(found, Detections) and found.boxes.dtype == np.float64 and found.classes.tolist() == [3]
    assert len(check_detections(([], [], []), "f").scores) == 0
    with pytest.raises(UsageError, match=r"f returned arrays \[1, 3\], \[1\], \[1\]"):
        check_detections(([[0, 0, 1]], [0.5], [3]), "f")
    with pytest.raises(UsageError, match="f returned NoneType"):
        check_detections(None, "f")
