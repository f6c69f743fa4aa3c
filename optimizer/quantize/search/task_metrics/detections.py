"""Detections: boxes with a class at positions that respond.

Positions with a sufficient score are suppressed by others of the same class whose box they overlap, as after inference.
A detection of the float network is kept if the quantized one has the same class with a box that overlaps it by a half.

Boxes come from the outputs where these define them:

- boxes that the network computes, by their corners or by center and size;
- distances to the four sides in cells, as distributions over integers (PicoDet, NanoDet);
- offsets of the center and sizes relative to the cell (YOLOX, YuNet), or in pixels (the detectors of MediaPipe).

Others need the anchors that a program has. There a box of a few cells around the position is used, so that neighbors
count as the same detection.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tpuconvert.optimizer.quantize.search.task_metrics.rows import Columns
from tpuconvert.optimizer.quantize.search.task_metrics.score import FEWEST_DECISIONS, Run, TaskScore
from tpuconvert.schema.arithmetic.boxes import (
    MIN_SCORE,
    NMS_IOU,
    boxes_in_cells,
    corners_of,
    match_detections,
    suppress,
)
from tpuconvert.schema.arithmetic.boxes import Detections as Found
from tpuconvert.schema.types import Array

THRESHOLDS = (MIN_SCORE, 0.25)
"""Usual smallest scores of detections: the first one with enough detections of the float network."""

LOW_THRESHOLD = 0.05
"""Smallest score for comparisons of graphs if there are too few detections. Calibration samples often have few objects,
and responses with smaller scores are lost for the same reasons. They count by their scores."""

_RESPONSE = 0.25
"""Smallest score of a position that responds."""

KEPT = 0.5
"""Overlap from which two detections are the same."""

_MOST = 300
"""Largest number of positions of a sample, those with the largest scores."""

_MOST_RESPONDING = 0.25
"""Largest share of the positions that respond. Values that are larger more often are not scores of detections."""

_AROUND = 5.0
"""Size of the box around a position without a known box, in cells: neighbors overlap it by more than ``NMS_IOU``."""

_PIXELS = 4.0
"""Median size of a box above which its offsets and sizes are in pixels."""


class ScoreKind(enum.Enum):
    """Meaning of the channels with scores."""

    PROBABILITIES = "probabilities"
    LOGITS = "logits"
    """Operands of a sigmoid, or of a softmax if the first or the last one is the largest at most positions."""
    BACKGROUND_FIRST = "background first"
    """Probabilities of a softmax; the first class means that there is no object."""
    LOGITS_BACKGROUND_FIRST = "logits with the background first"
    LOGITS_BACKGROUND_LAST = "logits with the background last"


class BoxKind(enum.Enum):
    """Meaning of the channels with boxes."""

    AROUND = "around"
    """Unknown: a box around the position."""
    CORNERS = "corners"
    CENTERS = "centers"
    """Center and size."""
    DISTANCES = "distances"
    """Distributions of the distances to the four sides."""
    CELL = "cell"
    """Offset of the center in cells, logarithm of the size in cells."""
    PIXELS = "pixels"
    """Offset of the center and size in pixels of the input."""
    COMPUTED = "computed"
    """``CORNERS`` or ``CENTERS``: the values show which."""
    RAW = "raw"
    """Results of a linear operator: ``CELL`` or ``PIXELS``, or offsets from anchors that only the program has."""


@dataclass(frozen=True)
class Positions:
    """Places of positions in the image, from 0 to 1.

    Args:
        centers: [positions, 2], x and y.
        cells: sizes of the cells, like ``centers``.
        anchors: number of positions in a cell.
    """

    centers: Array
    cells: Array
    anchors: int


@dataclass(frozen=True)
class Level:
    """Channels of outputs that describe the same positions.

    Args:
        scores: scores of the classes.
        score_kind: their meaning.
        positions: places of the positions.
        boxes: boxes of the positions.
        box_kind: their meaning.
        objectness: probability of any object.
        is_product: whether the score is the product of both probabilities, or their geometric mean.
    """

    scores: Columns
    score_kind: ScoreKind
    positions: Positions
    boxes: Columns | None = None
    box_kind: BoxKind = BoxKind.AROUND
    objectness: Columns | None = None
    is_product: bool = True

    def read_scores(self, run: Run) -> tuple[Array, Array]:
        """Return the largest score of every position [samples, positions], and its class."""
        scores, kind = self.scores.read(run), self.score_kind
        if kind in (ScoreKind.LOGITS_BACKGROUND_FIRST, ScoreKind.LOGITS_BACKGROUND_LAST):
            powers = np.exp(scores - scores.max(axis=2, keepdims=True))
            scores = powers / powers.sum(axis=2, keepdims=True)
        if kind in (ScoreKind.BACKGROUND_FIRST, ScoreKind.LOGITS_BACKGROUND_FIRST):
            scores = scores[..., 1:]
        elif kind is ScoreKind.LOGITS_BACKGROUND_LAST:
            scores = scores[..., :-1]
        classes, best = scores.argmax(axis=2), scores.max(axis=2).astype(np.float64)
        if kind is ScoreKind.LOGITS:
            best = 1.0 / (1.0 + np.exp(-np.clip(best, -80.0, 80.0)))
        if self.objectness is not None:
            best = best * self.objectness.read(run)[..., 0]
            best = best if self.is_product else np.sqrt(np.maximum(best, 0.0))
        return best, classes

    def read_boxes(self, run: Run) -> Array | None:
        """Return the channels of the boxes [samples, positions, channels]; None if they are unknown."""
        return None if self.boxes is None or self.box_kind is BoxKind.AROUND else self.boxes.read(run)

    def corners(self, values: Array | None, places: Array, size: tuple[float, float]) -> Array:
        """Return the corners [places, 4] of the boxes at some positions of a sample.

        Args:
            values: channels of the boxes [positions, channels]; None if they are unknown.
            places: numbers of the positions.
            size: width and height of the input.
        """
        centers, cells = self.positions.centers[places], self.positions.cells[places]
        if values is None:
            return corners_of(centers, _AROUND * cells)
        values = np.nan_to_num(values[places].astype(np.float64))
        if self.box_kind is BoxKind.CORNERS:
            return values[:, :4]
        if self.box_kind is BoxKind.DISTANCES:
            bins = values.reshape(len(values), 4, -1)
            powers = np.exp(bins - bins.max(axis=2, keepdims=True))
            distances = powers @ np.arange(bins.shape[2]) / powers.sum(axis=2)
            sides = distances * np.concatenate([cells, cells], axis=1)
            return np.concatenate([centers - sides[:, :2], centers + sides[:, 2:]], axis=1)
        if self.box_kind is BoxKind.CELL:
            return boxes_in_cells(values, centers - cells / 2, cells)
        center, extent = values[:, :2], values[:, 2:4]
        if self.box_kind is BoxKind.PIXELS:
            center, extent = center / np.asarray(size) + centers, extent / np.asarray(size)
        return corners_of(center, extent)


class DetectionTask(ABC):
    """Detections of a network, which a quantized one has to keep.

    Args:
        outputs: names of the outputs.
        floats: float outputs by feed.
        thresholds: smallest scores: the first one with enough detections is taken, else the last one.
    """

    def __init__(self, outputs: tuple[str, ...], floats: Sequence[Run], thresholds: Sequence[float]) -> None:
        self.outputs = outputs
        for threshold in thresholds:
            self.threshold = threshold
            self._floats = [detections for run in floats for detections in self.read(run)]
            if self.count >= FEWEST_DECISIONS:
                break

    @property
    def count(self) -> int:
        """Number of detections of the float network."""
        return sum(len(detections.classes) for detections in self._floats)

    @abstractmethod
    def read(self, run: Run) -> Iterator[Found]:
        """Yield the detections of every sample of a run."""

    def compare(self, runs: Sequence[Run]) -> TaskScore:
        """Compare detections: twice the kept ones as a share of the detections of both networks (F1).

        Above the low threshold each counts by its score, kept ones by the smaller score of both.
        """
        others = [detections for run in runs for detections in self.read(run)]
        pairs = list(zip(self._floats, others, strict=True))
        matches = [match_detections(detections, other, KEPT) for detections, other in pairs]
        matched = sum(len(places) for places in matches)
        extra = sum(len(other.classes) for other in others) - matched
        text = f"detections above {self.threshold:g}: {matched} of {self.count} kept, {extra} extra"
        has_target = self.threshold in THRESHOLDS
        numerators, denominators = np.zeros(len(pairs)), np.zeros(len(pairs))
        for index, ((detections, other), places) in enumerate(zip(pairs, matches, strict=True)):
            if has_target:
                numerators[index] = 2.0 * len(places)
                denominators[index] = len(detections.classes) + len(other.classes)
            else:
                rows, columns = np.array(places, np.int64).reshape(-1, 2).T
                numerators[index] = 2.0 * np.minimum(detections.scores[rows], other.scores[columns]).sum()
                denominators[index] = detections.scores.sum() + other.scores.sum()
        decisions = self.count + extra  # a detection that the float network does not have is a decision too
        return TaskScore(self.outputs, "detections", text, numerators, denominators, decisions, has_target=has_target)


class Detections(DetectionTask):
    """Detections of all levels.

    Args:
        levels: the levels. The kind of boxes that can have several is determined by their values.
        floats: float outputs by feed.
        size: width and height of the input.
        thresholds: smallest scores: the first one with enough detections is taken, else the last one.
    """

    def __init__(
        self,
        levels: Sequence[Level],
        floats: Sequence[Run],
        size: tuple[float, float],
        thresholds: Sequence[float] = THRESHOLDS,
    ) -> None:
        self.levels = [_with_box_kind(level, floats) for level in levels]
        columns = [item for level in levels for item in (level.scores, level.boxes, level.objectness) if item]
        self._size = size
        self._first = floats[0]
        super().__init__(tuple(dict.fromkeys(item.output for item in columns)), floats, thresholds)

    @property
    def outputs_of_logits(self) -> set[str]:
        """Names of the outputs whose elements are all logits of scores, each the operand of a sigmoid."""
        sizes: dict[str, int] = {}
        for level in self.levels:
            if level.score_kind is ScoreKind.LOGITS:
                output = level.scores.output
                sizes[output] = sizes.get(output, 0) + level.scores.read(self._first).size
        return {output for output, size in sizes.items() if size == self._first[output].size}

    def read(self, run: Run) -> Iterator[Found]:
        """Yield the detections of every sample of a run."""
        parts = [level.read_scores(run) for level in self.levels]
        scores, classes = (np.concatenate(part, axis=1) for part in zip(*parts, strict=True))
        boxes = [level.read_boxes(run) for level in self.levels]
        ends = np.cumsum([part[0].shape[1] for part in parts])
        for sample, (score, kinds) in enumerate(zip(scores, classes, strict=True)):
            places = np.flatnonzero(score > self.threshold)
            places = places[np.argsort(-score[places], kind="stable")][:_MOST]
            corners = np.empty((len(places), 4))
            numbers = np.searchsorted(ends, places, side="right")
            for number in np.unique(numbers):
                level, values = self.levels[number], boxes[number]
                chosen = numbers == number
                first = ends[number] - len(level.positions.centers)
                of_sample = None if values is None else values[sample]
                corners[chosen] = level.corners(of_sample, places[chosen] - first, self._size)
            yield suppress(Found(corners, score[places], kinds[places]), NMS_IOU)


def with_score_kind(level: Level, floats: Sequence[Run]) -> Level:
    """Determine the function whose operands the scores are, if they are logits of several classes."""
    columns = level.scores
    if level.score_kind is not ScoreKind.LOGITS or columns.last - columns.first == 1:
        return level
    labels = np.concatenate([columns.read(run).argmax(axis=2).ravel() for run in floats])
    logits = np.concatenate([columns.read(run).max(axis=2).ravel() for run in floats])
    ends = (ScoreKind.LOGITS_BACKGROUND_FIRST, 0), (ScoreKind.LOGITS_BACKGROUND_LAST, columns.last - columns.first - 1)
    for kind, number in ends:
        if np.mean((labels == number) & (logits > 0.0)) > 1.0 - _MOST_RESPONDING:
            return replace(level, score_kind=kind)
    return level


def is_sparse(levels: Sequence[Level], floats: Sequence[Run]) -> bool:
    """Return True if few positions respond, as in detectors."""
    scores = np.concatenate([level.read_scores(run)[0].ravel() for level in levels for run in floats])
    return float(np.mean(scores > _RESPONSE)) <= _MOST_RESPONDING


def _with_box_kind(level: Level, floats: Sequence[Run]) -> Level:
    """Determine the kind of boxes that can have several, from their values at responding positions."""
    if level.boxes is None or level.box_kind not in (BoxKind.COMPUTED, BoxKind.RAW):
        return level
    values = [level.boxes.read(run)[level.read_scores(run)[0] > _RESPONSE] for run in floats]
    boxes = np.concatenate(values)[:, :4]
    has_sizes = len(boxes) > 0 and bool((boxes[:, 2:] > 0.0).all())
    kind = BoxKind.AROUND
    if level.box_kind is BoxKind.COMPUTED:
        is_ordered = len(boxes) > 0 and bool((boxes[:, 2:] > boxes[:, :2]).all())
        kind = BoxKind.CORNERS if is_ordered else BoxKind.CENTERS if has_sizes else kind
    elif level.objectness is not None and level.positions.anchors == 1:
        kind = BoxKind.CELL
    elif has_sizes and np.median(boxes[:, 2:]) > _PIXELS:
        kind = BoxKind.PIXELS
    return replace(level, box_kind=kind)
