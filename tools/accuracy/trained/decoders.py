"""Detections from the outputs of the detectors of the catalog, in pixels of the model's input."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tpuconvert.schema.arithmetic.boxes import Detections, boxes_in_cells, corners_of
from tpuconvert.schema.types import Array

Outputs = Mapping[str, Array]
Decoder = Callable[..., Detections]


def sigmoid(logits: Array) -> Array:
    """Return the logistic function, without overflow."""
    result: Array = 1 / (1 + np.exp(-np.clip(logits.astype(np.float64), -80, 80)))
    return result


def yolov8(outputs: Outputs, threshold: float, output: str) -> Detections:
    """Decode [1, 4 + classes, N]: center x, center y, width, height, and scores of the classes."""
    rows = outputs[output][0].T.astype(np.float64)
    return _best_classes(corners_of(rows[:, :2], rows[:, 2:4]), rows[:, 4:], threshold)


def yolox(outputs: Outputs, threshold: float, output: str, size: Sequence[int]) -> Detections:
    """Decode [1, N, 5 + classes]: center in cells, logarithms of the extents in cells, objectness, scores."""
    rows = outputs[output][0].astype(np.float64)
    cells = _cells(size, [(8, 1), (16, 1), (32, 1)], 0)
    stride = cells[:, 2:]
    boxes = boxes_in_cells(rows, cells[:, :2], stride)
    return _best_classes(boxes, rows[:, 4:5] * rows[:, 5:], threshold)


def picodet(
    outputs: Outputs, threshold: float, scores: Sequence[str], boxes: Sequence[str], size: Sequence[int]
) -> Detections:
    """Decode scores [1, N, classes] and distributions of the distances to the sides [1, N, 4 * bins] per stride."""
    probabilities = np.concatenate([outputs[name][0] for name in scores]).astype(np.float64)
    logits = np.concatenate([outputs[name][0] for name in boxes]).astype(np.float64)
    logits = logits.reshape(len(logits), 4, -1)
    weights = np.exp(logits - logits.max(axis=2, keepdims=True))
    distances = weights / weights.sum(axis=2, keepdims=True) @ np.arange(logits.shape[2])
    cells = _cells(size, [(8, 1), (16, 1), (32, 1), (64, 1)], 0.5)
    distances *= cells[:, 2:]
    first, last = cells[:, :2] - distances[:, :2], cells[:, :2] + distances[:, 2:]
    return _best_classes(np.concatenate([first, last], axis=1), probabilities, threshold)


def centers(outputs: Outputs, threshold: float, heat: str, sizes: str, offsets: str, stride: int) -> Detections:
    """Decode a heat map [1, 1, H, W], logarithms of height and width, and offsets of y and x [1, 2, H, W]."""
    scores = outputs[heat][0, 0].astype(np.float64)
    rows, columns = np.nonzero(scores > threshold)
    extents = np.exp(outputs[sizes][0][:, rows, columns].astype(np.float64)) * stride
    shift = outputs[offsets][0][:, rows, columns].astype(np.float64)
    x, y = (columns + shift[1] + 0.5) * stride, (rows + shift[0] + 0.5) * stride
    boxes = corners_of(np.stack([x, y], axis=1), extents[::-1].T)
    return Detections(boxes, scores[rows, columns], np.zeros(len(rows), np.int64))


def anchors(
    outputs: Outputs, threshold: float, boxes: str, scores: str, size: Sequence[int], anchors: Sequence[Sequence[int]]
) -> Detections:
    """Decode boxes and points [1, N, 4 + 2 * points] relative to the centers of cells, and logits [1, N, 1].

    Args:
        outputs: outputs of the model.
        threshold: smallest score.
        boxes: name of the output of boxes and points.
        scores: name of the output of scores.
        size: height and width of the input.
        anchors: stride and number of anchors per cell, of each layer.
    """
    rows = outputs[boxes][0].astype(np.float64)
    origin = _cells(size, anchors, 0.5)[:, :2]
    located = corners_of(rows[:, :2] + origin, rows[:, 2:4])
    points = rows[:, 4:].reshape(len(rows), -1, 2) + origin[:, np.newaxis]
    probabilities = sigmoid(outputs[scores].reshape(-1))
    return Detections(located, probabilities, np.zeros(len(rows), np.int64), points).take(probabilities > threshold)


def _best_classes(boxes: Array, scores: Array, threshold: float) -> Detections:
    """Return the boxes with their best class, if its score is above the threshold."""
    best = scores.max(axis=1)
    return Detections(boxes, best, scores.argmax(axis=1)).take(best > threshold)


def _cells(size: Sequence[int], layers: Sequence[Sequence[int]], offset: float) -> Array:
    """Return x, y and stride of the cells of layers, each given by its stride and its number of boxes per cell.

    Args:
        size: height and width of the input.
        layers: stride and number of boxes of each layer.
        offset: position in the cell, 0 for its corner and 0.5 for its center.
    """
    tables = []
    for stride, count in layers:
        y, x = np.mgrid[: -(-size[0] // stride), : -(-size[1] // stride)].reshape(2, -1)
        table = np.stack([(x + offset) * stride, (y + offset) * stride, np.full(len(x), stride)], axis=1)
        tables.append(np.repeat(table, count, axis=0))
    return np.concatenate(tables).astype(np.float64)


DECODERS: dict[str, Decoder] = {
    "anchors": anchors,
    "centers": centers,
    "picodet": picodet,
    "yolov8": yolov8,
    "yolox": yolox,
}
