"""Small networks with the heads of detectors, text and segmentation networks, in the layouts of their exports.

The score convolutions have a large negative bias, so that few positions respond. Two levels have strides 4 and 8.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.support.quantize.onnx_builder import OnnxNet

SIZE = 64
STRIDES = (4, 8)
CLASSES = 3
POSITIONS = sum((SIZE // stride) ** 2 for stride in STRIDES)

Built = tuple[OnnxNet, Sequence[str]]


class Head:
    """A backbone with two levels, and convolutions for their predictions."""

    def __init__(self, seed: int = 0) -> None:
        self.net = OnnxNet(seed)
        x = self.net.add("Relu", self.net.conv(self.net.input("x", 1, 3, SIZE, SIZE), 8, stride=2))
        self.maps = []
        for _ in STRIDES:
            x = self.net.add("Relu", self.net.conv(x, 16, stride=2))
            self.maps.append(x)

    def conv(self, level: int, channels: int, bias: Any = 0.0, scale: float = 0.3) -> str:
        """1x1 convolution of a level."""
        net = self.net
        weight = net.normal(channels, 16, 1, 1, scale=scale)
        return net.add("Conv", self.maps[level], weight, net.constant(np.full(channels, bias, np.float32)))

    def scores(self, level: int, classes: int = CLASSES, bias: float = -4.0) -> str:
        """Logits of which few are positive."""
        return self.conv(level, classes, bias, 0.5)

    def list_of(self, x: str, channels: int, *, last: bool = True) -> str:
        """[1, A * C, H, W] to [1, H * W * A, C], or to [1, C, H * W]."""
        if not last:
            return self.net.reshape(x, 1, channels, -1)
        return self.net.reshape(self.net.permute(x, 0, 2, 3, 1), 1, -1, channels)

    def joined(self, parts: Sequence[str], axis: int = 1) -> str:
        """Concatenate."""
        return self.net.add("Concat", *parts, axis=axis)

    def grid(self, anchors: int = 1) -> np.ndarray:
        """Centers in pixels [positions, 2], x and y."""
        rows = []
        for stride in STRIDES:
            y, x = np.mgrid[: SIZE // stride, : SIZE // stride]
            centers = (np.stack([x, y], axis=-1).reshape(-1, 2) + 0.5) * stride
            rows.append(np.repeat(centers, anchors, axis=0))
        return np.concatenate(rows).astype(np.float32)


def yolov8() -> Built:
    """[1, 4 + C, positions]: boxes in pixels, scores."""
    head = Head()
    net = head.net
    boxes = head.joined([head.list_of(head.conv(level, 4), 4, last=False) for level in (0, 1)], 2)
    logits = head.joined([head.list_of(head.scores(level), CLASSES, last=False) for level in (0, 1)], 2)
    offsets, sizes = net.add("Split", boxes, net.constant(np.array([2, 2])), outputs=2, axis=1)
    center = net.add("Add", offsets, net.constant(head.grid().T[np.newaxis]))
    extent = net.add("Mul", net.add("Exp", net.add("Tanh", sizes)), net.constant(np.float32(12.0)))
    return net, [head.joined([center, extent, net.add("Sigmoid", logits)])]


def yolov5() -> Built:
    """[1, anchors * positions, 5 + C]: boxes in pixels, objectness and scores of one convolution."""
    head, parts = Head(), []
    net = head.net
    for level, stride in enumerate(STRIDES):
        weight = net.normal(3 * (5 + CLASSES), 16, 1, 1, scale=0.4)
        bias = np.tile(np.r_[np.zeros(4), np.full(1 + CLASSES, -2.0)], 3).astype(np.float32)
        x = net.add("Conv", head.maps[level], weight, net.constant(bias))
        x = net.reshape(x, 1, 3, 5 + CLASSES, (SIZE // stride) ** 2)
        x = net.reshape(net.add("Sigmoid", net.permute(x, 0, 1, 3, 2)), 1, -1, 5 + CLASSES)
        xy, wh, rest = net.add("Split", x, net.constant(np.array([2, 2, 1 + CLASSES])), outputs=3, axis=2)
        xy = net.add(
            "Mul", net.add("Add", xy, net.normal(1, 3 * (SIZE // stride) ** 2, 2)), net.constant(np.float32(4))
        )
        wh = net.add("Mul", net.add("Mul", wh, wh), net.constant(np.float32(64.0)))
        parts.append(head.joined([xy, wh, rest], 2))
    return net, [head.joined(parts)]


def yolox() -> Built:
    """[1, positions, 5 + C]: boxes relative to the cell, objectness and scores of three convolutions."""
    head, parts = Head(), []
    for level in (0, 1):
        objectness, scores = (
            head.net.add("Sigmoid", head.scores(level, count, bias)) for count, bias in ((1, -2.0), (CLASSES, -1.0))
        )
        parts.append(head.list_of(head.joined([head.conv(level, 4), objectness, scores]), 5 + CLASSES))
    return head.net, [head.joined(parts)]


def nanodet() -> Built:
    """[1, positions, C + 4 * 8]: scores, and distributions of the distances to the four sides."""
    head = Head()
    parts = [
        head.list_of(head.joined([head.net.add("Sigmoid", head.scores(level)), head.conv(level, 32)]), CLASSES + 32)
        for level in (0, 1)
    ]
    return head.net, [head.joined(parts)]


def picodet() -> Built:
    """Scores [1, positions, C] and distributions [1, positions, 4 * 8] of each level."""
    head = Head()
    scores = [head.list_of(head.net.add("Sigmoid", head.scores(level)), CLASSES) for level in (0, 1)]
    return head.net, [*scores, *(head.list_of(head.conv(level, 32), 32) for level in (0, 1))]


def ssd() -> Built:
    """Probabilities [1, positions, 1 + C] with the background first, and corners [1, positions, 4]."""
    head = Head()
    net = head.net
    logits = head.joined([head.list_of(head.scores(level, 2 * (1 + CLASSES)), 1 + CLASSES) for level in (0, 1)])
    logits = net.add("Add", logits, net.constant(np.array([7, 0, 0, 0], np.float32)))
    raw = head.joined([head.list_of(head.conv(level, 8), 4) for level in (0, 1)])
    grid = head.grid(2)
    corners = net.add("Add", raw, net.constant(np.concatenate([grid - 6, grid + 6], axis=1)[np.newaxis]))
    return net, [net.add("Softmax", logits, axis=2), corners]


def anchors() -> Built:
    """Logits [1, positions, 1]; offsets, sizes in pixels and landmarks [1, positions, 6] of two anchors per cell."""
    head = Head()
    sizes = np.tile(np.array([0, 0, 30, 30, 0, 0]), 2)
    boxes = head.joined([head.list_of(head.conv(level, 12, sizes), 6) for level in (0, 1)])
    logits = head.joined([head.list_of(head.scores(level, 2), 1) for level in (0, 1)])
    return head.net, [boxes, logits]


def yunet() -> Built:
    """Scores, objectness, boxes relative to the cell and landmarks of each level, in outputs of their own."""
    head, outputs = Head(), []
    for level in (0, 1):
        outputs += [head.list_of(head.net.add("Sigmoid", head.scores(level, 1, -2.0)), 1) for _ in range(2)]
        outputs += [head.list_of(head.conv(level, channels), channels) for channels in (4, 10)]
    return head.net, outputs


def fastestdet() -> Built:
    """[1, 5 + C, rows, columns]: objectness, box relative to the cell, probabilities of the classes."""
    head = Head()
    net = head.net
    objectness = net.add("Sigmoid", head.scores(0, 1))
    classes = net.add("Softmax", head.conv(0, CLASSES), axis=1)
    return net, [head.joined([objectness, head.conv(0, 4), classes])]


def centernet() -> Built:
    """Scores [1, 1, rows, columns], sizes and offsets [1, 2, rows, columns]."""
    head = Head()
    return head.net, [head.net.add("Sigmoid", head.scores(0, 1)), head.conv(0, 2), head.conv(0, 2)]


def detr() -> Built:
    """Logits [1, queries, 7] of six classes with the background last, and boxes [1, queries, 4] from 0 to 1."""
    head = Head()
    net = head.net
    tokens = head.list_of(head.maps[1], 16)
    logits = net.add("Add", net.dense(tokens, 7), net.constant(np.array([0] * 6 + [3], np.float32)))
    boxes = net.add("Add", net.dense(tokens, 4), net.constant(np.array([0, 0, -4, -4], np.float32)))
    return net, [logits, net.add("Sigmoid", boxes)]


DETECTORS: dict[str, Callable[[], Built]] = {
    function.__name__: function
    for function in (yolov8, yolov5, yolox, nanodet, picodet, ssd, anchors, yunet, fastestdet, centernet, detr)
}


def yolov6() -> Built:
    """[1, positions, 5 + C] of strides 8, 16 and 32: boxes in pixels, the constant 1, scores."""
    net = OnnxNet(0)
    x = net.input("x", 1, 3, SIZE, SIZE)
    for channels in (8, 16):
        x = net.add("Relu", net.conv(x, channels, stride=2))
    boxes, scores = [], []
    for stride in (8, 16, 32):
        x = net.add("Relu", net.conv(x, 16, stride=2))
        side = SIZE // stride
        y, columns = np.mgrid[:side, :side].reshape(2, -1)
        centers = (np.stack([columns, y], axis=1) + 0.5).astype(np.float32) * stride
        weight = net.normal(4, 16, 1, 1, scale=0.3)
        raw = net.permute(net.reshape(net.add("Conv", x, weight), 1, 4, -1), 0, 2, 1)
        extents = net.constant(np.concatenate([centers, np.full((side * side, 2), stride)], axis=1, dtype=np.float32))
        boxes.append(net.add("Add", raw, extents))
        bias = net.constant(np.full(CLASSES, -3.0, np.float32))
        logits = net.add("Conv", x, net.normal(CLASSES, 16, 1, 1, scale=0.7), bias)
        scores.append(net.permute(net.reshape(net.add("Sigmoid", logits), 1, CLASSES, -1), 0, 2, 1))
    ones = net.constant(np.ones((1, 84, 1), np.float32))
    parts = (net.add("Concat", *boxes, axis=1), ones, net.add("Concat", *scores, axis=1))
    return net, [net.add("Concat", *parts, axis=2)]


def selected() -> Built:
    """[1, 50, 6]: corners in pixels, score and class of the best positions, as of YOLO26."""
    net, (boxes,) = yolov8()
    rows = net.permute(boxes, 0, 2, 1)
    middle, half, classes = net.add("Split", rows, net.constant(np.array([2, 2, CLASSES])), outputs=3, axis=2)
    corners = net.add("Concat", net.add("Sub", middle, half), net.add("Add", middle, half), axis=2)
    best = net.add("ReduceMax", classes, axes=[2], keepdims=0)
    scores, index = net.add("TopK", best, net.constant(np.array([50])), outputs=2, axis=1)
    of_best = net.add("Gather", net.reshape(classes, -1, CLASSES), index, axis=0)
    number = net.add("ArgMax", of_best, axis=2, keepdims=0)
    chosen = net.add("Gather", net.reshape(corners, -1, 4), index, axis=0)
    number = net.reshape(net.add("Cast", number, to=1), 1, 50, 1)
    return net, [net.add("Concat", chosen, net.reshape(scores, 1, 50, 1), number, axis=2)]


def text(*, softmax: bool = True, steps_first: bool = False, blank: int = 0, bias: float = 5.0) -> Built:
    """Scores [1, steps, classes], or [steps, 1, classes], with the blank class the most frequent one."""
    net = OnnxNet(1)
    x = net.conv(net.input("x", 1, 3, 4, 48), 16)
    x = net.reshape(net.permute(net.add("ReduceMean", x, axes=[2], keepdims=0), 0, 2, 1), 48, 16)
    weight, offset = net.normal(16, 40, scale=1.0), np.zeros(40, np.float32)
    offset[blank] = bias
    logits = net.add("Add", net.add("MatMul", x, weight), net.constant(offset))
    logits = net.reshape(logits, *((48, 1, 40) if steps_first else (1, 48, 40)))
    return net, [net.add("Softmax", logits, axis=-1) if softmax else logits]


def mask(channels: int = 1, *, softmax: bool = False, last: bool = False) -> Built:
    """Probabilities of every pixel."""
    net = OnnxNet(2)
    x = net.add("Relu", net.conv(net.input("x", 1, 3, 32, 32), 8))
    logits = net.conv(x, channels)
    y = net.add("Softmax", logits, axis=1) if softmax else net.add("Sigmoid", logits)
    return net, [net.permute(y, 0, 2, 3, 1) if last else y]


def segmentation(channels: int = 6) -> Built:
    """Logits of classes at the extents of the input."""
    net = OnnxNet(3)
    x = net.add("Relu", net.conv(net.input("x", 1, 3, 32, 32), 8))
    return net, [net.conv(x, channels)]


def classifier(*, softmax: bool = True) -> Built:
    """Scores of 12 classes."""
    net = OnnxNet(4)
    x = net.add("Relu", net.conv(net.input("x", 1, 3, 16, 16), 8))
    logits = net.dense(net.add("Flatten", net.add("GlobalMaxPool", x)), 12)
    return net, [net.add("Softmax", logits, axis=-1) if softmax else logits]
