"""Heads: the meaning of the outputs of a network. Each layout of outputs is one class in one file of ``heads``.

A plugin adds a head with :func:`tpuconvert.register_head`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, TypeVar

import numpy as np

from tpuconvert.samples.preprocess import Preprocess
from tpuconvert.schema.arithmetic.boxes import MIN_SCORE, NMS_IOU, Detections
from tpuconvert.schema.discovery import import_modules
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.text.spelling import did_you_mean
from tpuconvert.schema.types import Array
from tpuconvert.schema.user_code import note_definition

_PACKAGE = "tpuconvert.outputs.heads"

Outputs = Mapping[str, Array]
"""Arrays of one image by output name, with their batch axis."""


@dataclass(frozen=True)
class DecodedImage:
    """Image whose outputs are decoded.

    Args:
        rule: preprocessing of the image, with the size of the model's input.
        size: (height, width) of the image in pixels.
        min_score: smallest score of a detection.
        nms_iou: overlap above which the box with the lower score is suppressed.

    """

    rule: Preprocess
    size: tuple[int, int]
    min_score: float = MIN_SCORE
    nms_iou: float = NMS_IOU

    @property
    def input_size(self) -> tuple[int, int]:
        """Height and width of the model's input, in pixels."""
        assert self.rule.size is not None
        return self.rule.size

    def from_input(self, pairs: Array) -> Array:
        """Map x, y pairs along the last axis from pixels of the model's input to pixels of the image."""
        (height, width), (rows, columns) = self.size, self.input_size
        left, top, right, bottom = self.rule.region(width, height)
        count = pairs.shape[-1] // 2
        scale = np.array([right - left, bottom - top] * count) / np.array([columns, rows] * count)
        mapped: Array = pairs * scale + (left, top) * count
        return mapped


@dataclass(frozen=True)
class Scores:
    """Scores of the classes of a classifier, [C], and the name of their output."""

    values: Array
    output: str


@dataclass(frozen=True)
class ClassMap:
    """Class of every pixel of the image, [height, width], and the name of the output."""

    classes: Array
    output: str


@dataclass(frozen=True)
class Points:
    """Points of the image, [K, 2], x and y in its pixels."""

    places: Array


@dataclass(frozen=True)
class Text:
    """Characters in a line of text.

    Args:
        classes: [K], class indices without repeats and blanks.
        scores: [K], scores of the characters.
        count: number of classes; None if the outputs do not have it.
        blank: number of the blank class.

    """

    classes: Array
    scores: Array
    count: int | None
    blank: int


Decoded = Detections | Scores | ClassMap | Points | Text


class Head(ABC):
    """Layout of the outputs of a network. Its docstring describes the outputs in the documentation."""

    name: ClassVar[str]
    """Name for ``--decode``; set by the decorator that registers the class."""

    recognized: ClassVar[str] = "no"
    """Condition of ``matches``, for the documentation."""

    class_names: ClassVar[tuple[str, ...]] = ()
    """Names of the classes, where the layout has a fixed meaning."""

    def matches(self, outputs: Outputs, rule: Preprocess) -> bool:
        """Return True if names and shapes of the outputs show this layout. Default: only ``--decode`` selects it."""
        return False

    def fits_labels(self, outputs: Outputs, labels: int) -> bool:
        """Return True if the head fits a number of labels, 0 without labels, for outputs that match."""
        return True

    def classes(self, outputs: Outputs, rule: Preprocess) -> int | None:
        """Return the number of classes of the network, or None if its outputs do not have it."""
        return len(self.class_names) or None

    @abstractmethod
    def decode(self, outputs: Outputs, image: DecodedImage) -> Decoded:
        """Return what the network found, in pixels of the image.

        Raises:
            UsageError: the outputs do not have this layout.

        """


class DetectorHead(Head):
    """Layout of the outputs of a detector."""

    @abstractmethod
    def decode(self, outputs: Outputs, image: DecodedImage) -> Detections:
        """Return the detections in pixels of the image, after the suppression of overlapping ones."""


H = TypeVar("H", bound=type[Head])

_HEADS: dict[str, Head] = {}


def register_head(name: str) -> Callable[[H], H]:
    """Decorator that adds a layout of outputs, for ``--decode NAME`` and for recognition by its shapes.

    The class derives from ``tpuconvert.outputs.head.Head``, or from ``tpuconvert.outputs.detector.BoxHead`` if it finds
    boxes.

    Raises:
        UsageError: the name is taken.

    """

    def register(head: H) -> H:
        if not head.__module__.startswith(_PACKAGE):  # a plugin
            import_modules(_PACKAGE)  # their names are taken
            note_definition(head)
        if name in _HEADS:
            raise UsageError(f"there is a head '{name}' already", hint="choose another name")
        head.name = name
        _HEADS[name] = head()
        return head

    return register


def all_heads() -> list[Head]:
    """Return all heads: detectors last, each kind sorted by name."""
    import_modules(_PACKAGE)
    return sorted(_HEADS.values(), key=lambda head: (isinstance(head, DetectorHead), head.name))


def head_names() -> tuple[str, ...]:
    """Names of all heads, for ``--decode``."""
    return tuple(head.name for head in all_heads())


def detector_names() -> tuple[str, ...]:
    """Names of the heads that find boxes."""
    return tuple(head.name for head in all_heads() if isinstance(head, DetectorHead))


def find_head(name: str) -> Head:
    """Return the head of a name.

    Raises:
        UsageError: there is none.

    """
    heads = {head.name: head for head in all_heads()}
    if name not in heads:
        listed = f"one of {', '.join(heads)}, or a function as module:function"
        raise UsageError(f"there is no head '{name}'", hint=did_you_mean(name, heads) or listed)
    return heads[name]


def recognize_head(outputs: Outputs, rule: Preprocess, labels: int = 0) -> Head:
    """Return the only head with these outputs.

    Detectors precede other heads, whose outputs have fewer properties.

    Args:
        outputs: arrays of one image by output name, with their batch axis.
        rule: preprocessing of the image, with the size of the model's input.
        labels: number of labels that the user or the model gives, 0 if there are none.

    Raises:
        UsageError: there is none, or several have such outputs.

    """
    matching = [head for head in all_heads() if head.matches(outputs, rule) and head.fits_labels(outputs, labels)]
    matching = [head for head in matching if isinstance(head, DetectorHead)] or matching
    if len(matching) == 1:
        return matching[0]
    if matching:
        names = ", ".join(head.name for head in matching)
        raise UsageError(
            f"several heads have outputs {list_outputs(outputs)}: {names}", hint="--decode states which one it is"
        )
    raise UsageError(
        f"the meaning of the outputs is not known: {list_outputs(outputs)}",
        hint=f"--decode states it: {', '.join(head_names())}, or module:function",
    )


def list_outputs(outputs: Outputs) -> str:
    """Return names and shapes of outputs as text."""
    return ", ".join(f"'{name}' {list(array.shape)}" for name, array in outputs.items())
