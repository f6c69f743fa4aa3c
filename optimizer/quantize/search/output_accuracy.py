"""Accuracy of every output of a quantized graph, on fixed samples, against limits.

The measure depends on the element type of the output:

- *Numbers*: the cosine similarity, averaged over the samples, and the signal-to-quantization-noise ratio of all
  samples together. The cosine is taken per run and per sample of a batch, of which the lower mean counts: a sample is
  not hidden by the others of its batch, and an output of one number per sample has no cosine of its own. Samples with
  negligible values beside the others of their batch are left out.
- *Integers and booleans*, such as classes and masks: the share of equal elements, and the cosine of arrays.
- *Sets of rows*, such as detections: the cosine after every row is paired with the nearest one.
- *Tasks* (``task_metrics``): the share of the detections, strings, classes or mask that agrees with the float network.

An element that is NaN or infinite in one of two results only, a sample without a finite element, and another shape
count as a cosine of 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, TypedDict

import numpy as np

from tpuconvert.optimizer.quantize.search.deciding import similarity_of_rows
from tpuconvert.optimizer.quantize.search.output_error import count_samples
from tpuconvert.optimizer.quantize.search.similarity import cosine_similarity
from tpuconvert.optimizer.quantize.search.task_metrics.score import TARGET, Task, TaskScore
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.types import Array

LEAST_COSINE = 0.99
"""Smallest mean cosine similarity of an accurate output, after its standard error is subtracted."""

LEAST_SQNR = 15.0
"""Smallest signal-to-quantization-noise ratio of an accurate output, in decibel."""

LEAST_EQUAL = 0.98
"""Smallest share of equal elements of an accurate output of integers. One different element is always accepted: a
single class of few samples is not evidence."""

_NEGLIGIBLE = 1e-2
"""Share of the mean power of a batch below which a sample has no cosine of its own: it may be below the noise of an
accurate output."""

Feed = Mapping[str, Array]


class OutputAccuracyValues(TypedDict):
    """Accuracy of one output as plain values."""

    name: str
    cosine: Annotated[float, "mean over the samples"]
    worst_cosine: Annotated[float, "of the worst sample"]
    sqnr_db: Annotated[float | None, "null if it is infinite, and for integers and sets of rows"]
    equal_share: Annotated[float | None, "share of equal elements; null for numbers"]
    task: Annotated[str | None, "counts of the detections, strings, classes or mask; null if it has no task"]
    task_score: Annotated[float | None, "share of these decisions that agree with the float network"]
    is_accurate: Annotated[bool, "whether no measure is below its limit"]


@dataclass(frozen=True)
class OutputAccuracy:
    """Accuracy of one output.

    Args:
        name: name of the output.
        cosine: mean cosine similarity.
        worst_cosine: the value of the worst sample.
        cosine_error: standard error of ``cosine``; 0 for one sample.
        sqnr: signal-to-quantization-noise ratio in decibel; None unless the output consists of numbers.
        equal: share of equal elements; None unless the output consists of integers or booleans.
        different: number of different elements of such an output.
        has_vectors: whether a sample of such an output has more than one element, so that its cosine has a meaning.
        task: score of the task of which this is the first output; None if there is none.
    """

    name: str
    cosine: float
    worst_cosine: float
    cosine_error: float = 0.0
    sqnr: float | None = None
    equal: float | None = None
    different: int = 0
    has_vectors: bool = True
    task: TaskScore | None = None

    @property
    def is_accurate(self) -> bool:
        """Return True if no measure is below its limit."""
        if self.task is not None and self.task.is_missed:
            return False
        is_similar = self.cosine - self.cosine_error >= LEAST_COSINE
        if self.equal is not None:
            return self.different <= 1 or (self.equal >= LEAST_EQUAL and (is_similar or not self.has_vectors))
        return is_similar and (self.sqnr is None or self.sqnr >= LEAST_SQNR)

    def describe(self) -> str:
        """Text of the measures."""
        return ", ".join(text for text, _ in self._measures())

    def expected(self) -> str:
        """Text of the limits."""
        return f"expected at least {' and '.join(limit for _, limit in self._measures())}"

    def _measures(self) -> list[tuple[str, str]]:
        """Texts of each measure and of its limit."""
        task = [] if self.task is None else [(self.task.text, f"{TARGET:.0%} of the {self.task.unit}")]
        return [*self._measures_of_values(), *task]

    def _measures_of_values(self) -> list[tuple[str, str]]:
        cosine, limit = f"mean cosine {self.cosine:.4f}", f"{LEAST_COSINE:g}"
        if self.equal is not None:
            equal = (f"{self.equal:.1%} of the elements are equal", f"{LEAST_EQUAL:.0%}")
            return [equal, (cosine, limit)] if self.has_vectors else [equal]
        similar = (f"{cosine} (worst {self.worst_cosine:.4f})", limit)
        return [similar] if self.sqnr is None else [similar, (f"SQNR {_decibel(self.sqnr)}", f"{LEAST_SQNR:g} dB")]

    def to_dict(self) -> OutputAccuracyValues:
        """Return plain values. An infinite ratio becomes None, because JSON cannot represent it."""
        sqnr = self.sqnr if self.sqnr is not None and math.isfinite(self.sqnr) else None
        return {
            "name": self.name,
            "cosine": round(self.cosine, 6),
            "worst_cosine": round(self.worst_cosine, 6),
            "sqnr_db": None if sqnr is None else round(sqnr, 2),
            "equal_share": None if self.equal is None else round(self.equal, 6),
            "task": None if self.task is None else self.task.text,
            "task_score": None if self.task is None else round(self.task.share, 6),
            "is_accurate": self.is_accurate,
        }


def _decibel(sqnr: float) -> str:
    return f"{sqnr:.1f} dB" if math.isfinite(sqnr) else ("exact" if sqnr > 0 else "-inf dB")


def measure_outputs(
    graph: Graph,
    feeds: Sequence[Feed],
    expected: Sequence[Mapping[str, Array]],
    runs: Iterable[Mapping[str, Array]],
    tasks: Sequence[Task] = (),
) -> list[OutputAccuracy]:
    """Compare the outputs of a quantized graph with the outputs of its float graph.

    Args:
        graph: the quantized graph.
        feeds: the samples.
        expected: outputs of the float graph, by name, for each feed.
        runs: outputs of the quantized graph.
        tasks: tasks of the float graph.
    """
    compared = []
    outputs = [
        _Comparison(port.name, _kind(value)) for value, port in zip(graph.outputs, graph.output_ports, strict=True)
    ]
    for feed, float_results, results in zip(feeds, expected, runs, strict=True):
        compared += [results] if tasks else []
        for output in outputs:
            output.add(float_results[output.name], results[output.name], feed)
    scores = {score.outputs[0]: score for score in (task.compare(compared) for task in tasks)}
    return [replace(output.result(), task=scores.get(output.name)) for output in outputs]


_NUMBERS, _INTEGERS, _ROWS = "numbers", "integers", "rows"


def _kind(value: Value) -> str:
    if value.producer is not None and value.producer.op.has_row_set:
        return _ROWS
    return _NUMBERS if value.dtype.is_float else _INTEGERS


@dataclass
class _Comparison:
    """Sums over the samples of one output."""

    name: str
    kind: str
    per_sample: list[float] = field(default_factory=list)
    per_run: list[float] = field(default_factory=list)
    signal: float = 0.0
    noise: float = 0.0
    elements: int = 0
    different: int = 0
    has_vectors: bool = False

    def add(self, expected: Array, actual: Array, feed: Feed) -> None:
        """Add the results of one run."""
        if self.kind == _ROWS:
            self._add_cosines([similarity_of_rows(expected, actual)])
            return
        if expected.shape != actual.shape:
            self._add_cosines([0.0])
            self.elements += expected.size
            self.different += max(expected.size, 2)  # more than the one that is accepted
            self.noise = math.inf
            return
        if self.kind == _INTEGERS:
            self.elements += expected.size
            self.different += int(np.count_nonzero(expected != actual))
        samples = count_samples(expected, feed)
        self.has_vectors |= expected.size > samples
        a, b = (np.asarray(array, np.float64).reshape(samples, -1) for array in (expected, actual))
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        is_finite = np.isfinite(a) & np.isfinite(b)
        is_comparable = np.all(same | is_finite, axis=1) & (is_finite.any(axis=1) | (a.shape[1] == 0))
        a, b = (np.where(is_finite, array, 0.0) for array in (a, b))
        self.signal += float(np.sum(np.square(a)))
        self.noise += float(np.sum(np.square(a - b))) if is_comparable.all() else math.inf
        powers = np.mean(np.square(a), axis=1) if a.size else np.zeros(samples)
        counts = (powers >= _NEGLIGIBLE * powers.mean()) | ~is_comparable
        rows = zip(a[counts], b[counts], is_comparable[counts], strict=True)
        cosines = [cosine_similarity(x, y) if valid else 0.0 for x, y, valid in rows]
        self._add_cosines(cosines, cosine_similarity(a.ravel(), b.ravel()) if is_comparable.all() else 0.0)

    def _add_cosines(self, samples: list[float], run: float | None = None) -> None:
        self.per_sample += samples
        self.per_run.append(float(np.mean(samples)) if run is None else run)

    def result(self) -> OutputAccuracy:
        """Return the accuracy over everything added."""
        lists = (self.per_sample, self.per_run)
        cosines = min(lists, key=lambda items: float(np.mean(items)))
        error = float(np.std(cosines, ddof=1)) / math.sqrt(len(cosines)) if len(cosines) > 1 else 0.0
        is_integer = self.kind == _INTEGERS
        return OutputAccuracy(
            self.name,
            float(np.mean(cosines)),
            min(map(min, lists)),
            error,
            sqnr=self._sqnr() if self.kind == _NUMBERS else None,
            equal=1.0 - min(1.0, self.different / max(1, self.elements)) if is_integer else None,
            different=self.different,
            has_vectors=self.has_vectors,
        )

    def _sqnr(self) -> float:
        if self.noise == 0.0:
            return math.inf
        if self.signal == 0.0 or math.isinf(self.noise):
            return -math.inf
        return 10.0 * (math.log10(self.signal) - math.log10(self.noise))
