"""Interpretation of the outputs for one image: classes, objects, segments or points, as text and plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tpuconvert.outputs.class_maps import IGNORED
from tpuconvert.outputs.detector import Decode, find_detector
from tpuconvert.outputs.head import (
    ClassMap,
    Decoded,
    DecodedImage,
    Head,
    Points,
    Scores,
    Text,
    find_head,
    recognize_head,
)
from tpuconvert.outputs.labels import ClassNames, labels_of_metadata
from tpuconvert.samples.preprocess import Preprocess
from tpuconvert.schema.arithmetic.boxes import MIN_SCORE, NMS_IOU, Detections
from tpuconvert.schema.text.plain_values import Plain, Unbounded
from tpuconvert.schema.text.visible_text import one_line
from tpuconvert.schema.types import Array
from tpuconvert.text.text_format import several
from tpuconvert.user_functions import is_function_name

BEST = 5
"""Number of classes of a classifier that are shown."""

MOST_LINES = 20
"""Largest number of objects in the text; JSON has all."""

_BACKGROUNDS = ("background", "__background__", "bg", "unlabeled", "unlabelled", "void")
"""Labels of class 0 of a segmentation that is not colored."""


@dataclass(frozen=True)
class ClassScore:
    """Score of one class of an image."""

    index: int
    label: str
    score: Unbounded


@dataclass(frozen=True)
class FoundObject:
    """Object in an image: its box (left, top, right, bottom) and landmarks (x, y) in pixels of the image."""

    index: int
    label: str
    score: Unbounded
    box: tuple[float, float, float, float]
    points: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True)
class Segment(Plain, hidden=("is_background",)):
    """Class of a segmentation, and the share of the pixels that have it, from 0 to 1."""

    index: int
    label: str
    share: float
    is_background: bool = False


@dataclass(frozen=True)
class TextLine:
    """Text in an image, and the mean score of its characters, 0 without characters."""

    text: str
    score: Unbounded


@dataclass(frozen=True)
class Interpretation(Plain, hidden=("size", "class_of_pixel"), added=("height", "width")):
    """Results of a model for one image.

    Args:
        head: name of the head, or of the user's function.
        size: (height, width) of the image in pixels.
        classes: the highest scores of a classifier, in descending order.
        objects: objects of a detector, in descending order of their scores.
        segments: classes of a segmentation that occur, by class index.
        points: x and y of keypoints, in pixels of the image.
        text: the line of text of a text recognizer; None for other models.
        class_of_pixel: class of every pixel of a segmentation, [height, width]; 255 outside the model's input.

    """

    head: str
    size: tuple[int, int]
    classes: tuple[ClassScore, ...] = ()
    objects: tuple[FoundObject, ...] = ()
    segments: tuple[Segment, ...] = ()
    points: tuple[tuple[float, float], ...] = ()
    text: TextLine | None = None
    class_of_pixel: Array | None = None

    @property
    def height(self) -> int:
        """Height of the image in pixels."""
        return self.size[0]

    @property
    def width(self) -> int:
        """Width of the image in pixels."""
        return self.size[1]

    def lines(self) -> list[str]:
        """Return the results as text: one line per class, object or segment."""
        if self.classes:
            return [f"{score_text(item.score, self.classes):>8}  {item.label}" for item in self.classes]
        if self.segments:
            return [f"{item.share:8.1%}  {item.label}" for item in self.segments]
        if self.text is not None:
            return [f"{self.text.score:8.3f}  {one_line(self.text.text)}" if self.text.text else "no text"]
        if self.points:
            return [f"{several(len(self.points), 'point')}, from {_corners(self.points)}"]
        lines = [
            f"{item.score:8.3f}  {item.label}  "
            f"({', '.join(f'{edge:.0f}' for edge in item.box[:2])}) to "
            f"({', '.join(f'{edge:.0f}' for edge in item.box[2:])})"
            for item in self.objects[:MOST_LINES]
        ]
        if len(self.objects) > MOST_LINES:
            lines.append(f"and {len(self.objects) - MOST_LINES} more; tpuconvert run --json has all")
        return lines or ["nothing found"]


def _corners(points: tuple[tuple[float, float], ...]) -> str:
    array = np.array(points)
    low, high = array.min(axis=0), array.max(axis=0)
    return f"({low[0]:.0f}, {low[1]:.0f}) to ({high[0]:.0f}, {high[1]:.0f})"


def score_text(score: float, among: tuple[ClassScore, ...]) -> str:
    """Format a score: in percent if all of them can be probabilities, else as a number."""
    are_shares = all(-1e-6 <= item.score <= 1 + 1e-6 for item in among)
    return f"{score:.1%}" if are_shares else f"{score:.4g}"


class Interpreter:
    """Interpretation of the outputs of one model.

    Args:
        rule: preprocessing of the images, with a size.
        names: names of the classes that the user gave.
        metadata: metadata of the model, which may contain names.
        decode: name of a head, ``module:function``, a function, or None: the head is found from the outputs.
        min_score: smallest score of an object.
        nms_iou: overlap above which the box with the lower score is suppressed.

    Raises:
        UsageError: there is no head of this name.

    """

    def __init__(
        self,
        rule: Preprocess,
        names: ClassNames,
        metadata: Mapping[str, Any],
        decode: Decode | None = None,
        min_score: float = MIN_SCORE,
        nms_iou: float = NMS_IOU,
    ) -> None:
        self.rule, self.names, self.metadata = rule, names, metadata
        self.head = None if decode is None else _head_of(decode)
        self.min_score, self.nms_iou = min_score, nms_iou

    def interpret(self, outputs: Mapping[str, Array], size: tuple[int, int]) -> Interpretation:
        """Return the results for one image.

        Args:
            outputs: floats by output name, with a batch axis of extent 1.
            size: (height, width) of the image.

        Raises:
            UsageError: the outputs do not belong to the head, or the labels do not fit.

        """
        names = self.names if self.names.is_given else labels_of_metadata(self.metadata, None)
        head = self.head or recognize_head(outputs, self.rule, len(names.names))
        decoded: Decoded = head.decode(outputs, DecodedImage(self.rule, size, self.min_score, self.nms_iou))
        if isinstance(decoded, Points):
            return Interpretation(head.name, size, points=_pairs(decoded.places))
        if isinstance(decoded, Text):
            return Interpretation(head.name, size, text=read_text(decoded, names))
        if isinstance(decoded, Detections):
            return Interpretation(head.name, size, objects=_objects(decoded, self._names(head, outputs, None)))
        names = self._names(head, outputs, decoded.output)
        if isinstance(decoded, Scores):
            return Interpretation(head.name, size, classes=_best_classes(decoded, names))
        return Interpretation(head.name, size, segments=_segments(decoded, names), class_of_pixel=decoded.classes)

    def _names(self, head: Head, outputs: Mapping[str, Array], output: str | None) -> ClassNames:
        names = self.names
        if not names.is_given:
            names = labels_of_metadata(self.metadata, None if output is None else list(outputs).index(output))
        names = names.fit(head.classes(outputs, self.rule))
        return names if names.names else ClassNames(head.class_names)


def _head_of(decode: Decode) -> Head:
    return find_head(decode) if isinstance(decode, str) and not is_function_name(decode) else find_detector(decode)


def read_text(decoded: Text, names: ClassNames) -> TextLine:
    """Return the line of text of a text recognizer; without names, the numbers of its classes.

    Raises:
        UsageError: there are names, but not for every class.

    """
    names = names.characters(decoded.count, decoded.blank)
    classes = [int(index) for index in decoded.classes]
    text = "".join(map(names.name, classes)) if names.names else " ".join(map(str, classes))
    return TextLine(text, float(decoded.scores.mean()) if classes else 0.0)


def _objects(detections: Detections, names: ClassNames) -> tuple[FoundObject, ...]:
    """Return the objects, those with the highest scores first."""
    points = np.zeros((len(detections.scores), 0, 2)) if detections.points is None else detections.points
    rows = zip(detections.classes, detections.scores, detections.boxes, points, strict=True)
    objects = [
        FoundObject(int(index), names.name(int(index)), float(score), _box(box), _pairs(marks))
        for index, score, box, marks in rows
    ]
    return tuple(sorted(objects, key=lambda item: -item.score))


def _best_classes(scores: Scores, names: ClassNames) -> tuple[ClassScore, ...]:
    order = np.argsort(-scores.values, kind="stable")[:BEST]
    return tuple(ClassScore(int(index), names.name(int(index)), float(scores.values[index])) for index in order)


def _segments(class_map: ClassMap, names: ClassNames) -> tuple[Segment, ...]:
    indices, counts = np.unique(class_map.classes[class_map.classes != IGNORED], return_counts=True)
    segments = []
    for index, count in zip(indices.tolist(), counts.tolist(), strict=True):
        name = names.name(index)
        is_background = index == 0 and (not names.names or name.strip().lower() in _BACKGROUNDS)
        shown = "background" if is_background and not names.names else name
        segments.append(Segment(index, shown, count / counts.sum().item(), is_background))
    return tuple(segments)


def _box(edges: Array) -> tuple[float, float, float, float]:
    left, top, right, bottom = (float(edge) for edge in edges)
    return left, top, right, bottom


def _pairs(points: Array) -> tuple[tuple[float, float], ...]:
    return tuple((float(x), float(y)) for x, y in points)
