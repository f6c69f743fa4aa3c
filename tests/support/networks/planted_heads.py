"""Outputs of published detectors that encode known objects, written from the decoders of these projects."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tpuconvert.schema.types import Array

SIZE = (192, 192)
"""(height, width) of the input."""

Outputs = dict[str, Array]


@dataclass(frozen=True)
class Planted:
    """An object: its box (left, top, right, bottom) in pixels of the input, class and score."""

    box: tuple[float, float, float, float]
    kind: int = 0
    score: float = 0.9

    @property
    def center(self) -> tuple[float, float]:
        return (self.box[0] + self.box[2]) / 2, (self.box[1] + self.box[3]) / 2

    @property
    def extent(self) -> tuple[float, float]:
        return self.box[2] - self.box[0], self.box[3] - self.box[1]

    def points(self, count: int) -> list[tuple[float, float]]:
        """Points on the diagonal of the box."""
        (left, top), (width, height) = self.box[:2], self.extent
        return [(left + width * (k + 1) / (count + 1), top + height * (k + 1) / (count + 1)) for k in range(count)]


OBJECTS = (Planted((20, 30, 60, 90), 1, 0.9), Planted((100, 40, 172, 180), 0, 0.8), Planted((61, 100, 93, 132), 1, 0.6))
CLASSES = 2


def cells(strides: Sequence[int] = (8, 16, 32), each: Sequence[int] = (1, 1, 1)) -> Iterator[tuple[int, int, int, int]]:
    """Yield column, row, stride and number in the cell of every box."""
    for stride, count in zip(strides, each, strict=True):
        for row in range(SIZE[0] // stride):
            for column in range(SIZE[1] // stride):
                for number in range(count):
                    yield column, row, stride, number


def _row_of(item: Planted, rows: Sequence[tuple[int, int, int, int]], stride: int) -> int:
    """Number of the first box of the cell in which the center of an object is."""
    x, y = item.center
    return rows.index((int(x // stride), int(y // stride), stride, 0))


def yolo(objectness: float | None, anchors: int = 1, share: bool = False) -> Outputs:
    """[1, N, 5 + C] with centers and extents in pixels, or as shares of the input."""
    rows = list(cells(each=(anchors,) * 3))
    table = np.zeros((len(rows), 5 + CLASSES), np.float32)
    for line, (column, row, stride, _) in zip(table, rows, strict=True):
        line[:4] = (column + 0.5) * stride, (row + 0.5) * stride, stride, stride
        line[4] = 0.01 if objectness is None else objectness
    for item in OBJECTS:
        line = table[_row_of(item, rows, 16)]
        line[:4] = *item.center, *item.extent
        line[4] = 1.0 if objectness is not None else math.sqrt(item.score)
        line[5 + item.kind] = item.score / line[4]
    if share:
        table[:, :4] /= np.tile(SIZE[::-1], 2)
    return {"output": table[np.newaxis]}


def yolox() -> Outputs:
    """[1, N, 5 + C] with offsets of the center and logarithms of the extents in cells."""
    rows = list(cells())
    table = np.full((len(rows), 5 + CLASSES), 0.01, np.float32)
    table[:, :2] += np.random.default_rng(0).normal(0.5, 0.3, (len(rows), 2))
    for item in OBJECTS:
        index = _row_of(item, rows, 16)
        column, row, stride, _ = rows[index]
        (x, y), (width, height) = item.center, item.extent
        table[index, :4] = x / stride - column, y / stride - row, math.log(width / stride), math.log(height / stride)
        table[index, 4] = math.sqrt(item.score)
        table[index, 5 + item.kind] = math.sqrt(item.score)
    return {"output": table[np.newaxis]}


def yolov8(points: int = 0, share: bool = False) -> Outputs:
    """[1, 4 + C, N], or with one class and keypoints [1, 5 + 3 K, N]."""
    table = yolo(0.0, share=share)["output"][0]
    columns = np.concatenate([table[:, :4], table[:, 5:]], axis=1)
    if points:
        rows = list(cells())
        columns = np.concatenate([columns[:, :4], columns[:, 4:].max(axis=1, keepdims=True)], axis=1)
        marks = np.zeros((len(rows), points, 3), np.float32)
        for item in OBJECTS:
            marks[_row_of(item, rows, 16)] = [(x, y, 0.5) for x, y in item.points(points)]
        columns = np.concatenate([columns, marks.reshape(len(rows), -1)], axis=1)
    return {"output0": columns.T[np.newaxis]}


def yolo26(share: bool = False) -> Outputs:
    """[1, 300, 6]: corners, score, class."""
    table = np.zeros((300, 6), np.float32)
    for line, item in zip(table, OBJECTS, strict=False):
        line[:] = *item.box, item.score, item.kind
    if share:
        table[:, :4] /= np.tile(SIZE[::-1], 2)
    return {"output0": table[np.newaxis]}


def retinaface(small: bool = False, logits: bool = False) -> Outputs:
    """Boxes, scores and landmarks relative to priors, with the variances 0.1 and 0.2."""
    sides = [[10, 16, 24], [32, 48], [64, 96], [128, 192, 256]] if small else [[16, 32], [64, 128], [256, 512]]
    strides = (8, 16, 32, 64)[: len(sides)]
    rows = list(cells(strides, [len(group) for group in sides]))
    boxes, scores = np.zeros((len(rows), 4), np.float32), np.tile(np.float32([0.99, 0.01]), (len(rows), 1))
    marks = np.zeros((len(rows), 10), np.float32)
    for item in OBJECTS:
        index = _row_of(item, rows, 16) + 1
        column, row, stride, number = rows[index]
        side = sides[strides.index(stride)][number]
        center = np.array([column + 0.5, row + 0.5]) * stride
        boxes[index, :2] = (np.array(item.center) - center) / (0.1 * side)
        boxes[index, 2:] = np.log(np.array(item.extent) / side) / 0.2
        marks[index] = ((np.array(item.points(5)) - center) / (0.1 * side)).ravel()
        scores[index] = 1 - item.score, item.score
    scores = np.log(scores) if logits else scores
    return {"loc": boxes[np.newaxis], "conf": scores[np.newaxis], "landms": marks[np.newaxis]}


def mediapipe(layers: Sequence[tuple[int, int]], points: int) -> Outputs:
    """Boxes and keypoints in pixels from the centers of cells, and logits."""
    strides, each = zip(*layers, strict=True)
    rows = list(cells(strides, each))
    table, logits = np.zeros((len(rows), 4 + 2 * points), np.float32), np.full((len(rows), 1), -8.0, np.float32)
    for item in OBJECTS:
        index = _row_of(item, rows, strides[-1])
        column, row, stride, _ = rows[index]
        center = np.array([column + 0.5, row + 0.5]) * stride
        table[index, :2] = np.array(item.center) - center
        table[index, 2:4] = item.extent
        table[index, 4:] = (np.array(item.points(points)) - center).ravel()
        logits[index] = math.log(item.score / (1 - item.score))
    return {"regressors": table[np.newaxis], "classificators": logits[np.newaxis]}


def centerface() -> Outputs:
    """Maps of scores, logarithms of height and width, offsets (y, x), and landmarks (y, x) as shares of the box."""
    shape = (SIZE[0] // 4, SIZE[1] // 4)
    heat, extents, offsets = np.zeros((1, *shape)), np.zeros((2, *shape)), np.zeros((2, *shape))
    marks = np.zeros((10, *shape))
    for item in OBJECTS:
        (x, y), (width, height) = item.center, item.extent
        row, column = int(y // 4), int(x // 4)
        heat[0, row, column] = item.score
        extents[:, row, column] = math.log(height / 4), math.log(width / 4)
        offsets[:, row, column] = y / 4 - row - 0.5, x / 4 - column - 0.5
        places = (np.array(item.points(5)) - item.box[:2]) / item.extent
        marks[:, row, column] = places[:, ::-1].ravel()
    arrays = {"537": heat, "538": extents, "539": offsets, "540": marks}
    return {name: array[np.newaxis].astype(np.float32) for name, array in arrays.items()}


def tflite_detection() -> Outputs:
    """Boxes (top, left, bottom, right), scores, classes and their number; ten rows."""
    boxes, classes, scores = np.zeros((10, 4), np.float32), np.zeros(10, np.float32), np.zeros(10, np.float32)
    for index, item in enumerate(OBJECTS):
        left, top, right, bottom = item.box
        boxes[index] = top / SIZE[0], left / SIZE[1], bottom / SIZE[0], right / SIZE[1]
        classes[index], scores[index] = item.kind, item.score
    scores[len(OBJECTS)] = 0.95  # after the last valid row
    number = np.float32([len(OBJECTS)])
    return {"a": boxes[np.newaxis], "b": classes[np.newaxis], "c": scores[np.newaxis], "d": number}


def ssd() -> Outputs:
    """Boxes from 0 to 1, and scores with the background first."""
    boxes, scores = np.zeros((50, 4), np.float32), np.tile(np.float32([1, 0, 0]), (50, 1))
    for index, item in enumerate(OBJECTS):
        boxes[7 * index] = np.array(item.box) / np.tile(SIZE[::-1], 2)
        scores[7 * index] = 0
        scores[7 * index, 1 + item.kind] = item.score
    return {"scores": scores[np.newaxis], "boxes": boxes[np.newaxis]}


@dataclass(frozen=True)
class Layout:
    """Outputs of one layout.

    Args:
        head: name of the head.
        outputs: function that returns the outputs.
        points: number of points of each object.
        has_classes: False if all objects have the class 0.
    """

    head: str
    outputs: Callable[[], Outputs]
    points: int = 0
    has_classes: bool = True


LAYOUTS = {
    "yolov5": Layout("yolov5", lambda: yolo(None, 3)),
    "yolov5 for TFLite": Layout("yolov5", lambda: yolo(None, 3, share=True)),
    "yolox decoded": Layout("yolov5", lambda: yolo(None)),
    "yolov6": Layout("yolov6", lambda: yolo(1.0)),
    "yolov8": Layout("yolov8", yolov8),
    "yolov8 for TFLite": Layout("yolov8", lambda: yolov8(share=True)),
    "yolov8 pose": Layout("yolov8_pose", lambda: yolov8(17), 17, has_classes=False),
    "yolox": Layout("yolox", yolox),
    "yolo26": Layout("yolo26", yolo26),
    "yolo26 for TFLite": Layout("yolo26", lambda: yolo26(share=True)),
    "retinaface": Layout("retinaface", retinaface, 5, has_classes=False),
    "retinaface logits": Layout("retinaface", lambda: retinaface(logits=True), 5, has_classes=False),
    "retinaface small": Layout("retinaface", lambda: retinaface(small=True), 5, has_classes=False),
    "face full range": Layout("mediapipe_face", lambda: mediapipe([(4, 1)], 6), 6, has_classes=False),
    "face short range": Layout("mediapipe_face", lambda: mediapipe([(8, 2), (16, 6)], 6), 6, has_classes=False),
    "face back": Layout("mediapipe_face", lambda: mediapipe([(16, 2), (32, 6)], 6), 6, has_classes=False),
    "palm": Layout("mediapipe_palm", lambda: mediapipe([(8, 2), (16, 6)], 7), 7, has_classes=False),
    "pose": Layout("mediapipe_pose", lambda: mediapipe([(8, 2), (16, 2), (32, 6)], 4), 4, has_classes=False),
    "centerface": Layout("centerface", centerface, 5, has_classes=False),
    "tflite_detection": Layout("tflite_detection", tflite_detection),
    "ssd": Layout("ssd", ssd),
}
