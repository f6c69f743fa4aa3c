"""Networks that end in the nodes of published exports of detectors.

Their inputs are the maps of the last convolutions, chosen so that the outputs encode ``planted_heads.OBJECTS``. Every
map passes through a 1x1 convolution.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from tests.support.networks import planted_heads
from tests.support.networks.planted_heads import CLASSES, SIZE, cells
from tests.support.quantize.onnx_builder import OnnxNet
from tpuconvert.schema.types import Array

STRIDES = (8, 16, 32)
BINS = 16
ANCHORS = {
    8: [(10, 13), (16, 30), (33, 23)],
    16: [(30, 61), (62, 45), (59, 119)],
    32: [(116, 90), (156, 198), (373, 326)],
}
"""Of ``models/yolov5s.yaml``, in pixels."""


class Export:
    """A network under construction, with the values of its inputs."""

    def __init__(self) -> None:
        self.net = OnnxNet(0)
        self.feed: dict[str, Array] = {}
        self.outputs: list[str] = []

    def add(self, op: str, *inputs: str | Array | float, **attributes: object) -> str:
        """Append a node; operands that are not names are constants."""
        names = [item if isinstance(item, str) else self.net.constant(np.asarray(item)) for item in inputs]
        result: str = self.net.add(op, *names, **attributes)
        return result

    def map(self, name: str, values: Array) -> str:
        """Return the result of a convolution that copies an input [1, C, rows, columns] with these values."""
        self.feed[name] = values.astype(np.float32)
        count = values.shape[1]
        weight = np.eye(count, dtype=np.float32).reshape(count, count, 1, 1)
        return self.add("Conv", self.net.input(name, *values.shape), weight, np.zeros(count, np.float32))

    def table(self, name: str, rows: Array, strides: Sequence[int] = STRIDES, each: Sequence[int] = (1, 1, 1)) -> str:
        """Return a tensor [1, N, C] with these values [N, C], whose rows come from one map for each stride."""
        parts, first = [], 0
        width = rows.shape[1]
        for stride, count in zip(strides, each, strict=True):
            shape = (SIZE[0] // stride, SIZE[1] // stride, count * width)
            last = first + math.prod(shape) // width
            values = rows[first:last].reshape(1, *shape).transpose(0, 3, 1, 2)
            parts.append(
                self.net.reshape(
                    self.net.permute(self.map(f"{name}_{stride}_{first}", values), 0, 2, 3, 1), 1, -1, width
                )
            )
            first = last
        return self.add("Concat", *parts, axis=1) if len(parts) > 1 else parts[0]

    def split(self, x: str, *widths: int) -> list[str]:
        """Split the last axis."""
        results: list[str] = self.net.add("Split", x, self.net.constant(np.array(widths)), outputs=len(widths), axis=2)
        return results


def logit(share: Array | float) -> Array:
    """Inverse of the logistic function; shares of 0 give -7."""
    clipped = np.clip(np.asarray(share, np.float64), 1e-3, 1 - 1e-3)
    result: Array = np.log(clipped / (1 - clipped))
    return result


def grid(each: int = 1) -> tuple[Array, Array]:
    """Column and row, and stride of every box, [1, N, 2] and [1, N, 1]."""
    rows = np.array(list(cells(each=(each,) * 3)), np.float32)
    return rows[np.newaxis, :, :2], rows[np.newaxis, :, 2:3]


def scores(objectness: bool = False) -> Array:
    """Logits [N, classes] of the planted objects at the cells of stride 16; with objectness the first column."""
    table = planted_heads.yolo(None if objectness else 0.0)["output"][0]
    return logit(table[:, 4:] if objectness else table[:, 5:])


def distances() -> Array:
    """Distances from the center of the cell to the four sides, in cells [N, 4]."""
    boxes = planted_heads.yolo(0.0)["output"][0][:, :4].astype(np.float64)
    (corner, stride) = (array[0] for array in grid())
    centers = (corner + 0.5) * stride
    first, last = centers - (boxes[:, :2] - boxes[:, 2:] / 2), boxes[:, :2] + boxes[:, 2:] / 2 - centers
    return np.concatenate([first, last], axis=1) / stride


def corners(export: Export, sides: str) -> tuple[str, str]:
    """Nodes for the corners of boxes, in cells, from the distances [1, N, 4]."""
    corner, _ = grid()
    first, last = export.split(sides, 2, 2)
    return export.add("Sub", corner + np.float32(0.5), first), export.add("Add", corner + np.float32(0.5), last)


def centers(export: Export, sides: str) -> str:
    """Nodes for center and extents in pixels [1, N, 4], as ``dist2bbox`` of YOLOv6 and v8."""
    first, last = corners(export, sides)
    middle = export.add("Div", export.add("Add", first, last), np.float32(2))
    both = export.add("Concat", middle, export.add("Sub", last, first), axis=2)
    return export.add("Mul", both, grid()[1])


def yolov5() -> Export:
    """``Detect.forward`` of https://github.com/ultralytics/yolov5, ``models/yolo.py``."""
    export = Export()
    rows = list(cells(each=(3, 3, 3)))
    table = planted_heads.yolo(None, 3)["output"][0].astype(np.float64)
    sizes = np.array([ANCHORS[stride][number] for _, _, stride, number in rows], np.float32)
    corner, stride = grid(3)
    table[:, :2] = (table[:, :2] / stride[0] - corner[0] + 0.5) / 2
    table[:, 2:4] = np.sqrt(np.minimum(table[:, 2:4] / sizes, 3.9)) / 2
    x = export.add("Sigmoid", export.table("x", logit(table), each=(3, 3, 3)))
    xy, wh, rest = export.split(x, 2, 2, 1 + CLASSES)
    xy = export.add("Mul", export.add("Add", export.add("Mul", xy, np.float32(2)), corner - np.float32(0.5)), stride)
    wh = export.add("Mul", export.add("Pow", export.add("Mul", wh, np.float32(2)), np.float32(2)), sizes[np.newaxis])
    export.outputs = [export.add("Concat", xy, wh, rest, axis=2)]
    return export


def yolov6() -> Export:
    """``Detect.forward`` of https://github.com/meituan/YOLOv6, ``yolov6/models/effidehead.py``."""
    export = Export()
    boxes = centers(export, export.table("box", distances()))
    count = export.net.shapes[boxes][1]
    ones = np.ones((1, count, 1), np.float32)
    export.outputs = [export.add("Concat", boxes, ones, export.add("Sigmoid", export.table("cls", scores())), axis=2)]
    return export


def distributions() -> Array:
    """Logits [N, 4 * bins] whose softmax has the mean ``distances()``."""
    sides = np.clip(distances(), 0.0, BINS - 1.001)
    share = np.maximum(1.0 - np.abs(sides[:, :, np.newaxis] - np.arange(BINS)), 0.0)
    return np.log(np.clip(share, 1e-7, 1)).reshape(len(sides), -1)


def yolov8_boxes(export: Export) -> str:
    """Nodes for the distances [1, N, 4], as the module ``DFL``."""
    raw = export.net.reshape(export.table("box", distributions()), 1, -1, 4, BINS)
    shares = export.add("Softmax", raw, axis=3)
    return export.net.reshape(export.add("MatMul", shares, np.arange(BINS, dtype=np.float32)[:, np.newaxis]), 1, -1, 4)


def yolov8() -> Export:
    """``Detect.forward`` of https://github.com/ultralytics/ultralytics, ``ultralytics/nn/modules/head.py``."""
    export = Export()
    boxes = centers(export, yolov8_boxes(export))
    both = export.add("Concat", boxes, export.add("Sigmoid", export.table("cls", scores())), axis=2)
    export.outputs = [export.net.permute(both, 0, 2, 1)]
    return export


def yolo26() -> Export:
    """The same file with ``end2end``: boxes by their corners, and ``postprocess`` with the best rows."""
    export = Export()
    first, last = corners(export, export.table("box", distances()))
    boxes = export.add("Mul", export.add("Concat", first, last, axis=2), grid()[1])
    classes = export.add("Sigmoid", export.table("cls", scores()))
    best = export.add("ReduceMax", classes, axes=[2], keepdims=0)
    _, index = export.net.add("TopK", best, export.net.constant(np.array([300])), outputs=2, axis=1)
    index = export.add("Unsqueeze", index, np.array([2]))
    boxes = export.add("GatherElements", boxes, export.add("Tile", index, np.array([1, 1, 4])), axis=1)
    classes = export.add("GatherElements", classes, export.add("Tile", index, np.array([1, 1, CLASSES])), axis=1)
    score = export.add("ReduceMax", classes, axes=[2], keepdims=1)
    number = export.add("Cast", export.add("ArgMax", classes, axis=2, keepdims=1), to=1)
    export.outputs = [export.add("Concat", boxes, score, number, axis=2)]
    return export


def yolox() -> Export:
    """``YOLOXHead.forward`` without ``decode_in_inference``."""
    export = Export()
    boxes = planted_heads.yolox()["output"][0][:, :4]
    rest = export.add("Sigmoid", export.table("cls", scores(objectness=True)))
    export.outputs = [export.add("Concat", export.table("reg", boxes), rest, axis=2)]
    return export


def retinaface() -> Export:
    """``RetinaFace.forward`` in the phase "test"."""
    export = Export()
    planted = planted_heads.retinaface()
    loc, conf, marks = (
        export.table(name, np.log(planted[name][0]) if name == "conf" else planted[name][0], each=(2, 2, 2))
        for name in ("loc", "conf", "landms")
    )
    export.outputs = [loc, export.add("Softmax", conf, axis=2), marks]
    return export


def mediapipe() -> Export:
    """The outputs of ``face_detection_short_range.tflite``."""
    export = Export()
    planted = planted_heads.mediapipe([(8, 2), (16, 6)], 6)
    export.outputs = [export.table(name, array[0], (8, 16), (2, 6)) for name, array in planted.items()]
    return export


def centerface() -> Export:
    """The outputs of ``centerface.onnx``."""
    export = Export()
    maps = list(planted_heads.centerface().items())
    heat = export.add("Sigmoid", export.map(maps[0][0], logit(maps[0][1])))
    export.outputs = [heat, *(export.map(name, array) for name, array in maps[1:])]
    return export


def ssd() -> Export:
    """Corners from 0 to 1 of the decoder, and a softmax."""
    export = Export()
    planted = planted_heads.yolo(0.0)["output"][0]
    half = planted[:, 2:4] / 2
    boxes = np.concatenate([planted[:, :2] - half, planted[:, :2] + half], axis=1) / SIZE[0]
    rows = np.concatenate([1 - planted[:, 5:].sum(axis=1, keepdims=True), planted[:, 5:]], axis=1)
    logits = np.log(np.clip(rows, 1e-4, 1))
    export.outputs = [export.add("Softmax", export.table("cls", logits), axis=2), export.table("box", boxes)]
    return export


EXPORTS: dict[str, Callable[[], Export]] = {
    "yolov5": yolov5,
    "yolov6": yolov6,
    "yolov8": yolov8,
    "yolo26": yolo26,
    "yolox": yolox,
    "retinaface": retinaface,
    "mediapipe_face": mediapipe,
    "centerface": centerface,
    "ssd": ssd,
}
"""Function by the name of the head."""

FACES = ("retinaface", "mediapipe_face", "centerface")
"""Heads whose objects have one class."""
