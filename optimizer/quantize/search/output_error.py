"""Error of a quantized graph at the outputs of the network, on fixed samples.

The float outputs are recorded once. Any number of quantized graphs are then compared with them, sample by sample, so
that two graphs can be compared in pairs: the differences between their errors scatter much less than the errors.

The error of a branch of an output (``output_branches``) is the squared difference as a share of the mean power of the
float values over all samples. All branches have the same weight. Special outputs:

- *Scores*: results of a softmax or a sigmoid are compared by their logarithms or logits. Probabilities saturate: the
  error of the few samples without a clear result would outweigh all others. Logits of detections are compared up to a
  bound: networks give any large negative number where nothing is, and its error would outweigh the error of responses.
- *Integers and booleans*: the share of the elements that differ.
- *Sets of rows*, such as detections: rows are compared with the nearest one of the other set.

Rare large responses, such as those to an object in an image, contribute little to the power. ``Errors.large`` therefore
weights the squared differences with the squared distance of the float value from the mean of its channel.

Outputs of a known form also have the score of their task (``task_metrics``): detections, strings, classes or masks that
agree with the float network.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from tpuconvert.optimizer.quantize.ranges.ranges import samples_in
from tpuconvert.optimizer.quantize.search.deciding import similarity_of_rows
from tpuconvert.optimizer.quantize.search.output_branches import Branch, BranchLabels, ErrorScale, OutputBranches
from tpuconvert.optimizer.quantize.search.task_metrics.detections import Detections
from tpuconvert.optimizer.quantize.search.task_metrics.recognition import find_tasks
from tpuconvert.optimizer.quantize.search.task_metrics.score import TaskScore
from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.system.gc_control import collect_dropped_graphs
from tpuconvert.schema.types import Array, Chip

HELD_OUT = 16
"""Maximum number of held-out samples."""

_MEMORY = 1 << 26
"""Limit for the recorded float outputs, in bytes."""

_NEGLIGIBLE = 1e-3
"""Share of the mean error below which the error of a sample does not matter for a ratio."""

_VISIBLE = 1e-3
"""Error of a branch, -30 dB, up to which a rise is not counted as harm."""

_NOISE = 0.05
"""Smallest share by which the error of a branch rises, 0.2 dB, that counts as a difference."""

_CLEAR_RISE = 1.2
"""Number of standard errors by which the error of a branch rises if that counts as harm. A rise in one sample alone is
one standard error, whatever its size, so that rounding would decide; an equal rise in two samples is at least 1.4."""

Feed = Mapping[str, Array]
Vector = npt.NDArray[np.float64]


def count_held_out(feeds: int) -> int:
    """Number of feeds at the end of a calibration that measure errors: a quarter of them, 1 to ``HELD_OUT``."""
    return min(HELD_OUT, max(1, feeds // 4))


@dataclass(frozen=True)
class Difference:
    """Mean difference of two errors over the same samples, and its standard error.

    Args:
        mean: negative if the first one has the smaller error.
        standard_error: standard deviation of the mean; infinite for a single sample.
    """

    mean: float
    standard_error: float

    @property
    def is_lower(self) -> bool:
        """Return True if the mean is negative by more than its standard error."""
        return self.mean < -self.standard_error


@dataclass(frozen=True)
class Errors:
    """Relative squared errors at the outputs by branch and sample.

    Args:
        branches: [branches, samples].
        large_branches: the same, with larger weights for values far from the mean of their channel.
        tasks: scores of the tasks.
    """

    branches: Vector
    large_branches: Vector
    tasks: tuple[TaskScore, ...] = ()

    @property
    def samples(self) -> Vector:
        """Mean over the branches, by sample."""
        return np.asarray(self.branches.mean(axis=0))

    @property
    def large(self) -> Vector:
        """Mean over the branches of the errors of large values, by sample."""
        return np.asarray(self.large_branches.mean(axis=0))

    @property
    def mean(self) -> float:
        """Mean over the samples."""
        return float(self.samples.mean())

    @property
    def mean_of_large(self) -> float:
        """Mean of ``large`` over the samples."""
        return float(self.large.mean())

    @property
    def sqnr(self) -> float:
        """Signal-to-quantization-noise ratio in decibel; infinite without an error."""
        return -10.0 * math.log10(self.mean) if self.mean > 0.0 else math.inf

    def minus(self, other: Errors) -> Difference:
        """Compare with the errors of another graph on the same samples."""
        return _difference(self.samples - other.samples)

    def log_ratio_to(self, other: Errors) -> Difference:
        """Compare the logarithms of the errors, so that samples with a large error do not outweigh the others."""
        return _difference(_log_ratios(self.branches, other.branches).mean(axis=0))

    @property
    def loss(self) -> float:
        """Mean error over all branches, all and large values: the error of the worst branch determines it."""
        return float((self.branches.mean() + self.large_branches.mean()) / 2)

    def harms(self, other: Errors, counted: npt.NDArray[np.bool_] | None = None, *, targets_only: bool = False) -> bool:
        """Return True if a branch has a larger error than in another graph, or a task a lower score.

        All values and large ones count. Differences within the noise, and errors of at most ``_VISIBLE``, do no harm.

        Args:
            other: errors of the other graph.
            counted: whether a branch counts [branches]; None for all of them.
            targets_only: whether tasks without target do not count.
        """
        if self.loses(other, targets_only=targets_only):
            return True
        pairs = ((self.branches, other.branches), (self.large_branches, other.large_branches))
        for after, before in pairs:
            for number, (errors, others) in enumerate(zip(after, before, strict=True)):
                if counted is not None and not counted[number]:
                    continue
                rise = _difference(errors - others)
                noise = max(_NOISE * others.mean(), _CLEAR_RISE * rise.standard_error)
                if errors.mean() > _VISIBLE and rise.mean > noise:
                    return True
        return False

    def loses(self, other: Errors, *, targets_only: bool = False) -> bool:
        """Return True if the score of a task (``targets_only``: with a target) is lower, beyond its noise."""
        pairs = zip(self.tasks, other.tasks, strict=True)
        return any(before.exceeds(after) for after, before in pairs if after.has_target or not targets_only)

    def gains(self, other: Errors) -> bool:
        """Return True if the score of a task is higher than in another graph, beyond its noise, and none is lower.

        Scores without target only show losses: small responses that are kept do not prove that objects are, of which
        the samples have too few.
        """
        pairs = zip(self.tasks, other.tasks, strict=True)
        is_higher = any(after.has_target and after.exceeds(before) for after, before in pairs)
        return is_higher and not self.loses(other)

    def is_preferred_to(self, other: Errors) -> bool:
        """Return True if a task has a higher score than in another graph, or similar ones with a smaller ``loss``."""
        return self.gains(other) or (self.loss < other.loss and not self.loses(other))

    @property
    def misses_task(self) -> bool:
        """Return True if the score of a task is below its target."""
        return any(score.is_missed for score in self.tasks)


def _log_ratios(errors: Vector, other: Vector) -> Vector:
    """Logarithms of the ratios of errors, by branch and sample."""
    floor = _NEGLIGIBLE * other.mean(axis=1, keepdims=True) + np.finfo(np.float64).tiny
    return np.asarray(np.log((errors + floor) / (other + floor)))


def _difference(values: Vector) -> Difference:
    count = len(values)
    error = float(values.std(ddof=1)) / math.sqrt(count) if count > 1 else math.inf
    return Difference(float(values.mean()), error)


class OutputError:
    """Measurement of the error at the outputs on fixed samples.

    Args:
        graph: the float graph.
        chip: the target, whose arithmetic is used.
        feeds: samples, at least one. Samples whose outputs exceed ``_MEMORY`` together are left out.
        float_outputs: float outputs of the first feeds. The graph is not run if they cover all feeds.
    """

    def __init__(
        self, graph: Graph, chip: Chip, feeds: Iterable[Feed], float_outputs: Sequence[Mapping[str, Array]] = ()
    ) -> None:
        self.feeds: list[Feed] = []
        self._chip = chip
        runs: list[Mapping[str, Array]] = []
        size = 0
        with ExitStack() as stack, np.errstate(all="ignore"):
            session: Session | None = None
            for number, feed in enumerate(feeds):
                if number >= len(float_outputs) and session is None:
                    session = stack.enter_context(Session(graph))
                run = float_outputs[number] if session is None else session.run(feed)
                size += sum(array.nbytes for array in run.values())
                if runs and size > _MEMORY:
                    break
                runs.append(run)
                self.feeds.append(feed)
        branches = OutputBranches(graph)
        self._tasks = find_tasks(graph, branches, runs, self.feeds[0], for_choice=True)
        logits = {name for task in self._tasks if isinstance(task, Detections) for name in task.outputs_of_logits}
        self._outputs = [
            _output(
                port.name, value, [run[port.name] for run in runs], self.feeds, branches, is_logit=port.name in logits
            )
            for value, port in zip(graph.outputs, graph.output_ports, strict=True)
        ]

    @property
    def output_names(self) -> list[str]:
        """Names of the outputs that the branches belong to, in the order of ``Errors.branches``."""
        return [output.name for output in self._outputs for _ in output.branches]

    @property
    def branches(self) -> list[Branch]:
        """The branches, in the order of ``Errors.branches``."""
        return [branch for output in self._outputs for branch in output.branches]

    @property
    def variance(self) -> float:
        """Variance of the float outputs as a share of their power, averaged over the outputs."""
        return float(np.mean([output.variance for output in self._outputs]))

    @property
    def variances(self) -> tuple[Vector, Vector]:
        """Variance of every branch as a share of its power, and the same with larger weights for large values."""
        pairs = [output.variances for output in self._outputs]
        return np.concatenate([plain for plain, _ in pairs]), np.concatenate([large for _, large in pairs])

    def measure(self, graph: Graph) -> Errors:
        """Run a graph with the same inputs and outputs, such as the integer graph, on all samples."""
        collect_dropped_graphs(graph.constant_bytes)
        with Session(_Program(graph, self._chip)) as session, np.errstate(all="ignore"):
            return self.compare(session.run(feed) for feed in self.feeds)

    @property
    def has_scores(self) -> bool:
        """Return True if a branch has the logits of scores."""
        return any(branch.scale.is_logit for branch in self.branches)

    def measure_logits(self, graph: Graph) -> dict[str, tuple[Vector, Vector]]:
        """Run a graph on all samples, and return the logits of scores.

        Returns:
            For every branch of scores, by the name of its tensor, the logits of the float graph and of this one, in the
            same order.
        """
        with Session(_Program(graph, self._chip)) as session, np.errstate(all="ignore"):
            runs = [session.run(feed) for feed in self.feeds]
        logits: dict[str, tuple[Vector, Vector]] = {}
        for output in self._outputs:
            if isinstance(output, _Numbers):
                logits |= output.logits([run[output.name] for run in runs])
        return logits

    def error(self, graph: Graph) -> float:
        """Relative squared error of a graph, averaged over outputs and samples."""
        return self.measure(graph).mean

    def compare(self, runs: Iterable[Mapping[str, Array]]) -> Errors:
        """Compare outputs by name, one mapping per feed, with the float outputs."""
        parts, compared = [], []
        for index, run in enumerate(runs):
            compared += [run] if self._tasks else []
            pairs = [output.compare(index, run[output.name]) for output in self._outputs]
            parts.append(_joined(pairs))
        branches, large = (np.concatenate(column, axis=1) for column in zip(*parts, strict=True))
        return Errors(branches, large, tuple(task.compare(compared) for task in self._tasks))


def _joined(pairs: Sequence[tuple[Vector, Vector]]) -> tuple[Vector, Vector]:
    """Errors of the branches of all outputs; a branch has one number if an output has no axis of samples."""
    count = min(errors.shape[1] for errors, _ in pairs)
    branches, large = (
        np.concatenate([pair[part].reshape(len(pair[part]), count, -1).mean(axis=2) for pair in pairs])
        for part in (0, 1)
    )
    return branches, large


@dataclass(frozen=True)
class _Program:
    graph: Graph
    chip: Chip


class _Output(Protocol):
    """Float results of one output.

    Attributes:
        variance: mean squared distance from the mean as a share of the power; 1 if the outputs are not compared as
            numbers.
        variances: the same by branch, for all and for large values.
    """

    name: str
    variance: float
    variances: tuple[Vector, Vector]

    @property
    def branches(self) -> Sequence[Branch]:
        """The branches, in the order of the errors."""

    def compare(self, index: int, array: Array) -> tuple[Vector, Vector]:
        """Return the errors [branches, samples] of a feed, and the errors of the large values."""


def _output(
    name: str,
    value: Value,
    floats: Sequence[Array],
    feeds: Sequence[Feed],
    branches: OutputBranches,
    *,
    is_logit: bool,
) -> _Output:
    if value.producer is not None and value.producer.op.has_row_set:
        return _Unordered(name, floats, _share_of_rows)
    if not value.dtype.is_float:
        return _Unordered(name, floats, _share_of_different)
    counts = [count_samples(array, feed) for array, feed in zip(floats, feeds, strict=True)]
    labels = [branches.of(name, feed) for feed in feeds]
    return _Numbers(name, floats, counts, [item.of_logits() for item in labels] if is_logit else labels)


class _Unordered:
    """Output whose error is one number per feed."""

    variance = 1.0
    variances = (np.ones(1), np.ones(1))

    def __init__(self, name: str, floats: Sequence[Array], measure: Callable[[Array, Array], float]) -> None:
        self.name = name
        self.branches: Sequence[Branch] = [Branch(name)]
        self._floats = floats
        self._measure = measure

    def compare(self, index: int, array: Array) -> tuple[Vector, Vector]:
        share = np.full((1, 1), self._measure(self._floats[index], array))
        return share, share


class _Numbers:
    """Output of numbers, whose error is the squared difference.

    Args:
        name: name of the output.
        floats: the float results, one per feed.
        counts: number of samples of every feed.
        labels: the branches, for every feed.
    """

    def __init__(
        self, name: str, floats: Sequence[Array], counts: Sequence[int], labels: Sequence[BranchLabels]
    ) -> None:
        self.name = name
        self.branches: Sequence[Branch] = labels[0].branches
        self._floats = floats
        self._counts = counts
        self._labels = labels
        prepared = [self._prepare(index, array) for index, array in enumerate(floats)]
        self._center = _channel_means(prepared)
        powers = [self._powers(index, array) for index, array in enumerate(prepared)]
        self._power, self._large_power = (
            np.concatenate(part, axis=1).mean(axis=1, keepdims=True) for part in zip(*powers, strict=True)
        )
        noise = [self._powers(index, array - self._center) for index, array in enumerate(prepared)]
        plain, large = (np.concatenate(part, axis=1) for part in zip(*noise, strict=True))
        self.variances = (
            _shares(plain.mean(axis=1), self._power[:, 0]),
            _shares(large.mean(axis=1), self._large_power[:, 0]),
        )
        self.variance = float(self.variances[0].mean())

    def compare(self, index: int, array: Array) -> tuple[Vector, Vector]:
        if array.shape != self._floats[index].shape:
            ones = np.ones((len(self.branches), self._counts[index]))
            return ones, ones
        noise = self._prepare(index, array) - self._prepare(index, self._floats[index])
        samples, large = self._powers(index, noise)
        return _shares(samples, self._power), _shares(large, self._large_power)

    def logits(self, arrays: Sequence[Array]) -> dict[str, tuple[Vector, Vector]]:
        """Logits of the scores of the float results and of other ones, by the tensor of the branch."""
        by_tensor = {}
        for number, branch in enumerate(self.branches):
            if not branch.scale.is_logit:
                continue
            parts: tuple[list[Array], list[Array]] = [], []
            for index, pair in enumerate(zip(self._floats, arrays, strict=True)):
                labels = self._labels[index].labels
                for part, array in zip(parts, pair, strict=True):
                    values = self._prepare(index, array)
                    part.append(values.ravel() if labels is None else values[labels == number])
            if all(a.shape == b.shape for a, b in zip(*parts, strict=True)):
                by_tensor[branch.tensor] = np.concatenate(parts[0]), np.concatenate(parts[1])
        return by_tensor

    def _powers(self, index: int, values: Array) -> tuple[Vector, Vector]:
        """Power [branches, samples] of a feed, and power with larger weights for large values."""
        squares = np.square(values)
        weights = np.square(self._prepare(index, self._floats[index]) - self._center)
        plain, weighted = (self._sums(index, array) for array in (squares, squares * weights))
        return plain, weighted

    def _sums(self, index: int, values: Array) -> Vector:
        """Sums over the elements of every branch and sample."""
        rows = values.reshape(self._counts[index], -1)
        labels = self._labels[index].labels
        if labels is None:
            return np.asarray(rows.sum(axis=1, keepdims=True).T)
        count = len(self.branches)
        pairs = zip(labels.reshape(rows.shape), rows, strict=True)
        return np.stack([np.bincount(places, row, count) for places, row in pairs], axis=1)

    def _prepare(self, index: int, array: Array) -> Array:
        """Values on the scale on which the elements of their branch are compared."""
        result: Array = np.nan_to_num(array.astype(np.float64), posinf=0.0, neginf=0.0)
        labels = self._labels[index].labels
        if labels is None:
            return self.branches[0].scale.apply(result)
        for number, branch in enumerate(self.branches):
            if branch.scale is not ErrorScale.LINEAR:
                places = labels == number
                result[places] = branch.scale.apply(result[places])
        return result


def _shares(noise: Vector, power: Vector) -> Vector:
    """Noise as a share of the power of its branch; 1 for noise of a branch that is 0 everywhere."""
    return np.asarray(np.where(power > 0.0, noise / np.where(power > 0.0, power, 1.0), noise > 0.0))


def count_samples(array: Array, feed: Feed) -> int:
    """Number of samples in an output: the samples of the feed if they are on axis 0, else 1."""
    samples = samples_in(feed)
    return samples if array.ndim and array.size and array.shape[0] % samples == 0 else 1


def _channel_means(arrays: Sequence[Array]) -> Array:
    """Mean of every channel over all samples, or of all elements if the shapes differ."""
    first = arrays[0]
    axis = _channel_axis(first)
    if axis is None or any(array.shape != first.shape for array in arrays):
        return np.asarray(np.concatenate([array.ravel() for array in arrays]).mean())
    axes = tuple(other for other in range(first.ndim) if other != axis)
    return np.asarray(np.mean([array.mean(axis=axes, keepdims=True) for array in arrays], axis=0))


def _channel_axis(array: Array) -> int | None:
    """Axis of the channels: 1 of images [N, C, H, W], the shorter one of lists [N, positions, values]."""
    if array.ndim == 3:
        return 1 if array.shape[1] < array.shape[2] else 2
    return 1 if array.ndim > 3 else None


def _share_of_different(floats: Array, array: Array) -> float:
    """Share of different elements; 1 for another shape."""
    return float(np.mean(floats != array)) if floats.shape == array.shape and floats.size else float(floats.size > 0)


def _share_of_rows(floats: Array, array: Array) -> float:
    """Relative squared error of rows in any order, from their cosine similarity."""
    return 2.0 * (1.0 - similarity_of_rows(floats, array)) if floats.size else float(array.size > 0)
