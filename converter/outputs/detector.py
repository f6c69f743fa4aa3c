"""Detectors: from the outputs of a network to boxes, scores and classes in pixels of the image."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from tpuconvert.outputs.head import DecodedImage, DetectorHead, Outputs, detector_names, find_head, list_outputs
from tpuconvert.samples.preprocess import Preprocess
from tpuconvert.schema.arithmetic.boxes import Detections, suppress
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.types import Array
from tpuconvert.user_functions import is_function_name, load_function

Decode = str | Callable[..., Any]
"""Name of a head, ``module:function``, or a function."""


class BoxHead(DetectorHead):
    """Layout of a detector whose boxes are relative to the model's input."""

    suppresses: ClassVar[bool] = False
    """True for a network that removes overlapping boxes itself."""

    @abstractmethod
    def candidates(self, outputs: Outputs, size: tuple[int, int], min_score: float) -> Detections:
        """Return all detections with a score of at least ``min_score``.

        Args:
            outputs: arrays of one image by output name, with their batch axis.
            size: (height, width) of the model's input, the unit of the boxes.
            min_score: smallest score.

        Raises:
            UsageError: the outputs do not have this layout.

        """

    def decode(self, outputs: Outputs, image: DecodedImage) -> Detections:
        """Return the detections in pixels of the image, after the suppression of overlapping ones."""
        detections = self.candidates(outputs, image.input_size, image.min_score)
        detections = detections.take(np.isfinite(detections.boxes).all(axis=1) & np.isfinite(detections.scores))
        detections = suppress(detections, 1.0 if self.suppresses else image.nms_iou)
        points = None if detections.points is None else image.from_input(detections.points)
        return replace(detections, boxes=image.from_input(detections.boxes), points=points)


class OneOutput(BoxHead):
    """Layout with one output of a batch of one image."""

    form: ClassVar[str]
    """Shape for messages."""

    rank: ClassVar[int]
    class_axis: ClassVar[int | None] = None
    """Axis of the scores of the classes, if the shape shows their number."""

    before_classes: ClassVar[int] = 0
    """Elements of this axis before the scores."""

    def array(self, outputs: Outputs) -> Array | None:
        """Return the only output, or None if there are several or its shape is not ``form``."""
        array = next(iter(outputs.values())) if len(outputs) == 1 else None
        if array is None or array.ndim != self.rank or len(array) != 1:
            return None
        has_classes = self.class_axis is None or array.shape[self.class_axis] > self.before_classes
        return array if has_classes else None

    def classes(self, outputs: Outputs, rule: Preprocess) -> int | None:
        """Return the number of scores of the classes."""
        array = self.array(outputs)
        return None if array is None or self.class_axis is None else array.shape[self.class_axis] - self.before_classes

    def candidates(self, outputs: Outputs, size: tuple[int, int], min_score: float) -> Detections:
        """Return all detections with a score of at least ``min_score``."""
        array = self.array(outputs)
        if array is None:
            raise unsuitable(f"one output {self.form}", outputs)
        return self.detections(array[0].astype(np.float64), size, min_score)

    @abstractmethod
    def detections(self, array: Array, size: tuple[int, int], min_score: float) -> Detections:
        """Return the detections of the output, which has no batch axis."""


class UserFunction(DetectorHead):
    """Function of the user that returns boxes in pixels of the image."""

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        self.function = function
        self.name = name  # type: ignore[misc]  # the heads of classes have it from their decorator

    def decode(self, outputs: Outputs, image: DecodedImage) -> Detections:
        """Return the result of the function, which suppresses overlapping boxes itself."""
        return check_detections(self.function(dict(outputs), image.size), self.name)


def find_detector(decode: Decode) -> DetectorHead:
    """Return a detector by name, or one that calls a function of the user.

    Raises:
        UsageError: there is no such head or function, or the head finds no boxes.

    """
    if not isinstance(decode, str):
        return UserFunction(decode, getattr(decode, "__name__", "function"))
    if is_function_name(decode):
        return UserFunction(load_function(decode), decode)
    head = find_head(decode)
    if not isinstance(head, DetectorHead):
        raise UsageError(
            f"head '{decode}' finds no boxes", hint=f"one of {', '.join(detector_names())}, or module:function"
        )
    return head


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


def unsuitable(expected: str, outputs: Outputs) -> UsageError:
    """Create the error for outputs that do not have the layout of a head."""
    hint = "choose another head, end the model at these outputs (convert --outputs), or give module:function"
    return UsageError(f"the model's outputs are {list_outputs(outputs)}, the head expects {expected}", hint=hint)


def above(boxes: Array, scores: Array, min_score: float, points: Array | None = None) -> Detections:
    """Return one detection per box and class with a sufficient score. Scores are [N, C]."""
    rows, classes = np.nonzero(scores >= min_score)
    selected = None if points is None else points[rows]
    return Detections(boxes[rows].astype(np.float64), scores[rows, classes].astype(np.float64), classes, selected)


def scale_of(size: tuple[int, int]) -> Array:
    """Return the factors of a box from 0 to 1 to pixels of an input (height, width)."""
    height, width = size
    return np.array([width, height, width, height], dtype=np.float64)
