"""Decoders of detectors: outputs that encode known boxes, and functions of the user."""

from collections.abc import Mapping

import numpy as np
import pytest

from tpuconvert.outputs.boxes import Detections
from tpuconvert.outputs.decoders import check_detections, decoder_names, find_decoder, user_decoder
from tpuconvert.schema.errors import UsageError

SIZE = (32, 64)
"""(height, width) of the input."""

BOX = [8.0, 4.0, 24.0, 28.0]
CENTER = [16.0, 16.0, 16.0, 24.0]
"""``BOX`` as center x, center y, width, height."""


def decode(name: str, outputs: Mapping[str, np.ndarray], least: float = 0.1) -> list[tuple[list[float], float, int]]:
    found = find_decoder(name)(outputs, SIZE, least)
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
    with pytest.raises(UsageError, match="the decoder expects cls_8, obj_8 and bbox_8"):
        decode("yunet", outputs)


def test_fastestdet() -> None:
    """The box lies around the corner of the cell (row 1, column 3) of a grid of 2 x 4 cells of 16 pixels."""
    grid = np.zeros((1, 5 + 3, 2, 4), np.float32)
    grid[0, :, 1, 3] = 0.5, np.arctanh(0.5), 0, 0, np.log(0.25 / 0.75), 0.2, 0.8, 0.7
    score = round(0.5**0.6 * 0.8**0.4, 5)
    assert decode("fastestdet", {"y": grid}) == [([40.0, 12.0, 72.0, 20.0], score, 1)]


@pytest.mark.parametrize("name", decoder_names())
def test_unsuitable_outputs_are_described(name: str) -> None:
    with pytest.raises(UsageError, match=r"the model's outputs are 'y' \[1, 10\], the decoder expects") as caught:
        decode(name, {"y": np.zeros((1, 10), np.float32)})
    assert "module:function" in str(caught.value.hint)


def test_unknown_decoder() -> None:
    with pytest.raises(UsageError, match="there is no decoder 'yolo99'") as caught:
        find_decoder("yolo99")
    assert all(name in str(caught.value.hint) for name in decoder_names())


def test_user_decoder() -> None:
    assert user_decoder("yolov5") is None
    assert user_decoder("math:floor") is not None
    found = check_detections(([[0, 0, 1, 1]], [0.5], [3]), "f")
    assert isinstance(found, Detections) and found.boxes.dtype == np.float64 and found.classes.tolist() == [3]
    assert len(check_detections(([], [], []), "f").scores) == 0
    with pytest.raises(UsageError, match=r"f returned arrays \[1, 3\], \[1\], \[1\]"):
        check_detections(([[0, 0, 1]], [0.5], [3]), "f")
    with pytest.raises(UsageError, match="f returned NoneType"):
        check_detections(None, "f")
