"""Metrics of tasks: decisions of an INT8 model compared with the float model, with standard errors.

A metric returns a row of contributions per evaluation sample; the score is a function of their sums. The standard error
comes from a bootstrap over the samples.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tools.accuracy.trained.catalog import read_catalog
from tools.accuracy.trained.crops import RunHelper
from tools.accuracy.trained.decoders import DECODERS, Outputs
from tpuconvert.schema.arithmetic.boxes import Detections, match_detections, suppress
from tpuconvert.schema.types import Array

KEPT_OVERLAP = 0.5
"""A float detection is kept if a detection of the same class overlaps it by this much."""
RESAMPLES = 1000
SEED = 42

Pairs = Sequence[tuple[Outputs, Outputs]]
"""Outputs of the float model and of the INT8 model, per sample."""


def no_helper(name: str, x: Array) -> Outputs:
    """Stand for the float models of the catalog where a metric needs none."""
    raise LookupError(f"the metric needs the model {name}")


@dataclass(frozen=True)
class Metric(ABC):
    """Base of the metrics."""

    title: ClassVar[str]
    """Heading of the score, with its unit."""
    columns: ClassVar[tuple[str, ...]]
    """Names of the contributions."""
    of: ClassVar[str]
    """Column that counts what the float model decided."""
    is_error: ClassVar[bool] = False
    """True if smaller scores are better."""

    @abstractmethod
    def contributions(self, pairs: Pairs, run: RunHelper = no_helper) -> Array:
        """Return the contributions of the samples, [samples, columns]."""

    def score(self, sums: Array) -> float:
        """Return the score in percent: the first column divided by the last one."""
        return 100 * float(sums[0]) / max(float(sums[-1]), 1e-9)

    def standard_error(self, contributions: Array) -> float:
        """Return the standard deviation of the score over samples drawn with replacement."""
        generator = np.random.default_rng(SEED)
        count = len(contributions)
        scores = [self.score(contributions[generator.integers(0, count, count)].sum(axis=0)) for _ in range(RESAMPLES)]
        return float(np.std(scores))


@dataclass(frozen=True)
class DetectorMetric(Metric):
    """F1 of the detections, with the detections of the float model as the truth."""

    decoder: Mapping[str, Any]
    threshold: float
    overlap: float = 0.45
    title: ClassVar[str] = "F1 of detections"
    columns: ClassVar[tuple[str, ...]] = ("kept", "extra", "detections")
    of: ClassVar[str] = "detections"

    def detections(self, outputs: Outputs) -> Detections:
        """Decode the outputs, and remove overlapping detections."""
        options = dict(self.decoder)
        return suppress(DECODERS[options.pop("name")](outputs, self.threshold, **options), self.overlap)

    def contributions(self, pairs: Pairs, run: RunHelper = no_helper) -> Array:
        """Count kept and extra detections, and the detections of the float model."""
        rows = []
        for before, after in pairs:
            reference, result = self.detections(before), self.detections(after)
            kept = len(match_detections(reference, result, KEPT_OVERLAP))
            rows.append((kept, len(result.scores) - kept, len(reference.scores)))
        return np.array(rows, np.float64)

    def score(self, sums: Array) -> float:
        """Return the harmonic mean of precision and recall, in percent."""
        kept, extra, total = map(float, sums)
        return 200 * kept / max(kept + extra + total, 1)


@dataclass(frozen=True)
class MaskMetric(Metric):
    """Mean intersection over union of masks: elements of an output above a threshold."""

    output: str
    threshold: float
    smallest: int = 1
    """Samples whose float mask has fewer elements do not count."""
    title: ClassVar[str] = "IoU of masks"
    columns: ClassVar[tuple[str, ...]] = ("iou", "masks")
    of: ClassVar[str] = "masks"

    def contributions(self, pairs: Pairs, run: RunHelper = no_helper) -> Array:
        """Return the intersection over union of each sample, and 1 if it counts."""
        rows = []
        for before, after in pairs:
            first, second = (outputs[self.output] > self.threshold for outputs in (before, after))
            counts = first.sum() >= self.smallest
            rows.append(((first & second).sum() / (first | second).sum(), 1) if counts else (0, 0))
        return np.array(rows, np.float64)


@dataclass(frozen=True)
class TextMetric(Metric):
    """Equal strings: the best class per position without repetitions, and without class 0."""

    output: str
    title: ClassVar[str] = "equal strings"
    columns: ClassVar[tuple[str, ...]] = ("equal", "strings")
    of: ClassVar[str] = "strings"

    def string(self, outputs: Outputs) -> tuple[int, ...]:
        """Decode one string, as classes."""
        scores = outputs[self.output]
        best = scores.reshape(-1, scores.shape[-1]).argmax(axis=1)
        is_new = np.diff(best, prepend=-1) != 0
        return tuple(best[is_new & (best != 0)].tolist())

    def contributions(self, pairs: Pairs, run: RunHelper = no_helper) -> Array:
        """Compare the strings; a sample without a string in both models does not count."""
        strings = [(self.string(before), self.string(after)) for before, after in pairs]
        return np.array([(bool(a or b) and a == b, bool(a or b)) for a, b in strings], np.float64)


@dataclass(frozen=True)
class ClassMetric(Metric):
    """Equal best classes."""

    output: str
    title: ClassVar[str] = "equal classes"
    columns: ClassVar[tuple[str, ...]] = ("equal", "samples")
    of: ClassVar[str] = "samples"

    def contributions(self, pairs: Pairs, run: RunHelper = no_helper) -> Array:
        """Compare the classes."""
        return np.array([(a[self.output].argmax() == b[self.output].argmax(), 1) for a, b in pairs], np.float64)


@dataclass(frozen=True)
class DecisionMetric(Metric):
    """Equal decisions: all values on the same side of the threshold."""

    output: str
    threshold: float
    title: ClassVar[str] = "equal decisions"
    columns: ClassVar[tuple[str, ...]] = ("equal", "samples")
    of: ClassVar[str] = "samples"

    def contributions(self, pairs: Pairs, run: RunHelper = no_helper) -> Array:
        """Compare the values."""
        decisions = [[outputs[self.output] > self.threshold for outputs in pair] for pair in pairs]
        return np.array([(np.array_equal(before, after), 1) for before, after in decisions], np.float64)


@dataclass(frozen=True)
class ValueMetric(Metric):
    """Mean absolute difference of values, relative to the span of their scale."""

    output: str
    span: float
    title: ClassVar[str] = "error of values"
    columns: ClassVar[tuple[str, ...]] = ("distance", "samples")
    of: ClassVar[str] = "samples"
    is_error: ClassVar[bool] = True

    def contributions(self, pairs: Pairs, run: RunHelper = no_helper) -> Array:
        """Return the mean difference of each sample."""
        means = [np.abs(a[self.output].astype(np.float64) - b[self.output]).mean() for a, b in pairs]
        return np.array([(mean / self.span, 1) for mean in means], np.float64)


@dataclass(frozen=True)
class DownstreamMetric(Metric):
    """Equal decisions of a float model that reads groups of outputs of this one."""

    output: str
    model: str
    group: int
    threshold: float
    title: ClassVar[str] = "equal decisions"
    columns: ClassVar[tuple[str, ...]] = ("equal", "groups")
    of: ClassVar[str] = "groups"

    def contributions(self, pairs: Pairs, run: RunHelper = no_helper) -> Array:
        """Compare the decisions of the next model, per group."""
        rows = []
        for start in range(0, len(pairs) - self.group + 1, self.group):
            group = pairs[start : start + self.group]
            decisions = []
            for side in (0, 1):
                features = np.stack([pair[side][self.output].reshape(-1) for pair in group])[np.newaxis]
                (scores,) = run(self.model, features.astype(np.float32)).values()
                decisions.append(float(scores.max()) > self.threshold)
            rows.append((decisions[0] == decisions[1], 1))
        return np.array(rows, np.float64)


@dataclass(frozen=True)
class LandmarkMetric(Metric):
    """Mean distance of points x, y, relative to the side of the input; samples below the gate do not count."""

    points: Mapping[str, int]
    """Numbers per point of each output; the first two are x and y."""
    side: int
    gate: str = ""
    threshold: float = 0
    title: ClassVar[str] = "error of points"
    columns: ClassVar[tuple[str, ...]] = ("distance", "samples")
    of: ClassVar[str] = "samples"
    is_error: ClassVar[bool] = True

    def contributions(self, pairs: Pairs, run: RunHelper = no_helper) -> Array:
        """Return the mean distance of each sample."""
        rows = []
        for before, after in pairs:
            if self.gate and before[self.gate].max() < self.threshold:
                rows.append((0.0, 0))
                continue
            means = []
            for name, size in self.points.items():
                first, second = (each[name].reshape(-1, size)[:, :2].astype(np.float64) for each in (before, after))
                means.append(np.linalg.norm(first - second, axis=1).mean())
            rows.append((float(np.mean(means)) / self.side, 1))
        return np.array(rows, np.float64)


@dataclass(frozen=True)
class CellMetric(Metric):
    """Intersection over union of the active cells of all samples, as the mean over outputs."""

    thresholds: Mapping[str, float]
    title: ClassVar[str] = "IoU of cells"
    columns: ClassVar[tuple[str, ...]] = ("shared", "either", "active")
    of: ClassVar[str] = "active"

    def contributions(self, pairs: Pairs, run: RunHelper = no_helper) -> Array:
        """Count, per output, cells that are active in both models, in either, and in the float model."""
        rows = []
        for before, after in pairs:
            row: list[int] = []
            for name, threshold in self.thresholds.items():
                first, second = before[name] > threshold, after[name] > threshold
                row += [int((first & second).sum()), int((first | second).sum()), int(first.sum())]
            rows.append(row)
        return np.array(rows, np.float64)

    def score(self, sums: Array) -> float:
        """Return the mean over the outputs, in percent."""
        shared, either, _ = sums.reshape(-1, 3).T
        return 100 * float(np.mean(shared / np.maximum(either, 1)))


@dataclass(frozen=True)
class PitchMetric(Metric):
    """Frames with a pitch in either model that have the same pitch in both, within a number of cents."""

    pitch: str
    confidence: str
    threshold: float
    cents: float
    title: ClassVar[str] = "equal pitches"
    columns: ClassVar[tuple[str, ...]] = ("equal", "frames")
    of: ClassVar[str] = "frames"

    def contributions(self, pairs: Pairs, run: RunHelper = no_helper) -> Array:
        """Count equal pitches, and frames with a pitch."""
        rows = []
        for before, after in pairs:
            first, second = (each[self.confidence] >= self.threshold for each in (before, after))
            distance = np.abs(1200 * np.log2(after[self.pitch] / before[self.pitch]))
            rows.append(((first & second & (distance <= self.cents)).sum(), (first | second).sum()))
        return np.array(rows, np.float64)


KINDS: dict[str, type[Metric]] = {
    "cells": CellMetric,
    "classes": ClassMetric,
    "decisions": DecisionMetric,
    "detector": DetectorMetric,
    "downstream": DownstreamMetric,
    "landmarks": LandmarkMetric,
    "mask": MaskMetric,
    "pitch": PitchMetric,
    "text": TextMetric,
    "values": ValueMetric,
}


def metric_of(name: str) -> Metric:
    """Return the metric of a model of the catalog."""
    fields = dict(read_catalog()[name].metric)
    return KINDS[fields.pop("kind")](**fields)
