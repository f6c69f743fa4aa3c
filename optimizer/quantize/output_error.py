"""Error of a quantized graph at the outputs of the network, on fixed samples.

The float outputs are recorded once. Any number of quantized graphs are then compared with them, sample by sample, so
that two graphs can be compared in pairs: the differences between their errors scatter much less than the errors.

The error of an output is the squared difference as a share of the mean power of the float output over all samples. All
outputs have the same weight. Special outputs:

- *Classes*: softmax over a whole sample is compared by its logarithm. Probabilities saturate: the error of the few
  samples without a clear result would outweigh all others.
- *Integers and booleans*: the share of the elements that differ.
- *Sets of rows*, such as detections: rows are compared with the nearest one of the other set.

Rare large responses, such as those to an object in an image, contribute little to the power. ``Errors.large`` therefore
weights the squared differences with the squared distance of the float value from the mean of its channel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from tpuconvert.optimizer.quantize.deciding import similarity_of_rows
from tpuconvert.optimizer.quantize.ranges import samples_in
from tpuconvert.optimizer.quantize.traits import changes_shape_or_axes
from tpuconvert.runtime.session import Session
from tpuconvert.schema.gc_control import collect_dropped_graphs
from tpuconvert.schema.graph import Graph, Value
from tpuconvert.schema.ops.softmax import Softmax
from tpuconvert.schema.types import Array, Chip

HELD_OUT = 16
"""Maximum number of held-out samples."""

_MEMORY = 1 << 26
"""Limit for the recorded float outputs, in bytes."""

_SMALLEST_PROBABILITY = 1e-4
"""Probabilities below are compared as this one."""

_NEGLIGIBLE = 1e-3
"""Share of the mean error below which the error of a sample does not matter for a ratio."""

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
    """Relative squared errors at the outputs by sample, averaged over the outputs.

    Args:
        samples: one number per sample.
        large: the same, with larger weights for values far from the mean of their channel.
    """

    samples: Vector
    large: Vector

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
        floor = _NEGLIGIBLE * other.mean or np.finfo(np.float64).tiny
        return _difference(np.log((self.samples + floor) / (other.samples + floor)))

    def large_minus(self, other: Errors) -> Difference:
        """Compare the errors of large values."""
        return _difference(self.large - other.large)


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
        known: float outputs of the first feeds. The graph is not run if they are those of all feeds.
    """

    def __init__(
        self, graph: Graph, chip: Chip, feeds: Iterable[Feed], known: Sequence[Mapping[str, Array]] = ()
    ) -> None:
        self.feeds: list[Feed] = []
        self._chip = chip
        runs: list[Mapping[str, Array]] = []
        size = 0
        with ExitStack() as stack, np.errstate(all="ignore"):
            session: Session | None = None
            for number, feed in enumerate(feeds):
                if number >= len(known) and session is None:
                    session = stack.enter_context(Session(graph))
                run = known[number] if session is None else session.run(feed)
                size += sum(array.nbytes for array in run.values())
                if runs and size > _MEMORY:
                    break
                runs.append(run)
                self.feeds.append(feed)
        self._outputs = [
            _output(port.name, value, [run[port.name] for run in runs], self.feeds)
            for value, port in zip(graph.outputs, graph.output_ports, strict=True)
        ]

    @property
    def variance(self) -> float:
        """Variance of the float outputs as a share of their power, averaged over the outputs."""
        return float(np.mean([output.variance for output in self._outputs]))

    def measure(self, graph: Graph) -> Errors:
        """Run a graph with the same inputs and outputs, such as the integer graph, on all samples."""
        collect_dropped_graphs(graph.constant_bytes)
        with Session(_Program(graph, self._chip)) as session, np.errstate(all="ignore"):
            return self.compare(session.run(feed) for feed in self.feeds)

    def error(self, graph: Graph) -> float:
        """Relative squared error of a graph, averaged over outputs and samples."""
        return self.measure(graph).mean

    def compare(self, runs: Iterable[Mapping[str, Array]]) -> Errors:
        """Compare outputs by name, one mapping per feed, with the float outputs."""
        parts = []
        for index, run in enumerate(runs):
            pairs = [output.compare(index, run[output.name]) for output in self._outputs]
            parts.append(_mean_of(pairs))
        samples, large = (np.concatenate(column) for column in zip(*parts, strict=True))
        return Errors(samples, large)


def _mean_of(pairs: Sequence[tuple[Vector, Vector]]) -> tuple[Vector, Vector]:
    """Mean of the errors of all outputs; they are one number if an output has no axis of samples."""
    count = min(len(samples) for samples, _ in pairs)
    samples, large = (
        np.mean([pair[part].reshape(count, -1).mean(axis=1) for pair in pairs], axis=0) for part in (0, 1)
    )
    return samples, large


@dataclass(frozen=True)
class _Program:
    graph: Graph
    chip: Chip


class _Output(Protocol):
    """Float results of one output.

    Attributes:
        variance: mean squared distance from the mean as a share of the power; 1 if the error is not that of numbers.
    """

    name: str
    variance: float

    def compare(self, index: int, found: Array) -> tuple[Vector, Vector]:
        """Return the error of every sample of a feed, and that of the large values."""


def _output(name: str, value: Value, floats: Sequence[Array], feeds: Sequence[Feed]) -> _Output:
    if value.producer is not None and value.producer.op.has_row_set:
        return _Unordered(name, floats, _share_of_rows)
    if not value.dtype.is_float:
        return _Unordered(name, floats, _share_of_different)
    counts = [count_samples(array, feed) for array, feed in zip(floats, feeds, strict=True)]
    return _Numbers(name, floats, counts, is_logarithmic=_is_class_distribution(value))


class _Unordered:
    """Output whose error is one number per feed."""

    variance = 1.0

    def __init__(self, name: str, floats: Sequence[Array], measure: Callable[[Array, Array], float]) -> None:
        self.name = name
        self._floats = floats
        self._measure = measure

    def compare(self, index: int, found: Array) -> tuple[Vector, Vector]:
        share = np.full(1, self._measure(self._floats[index], found))
        return share, share


class _Numbers:
    """Output of numbers, whose error is the squared difference."""

    def __init__(self, name: str, floats: Sequence[Array], counts: Sequence[int], *, is_logarithmic: bool) -> None:
        self.name = name
        self._floats = floats
        self._counts = counts
        self._is_logarithmic = is_logarithmic
        self._center = _channel_means([self._prepare(array) for array in floats])
        prepared = [self._prepare(array) for array in floats]
        powers = [self._powers(index, array) for index, array in enumerate(prepared)]
        self._power, self._large_power = (float(np.concatenate(part).mean()) for part in zip(*powers, strict=True))
        noise = [self._powers(index, array - self._center)[0] for index, array in enumerate(prepared)]
        self.variance = float(_shares(np.concatenate(noise), self._power).mean())

    def compare(self, index: int, found: Array) -> tuple[Vector, Vector]:
        if found.shape != self._floats[index].shape:
            return np.ones(1), np.ones(1)
        noise = self._prepare(found) - self._prepare(self._floats[index])
        samples, large = self._powers(index, noise)
        return _shares(samples, self._power), _shares(large, self._large_power)

    def _powers(self, index: int, values: Array) -> tuple[Vector, Vector]:
        """Power of every sample of a feed, and power with larger weights for large values."""
        squares = np.square(values)
        weights = np.square(self._prepare(self._floats[index]) - self._center)
        samples = self._counts[index]
        plain, weighted = (array.reshape(samples, -1).sum(axis=1) for array in (squares, squares * weights))
        return plain, weighted

    def _prepare(self, array: Array) -> Array:
        result: Array = np.nan_to_num(array.astype(np.float64), posinf=0.0, neginf=0.0)
        return np.log(np.maximum(result, _SMALLEST_PROBABILITY)) if self._is_logarithmic else result


def _shares(noise: Vector, power: float) -> Vector:
    """Noise as a share of the power; 1 for noise of an output that is 0 everywhere."""
    return noise / power if power > 0.0 else (noise > 0.0).astype(np.float64)


def count_samples(array: Array, feed: Feed) -> int:
    """Number of samples in an output: those of the feed if they are on axis 0, else 1."""
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


def _is_class_distribution(value: Value) -> bool:
    """Return True for a softmax over all elements of a sample, also if a change of the shape follows."""
    node = value.producer
    while node is not None and changes_shape_or_axes(node.op) and node.inputs[0] is not None:
        node = node.inputs[0].producer
    is_alone = value.rank >= 2 and sum(extent != 1 for extent in value.shape[1:]) == 1
    return is_alone and node is not None and isinstance(node.op, Softmax)


def _share_of_different(wanted: Array, found: Array) -> float:
    """Share of different elements; 1 for another shape."""
    return float(np.mean(wanted != found)) if wanted.shape == found.shape and wanted.size else float(wanted.size > 0)


def _share_of_rows(wanted: Array, found: Array) -> float:
    """Relative squared error of rows in any order, from their cosine similarity."""
    return 2.0 * (1.0 - similarity_of_rows(wanted, found)) if wanted.size else float(found.size > 0)
