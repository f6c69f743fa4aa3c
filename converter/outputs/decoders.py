"""Decoders: from the outputs of a detector to boxes, scores and classes.

A decoder takes the arrays of one image by output name, with their batch axis, and the size (height, width) of the
model's input in pixels. It returns boxes in pixels of that input, before suppression, that have at least ``min_score``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tpuconvert.outputs.boxes import Detections
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.types import Array
from tpuconvert.user_functions import is_function_name, load_function

Outputs = Mapping[str, Array]
Decoder = Callable[[Outputs, tuple[int, int], float], Detections]

_DECODERS: dict[str, Decoder] = {}


def decoder(name: str) -> Callable[[Decoder], Decoder]:
    """Register a decoder under the name that ``--decode`` takes."""

    def register(function: Decoder) -> Decoder:
        assert name not in _DECODERS, name
        _DECODERS[name] = function
        return function

    return register


def decoder_names() -> tuple[str, ...]:
    """Names of the built-in decoders."""
    return tuple(sorted(_DECODERS))


def find_decoder(name: str) -> Decoder:
    """Return a built-in decoder.

    Raises:
        UsageError: there is none of this name.

    """
    if name not in _DECODERS:
        known = f"one of {', '.join(decoder_names())}, or a function as module:function"
        raise UsageError(f"there is no decoder '{name}'", hint=known)
    return _DECODERS[name]


def user_decoder(decode: str | Callable[..., Any]) -> Callable[..., Any] | None:
    """Return the user's function, imported if it is given by name, or None for the name of a built-in decoder."""
    if not isinstance(decode, str):
        return decode
    return load_function(decode) if is_function_name(decode) else None


def check_detections(result: Any, name: str) -> Detections:
    """Convert the result of a user's decoder: boxes [N, 4], scores [N], classes [N], and perhaps points [N, K, 2].

    Raises:
        UsageError: the result has another form; the message has the shapes found.

    """
    try:
        boxes, scores, classes, *points = (np.asarray(item) for item in result)
    except (TypeError, ValueError):
        raise UsageError(f"{name} returned {type(result).__name__}", hint="return boxes, scores, classes") from None
    boxes = boxes.reshape(0, 4) if boxes.size == 0 else boxes
    if boxes.ndim != 2 or boxes.shape[1] != 4 or not len(boxes) == scores.size == classes.size:
        shapes = ", ".join(str(list(item.shape)) for item in (boxes, scores, classes))
        raise UsageError(f"{name} returned arrays {shapes}", hint="expected [N, 4], [N], [N]")
    if len(points) > 1 or any(item.ndim != 3 or len(item) != len(boxes) or item.shape[2] != 2 for item in points):
        shapes = ", ".join(str(list(item.shape)) for item in points)
        raise UsageError(f"{name} returned points {shapes}", hint=f"expected [{len(boxes)}, points, 2]")
    return Detections(
        boxes.astype(np.float64),
        scores.reshape(-1).astype(np.float64),
        classes.reshape(-1).astype(np.int64),
        points[0].astype(np.float64) if points else None,
    )


@decoder("yolov5")
def yolov5(outputs: Outputs, size: tuple[int, int], min_score: float) -> Detections:
    """One output [1, N, 5 + C]: center x, center y, width, height in pixels, objectness, scores of the classes."""
    rows = _rows(outputs, lambda shape: len(shape) == 2 and shape[1] > 5, "[1, N, 5 + classes]")
    return _candidates(_from_centers(rows[:, :4]), rows[:, 4:5] * rows[:, 5:], min_score)


@decoder("yolov8")
def yolov8(outputs: Outputs, size: tuple[int, int], min_score: float) -> Detections:
    """One output [1, 4 + C, N]: center x, center y, width, height in pixels, scores of the classes."""
    rows = _rows(outputs, lambda shape: len(shape) == 2 and shape[0] > 4, "[1, 4 + classes, N]").T
    return _candidates(_from_centers(rows[:, :4]), rows[:, 4:], min_score)


@decoder("ssd")
def ssd(outputs: Outputs, size: tuple[int, int], min_score: float) -> Detections:
    """Boxes [1, N, 4] (left, top, right, bottom, from 0 to 1) and scores [1, N, 1 + C]; class 0 is the background."""
    named = {name: array[0] for name, array in outputs.items() if array.ndim == 3 and len(array) == 1}
    places = [name for name, array in named.items() if array.shape[1] == 4]
    if len(places) > 1:  # scores of three classes also have four columns
        places = [name for name in places if "box" in name.lower() or "loc" in name.lower()]
    scores = [array for name, array in named.items() if name not in places and array.shape[1] > 1]
    if len(places) != 1 or len(scores) != 1 or len(named[places[0]]) != len(scores[0]):
        raise _unsuitable("boxes [1, N, 4] and scores [1, N, 1 + classes]", outputs)
    return _candidates(named[places[0]] * _scale_of(size), scores[0][:, 1:], min_score)


@decoder("detection_output")
def detection_output(outputs: Outputs, size: tuple[int, int], min_score: float) -> Detections:
    """One output [1, 1, N, 7] of Caffe's DetectionOutput: image, class, score, left, top, right, bottom from 0 to 1.

    Class 0 is the background. A row without detection has the image -1.
    """
    rows = _rows(outputs, lambda shape: shape[-1] == 7, "[1, 1, N, 7]").reshape(-1, 7)
    rows = rows[(rows[:, 0] >= 0) & (rows[:, 1] >= 1) & (rows[:, 2] >= min_score)]
    return Detections(rows[:, 3:] * _scale_of(size), rows[:, 2], rows[:, 1].astype(np.int64) - 1)


@decoder("yunet")
def yunet(outputs: Outputs, size: tuple[int, int], min_score: float) -> Detections:
    """Face detector YuNet: ``cls_S``, ``obj_S`` and ``bbox_S`` [1, cells, ...] for the strides 8, 16 and 32.

    ``kps_S`` [1, cells, 2 K] has the landmarks of the faces, relative to the cell. They are optional.
    """
    boxes, scores, points = [], [], []
    for stride in (8, 16, 32):
        try:
            known = [outputs[f"{kind}_{stride}"].astype(np.float64) for kind in ("cls", "obj", "bbox")]
        except KeyError:
            raise _unsuitable(f"cls_{stride}, obj_{stride} and bbox_{stride}", outputs) from None
        kind, presence, place = (array.reshape(-1, array.shape[-1]) for array in known)
        cells = _cells(size[0] // stride, size[1] // stride)
        center = cells + place[:, :2]
        boxes.append(_from_centers(np.concatenate([center, np.exp(place[:, 2:])], axis=1) * stride))
        scores.append(np.sqrt(np.clip(kind, 0, 1) * np.clip(presence, 0, 1)))
        if f"kps_{stride}" in outputs:
            offsets = outputs[f"kps_{stride}"].astype(np.float64)
            points.append((offsets.reshape(len(cells), -1, 2) + cells[:, np.newaxis]) * stride)
    landmarks = np.concatenate(points) if len(points) == len(boxes) else None
    return _candidates(np.concatenate(boxes), np.concatenate(scores), min_score, landmarks)


@decoder("fastestdet")
def fastestdet(outputs: Outputs, size: tuple[int, int], min_score: float) -> Detections:
    """One output [1, 5 + C, rows, columns]: objectness, box relative to the cell, scores of the classes.

    A cell detects the class with the highest score only.
    """
    grid = _rows(outputs, lambda shape: len(shape) == 3 and shape[0] > 5, "[1, 5 + classes, rows, columns]")
    height, width = grid.shape[1:]
    cells = grid.reshape(len(grid), -1).T
    center = (np.tanh(cells[:, 1:3]) + _cells(height, width)) / (width, height)
    boxes = np.concatenate([center, 1 / (1 + np.exp(-cells[:, 3:5]))], axis=1)
    best = cells[:, 5:] == cells[:, 5:].max(axis=1, keepdims=True)
    scores = np.clip(cells[:, :1], 0, None) ** 0.6 * np.clip(cells[:, 5:], 0, None) ** 0.4 * best
    return _candidates(_from_centers(boxes) * _scale_of(size), scores, min_score)


def _rows(outputs: Outputs, fits: Callable[[tuple[int, ...]], bool], expected: str) -> Array:
    """Return the only output, as float64 without batch axis."""
    if len(outputs) == 1:
        (array,) = outputs.values()
        if array.ndim > 1 and array.shape[0] == 1 and fits(array.shape[1:]):
            found: Array = array[0].astype(np.float64)
            return found
    raise _unsuitable(f"one output {expected}", outputs)


def _unsuitable(expected: str, outputs: Outputs) -> UsageError:
    found = ", ".join(f"'{name}' {list(array.shape)}" for name, array in outputs.items())
    hint = "choose another decoder, end the model at these outputs (convert --outputs), or give module:function"
    return UsageError(f"the model's outputs are {found}, the decoder expects {expected}", hint=hint)


def _candidates(boxes: Array, scores: Array, min_score: float, points: Array | None = None) -> Detections:
    """Return one detection per box and class with a sufficient score. Scores are [N, C]."""
    rows, classes = np.nonzero(scores >= min_score)
    found = None if points is None else points[rows]
    return Detections(boxes[rows].astype(np.float64), scores[rows, classes].astype(np.float64), classes, found)


def _from_centers(boxes: Array) -> Array:
    """Convert center x, center y, width, height to left, top, right, bottom."""
    half = boxes[:, 2:] / 2
    return np.concatenate([boxes[:, :2] - half, boxes[:, :2] + half], axis=1)


def _cells(height: int, width: int) -> Array:
    """Return (column, row) of every cell of a grid, row by row, [height * width, 2]."""
    rows, columns = np.divmod(np.arange(height * width), width)
    return np.stack([columns, rows], axis=1)


def _scale_of(size: tuple[int, int]) -> Array:
    height, width = size
    return np.array([width, height, width, height], dtype=np.float64)
