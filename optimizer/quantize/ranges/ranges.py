"""Ranges of tensors: collected over calibration samples, and converted to a threshold.

``minmax`` takes the largest magnitude of all samples, ``percentile:P`` the magnitude that P percent of all values do
not exceed. The other methods are in ``thresholds``.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tpuconvert.optimizer.precision_rules import split_method
from tpuconvert.optimizer.quantize.ranges.exact_statistics import ExactSums, Histogram
from tpuconvert.optimizer.quantize.ranges.range_statistics import (
    BINS,
    RangeStatistics,
    clipped_share,
    expected_growth,
    level_counts,
)
from tpuconvert.optimizer.quantize.ranges.thresholds import (
    aciq_threshold,
    kl_threshold,
    mse_threshold,
    octav_threshold,
    percentile_threshold,
    relative_error,
)
from tpuconvert.runtime.native.statistics.channel_statistics import (
    ChannelSummary,
    TensorStatistics,
    can_collect,
    channel_summary,
)
from tpuconvert.schema.types import Array

_WAITING = 32
"""Number of batches whose statistics per channel are buffered before they are added."""

_THRESHOLDS = {"kl": kl_threshold, "mse": mse_threshold, "octav": octav_threshold, "aciq": aciq_threshold}


@dataclass(frozen=True)
class Channels:
    """Calibration result per index of axis 1.

    Args:
        largest: largest magnitude.
        second: largest magnitude without the sample that has ``largest``; its distance from the largest indicates how
            heavy the tail is.
        variance: mean squared distance from the channel's mean. All samples have the same weight.
        mean: mean of the channel. All samples have the same weight.
        low: smallest value; empty if the range is from a file.
        high: largest value, like ``low``.
    """

    largest: tuple[float, ...]
    second: tuple[float, ...]
    variance: tuple[float, ...]
    mean: tuple[float, ...] = ()
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()


@dataclass(frozen=True)
class Range:
    """Calibration result of one tensor.

    Args:
        low: smallest value of all samples.
        high: largest value of all samples.
        threshold: largest magnitude that quantization should represent. Calibration chooses at most max(-low, high).
        channels: statistics per index of axis 1; None for tensors of rank 1, or if the extent varied.
        method: method of the threshold, if it was chosen by a search; otherwise empty.
        statistics: what reports show of the calibration; None if the range is from a file.
        has_zero_point: whether a search chose 8-bit integers with a zero point, where the chip has them.
        unevenness: mean square of the largest magnitude of a sample, relative to the square of the median of these
            magnitudes: 1 if all samples have equal ranges, and 1 if the range is from a file.
    """

    low: float
    high: float
    threshold: float
    channels: Channels | None = None
    method: str = ""
    statistics: RangeStatistics | None = None
    has_zero_point: bool = False
    unevenness: float = 1.0

    def with_threshold(self, threshold: float) -> Range:
        """Return the range with the threshold of a precision rule."""
        statistics = self.statistics and self.statistics.with_threshold(threshold)
        return dataclasses.replace(self, threshold=threshold, statistics=statistics)

    @property
    def is_never_negative(self) -> bool:
        """Return True if no sample has a negative value."""
        return self.low >= 0.0


def samples_in(feeds: Mapping[str, Array]) -> int:
    """Number of samples in one feed: the extent of axis 0 if all inputs agree, else 1."""
    extents = {array.shape[0] for array in map(np.asarray, feeds.values()) if array.ndim}
    return extents.pop() if len(extents) == 1 and 0 not in extents else 1


class ChannelMeans:
    """Mean per index of axis 1. All samples have the same weight, and their order does not matter."""

    def __init__(self) -> None:
        self._sums: ExactSums | None = None
        self._samples = 0
        self._is_valid = True

    def add(self, array: Array, samples: int) -> None:
        """Add the values of one batch. The arguments are the same as for ``RangeCollector.add``."""
        rows = _rows(array)
        count = samples if len(rows) % samples == 0 else 1
        self.add_means(_sample_means(channel_summary(rows).sums, rows.shape[2], count))

    def add_means(self, means: npt.NDArray[np.float64]) -> None:
        """Add the means of samples, [samples, channels]."""
        if self._sums is None:
            self._sums = ExactSums(means.shape[1])
        has_same_channels = means.shape[1] == self._sums.size
        self._is_valid = self._is_valid and has_same_channels and bool(np.isfinite(means).all())
        if self._is_valid:
            self._sums.add(means)
            self._samples += len(means)

    def merge(self, other: ChannelMeans) -> None:
        """Add the data of another object, which is not changed."""
        self._is_valid = self._is_valid and other._is_valid
        if other._sums is not None:
            if self._sums is None:
                self._sums = ExactSums(other._sums.size)
            if self._sums.size != other._sums.size:
                self._is_valid = False
                return
            self._sums.merge(other._sums)
            self._samples += other._samples

    def result(self) -> Array | None:
        """Return the means; None if there are no values, some are not finite, or the number of channels varies."""
        return self._sums.divided_by(self._samples) if self._sums is not None and self._is_valid else None


def _rows(array: Array) -> Array:
    """Reshape an array to [axis 0, axis 1, all others]."""
    return array.reshape(array.shape[0], array.shape[1], -1) if array.ndim > 1 else array.reshape(1, 1, -1)


def _sample_means(sums: npt.NDArray[np.float64], positions: int, samples: int) -> npt.NDArray[np.float64]:
    """Mean of each sample by channel, from the sums over the positions of every row.

    The order of the additions in a sample does not depend on the other samples.
    """
    outer, channels = sums.shape
    if outer == samples:
        return sums / positions
    means: npt.NDArray[np.float64] = sums.reshape(samples, -1, channels).sum(axis=1) / (outer // samples * positions)
    return means


class _Samples(NamedTuple):
    """Statistics of samples, [samples, channels], each over a number of elements of a channel."""

    highest: Array
    lowest: Array
    sums: Array
    squares: Array
    elements: int


def _per_sample(summary: ChannelSummary, positions: int, samples: int) -> _Samples:
    """Reduce the summary of values [samples * m, channels, positions] to one row per sample."""
    rows, channels = summary.sums.shape
    if rows == samples:
        return _Samples(summary.highest, summary.lowest, summary.sums, summary.squares, positions)
    highest, lowest, sums, squares = (
        reduce(array.reshape(samples, -1, channels), axis=1)
        for reduce, array in (
            (np.maximum.reduce, summary.highest),
            (np.minimum.reduce, summary.lowest),
            (np.add.reduce, summary.sums),
            (np.add.reduce, summary.squares),
        )
    )
    return _Samples(highest, lowest, sums, squares, rows // samples * positions)


class _ChannelStatistics:
    """Statistics per index of axis 1. All samples have the same weight."""

    def __init__(self) -> None:
        self._is_valid = True
        self._channels = self._samples = 0
        self._largest: Array = np.zeros(0)
        self._second: Array = np.zeros(0)
        self._low: Array = np.zeros(0)
        self._high: Array = np.zeros(0)
        self._mean = self._square = ExactSums(0)
        self._waiting: list[_Samples] = []
        self._largest_of_samples: Array = np.zeros(0)

    def add(self, summary: ChannelSummary, positions: int, samples: int) -> None:
        """Add samples: the summary of their values [samples * m, channels, positions]."""
        if self._accepts(summary.sums.shape[1]):
            self._samples += samples
            self._waiting.append(_per_sample(summary, positions, samples))
            if len(self._waiting) >= _WAITING:
                self.digest()

    def invalidate(self) -> None:
        """Make the result None, because the extent varied or there is no axis 1."""
        self._is_valid = False
        self._waiting = []

    def merge(self, other: _ChannelStatistics) -> None:
        if not other._is_valid:
            self.invalidate()
        if other._samples and self._accepts(other._channels):
            self._samples += other._samples
            self._waiting += other._waiting
            if len(self._waiting) >= _WAITING:
                self.digest()
            self._insert(np.stack([other._largest, other._second]))
            self._append(other._largest_of_samples)
            self._widen(other._low, other._high)
            self._mean.merge(other._mean)
            self._square.merge(other._square)

    def result(self) -> Channels | None:
        if not self._is_valid or self._samples == 0:
            return None
        self.digest()
        mean, square = self._mean.divided_by(self._samples), self._square.divided_by(self._samples)
        # Adding 0 makes negative zeros positive. Otherwise the sign of the minimum would depend on the order.
        largest, second, low, high = (bound + 0.0 for bound in (self._largest, self._second, self._low, self._high))
        columns = (largest, second, np.maximum(square - mean**2, 0.0), mean, low, high)
        return Channels(*(tuple(map(float, column)) for column in columns))

    def _accepts(self, channels: int) -> bool:
        if self._samples == 0 and self._is_valid:
            self._channels = channels
            self._largest, self._second = np.zeros((2, channels))
            self._low, self._high = np.full(channels, np.inf), np.full(channels, -np.inf)
            self._mean, self._square = ExactSums(channels), ExactSums(channels)
        elif channels != self._channels:
            self.invalidate()
        return self._is_valid

    def _widen(self, low: Array, high: Array) -> None:
        self._low, self._high = np.minimum(self._low, low), np.maximum(self._high, high)

    def __getstate__(self) -> dict[str, Any]:
        self.digest()
        return vars(self)

    def digest(self) -> None:
        """Add the buffered samples. Few large steps cost less than many small ones."""
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        highest, lowest, sums, squares = (np.concatenate(column) for column in list(zip(*waiting, strict=True))[:4])
        counts = np.repeat([summary.elements for summary in waiting], [len(summary.sums) for summary in waiting])[
            :, None
        ]
        magnitude = np.maximum(highest, -lowest)
        self._insert(magnitude)
        self._append(magnitude.max(axis=1))
        self._widen(lowest.min(axis=0), highest.max(axis=0))
        self._mean.add(sums / counts)
        self._square.add(squares / counts)

    def largest_of_samples(self) -> Array:
        """Return the largest magnitude of each sample, in any order; nothing if ``result`` returns None."""
        if not self._is_valid:
            return np.zeros(0)
        self.digest()
        return self._largest_of_samples

    def _append(self, largest: Array) -> None:
        self._largest_of_samples = np.concatenate([self._largest_of_samples, largest.astype(np.float64)])

    def _insert(self, magnitudes: Array) -> None:
        """Update the two largest magnitudes by the magnitudes of more samples."""
        both = np.concatenate([[self._second, self._largest], magnitudes])
        both.partition(len(both) - 2, axis=0)
        self._second, self._largest = both[-2:]


class _Source(NamedTuple):
    """Statistics that the engine collects, of values with ``positions`` per channel in ``samples`` per run."""

    statistics: TensorStatistics
    positions: int
    samples: int


def _unevenness(largest: Array) -> float:
    """Mean square of numbers relative to the square of their median, at least 1; they may be in any order."""
    ordered = np.sort(largest)
    median = float(np.median(ordered)) if ordered.size else 0.0
    return max(1.0, float(np.mean(np.square(ordered / median)))) if median > 0.0 else 1.0


class RangeCollector:
    """Collects the values of one tensor over any number of samples, in constant memory.

    The result depends on the set of samples only: not on their order, nor on the batches or collectors that they were
    distributed to.

    Args:
        method: method of ``result``.
        keeps_histogram: whether ``threshold`` is called with other methods than ``minmax``.
    """

    def __init__(self, method: str, *, keeps_histogram: bool = False) -> None:
        self.method = method
        self.has_histogram = keeps_histogram or split_method(method)[0] != "minmax"
        self._low = np.inf
        self._high = -np.inf
        self._histogram = Histogram()
        self._channels = _ChannelStatistics()
        self._sources: list[_Source] = []

    def collecting(self, location: Any, array: Array, samples: int = 1) -> TensorStatistics | None:
        """Return statistics of the native engine that replace calls of ``add``, until ``release``.

        Args:
            location: where the values are in the memory of the engine.
            array: a view of them.
            samples: as for ``add``.

        Returns:
            None if only ``add`` takes such an array.
        """
        if array.ndim < 2 or array.size == 0:
            return None
        rows = _rows(array)
        if not np.may_share_memory(rows, array) or not can_collect(rows):
            return None
        statistics = TensorStatistics(location, rows, has_histogram=self.has_histogram)
        self._sources.append(_Source(statistics, rows.shape[2], samples if len(rows) % samples == 0 else 1))
        return statistics

    def update(self) -> None:
        """Add what the engine has collected."""
        for source in self._sources:
            statistics = source.statistics.take()
            if statistics is not None:
                self._channels.add(statistics.summary, source.positions, statistics.runs * source.samples)
                self._channels.digest()  # of many samples: buffering more would need their memory
                self._widen(statistics.summary.low, statistics.summary.high)
                if self.has_histogram:
                    self._histogram.add_counts(statistics.counts, statistics.exponent)

    def release(self) -> None:
        """Add what the engine has collected; it collects no more."""
        self.update()
        self._sources = []

    def add(self, array: Array, samples: int = 1) -> None:
        """Add the values of one batch. NaN and infinite values are ignored, because no threshold represents them.

        Args:
            array: values of one tensor.
            samples: number of samples in the batch. Axis 0 is a multiple of them, or the array counts as one sample.
        """
        if array.size == 0:
            return
        rows = _rows(array)
        summary = channel_summary(rows)
        if not summary.is_finite:
            self._channels.invalidate()
            self._add_values(array[np.isfinite(array)])
            return
        if array.ndim < 2:
            self._channels.invalidate()
        else:
            count = samples if len(rows) % samples == 0 else 1
            self._channels.add(summary, rows.shape[2], count)
        self._add_range(rows, summary.low, summary.high)

    def merge(self, other: RangeCollector) -> None:
        """Add the data of another collector of the same method, which is not changed."""
        if other.method != self.method:
            raise ValueError(f"a collector for {other.method}, expected {self.method}")
        self._low, self._high = min(self._low, other._low), max(self._high, other._high)
        self._histogram.merge(other._histogram)
        self._channels.merge(other._channels)

    def result(self) -> Range:
        """Return the range of all values. The threshold is 0 if there are no values, or only zeros."""
        if self._low > self._high:
            return Range(0.0, 0.0, 0.0)
        threshold = self.threshold(self.method)
        statistics = self.statistics(self.method, threshold)
        uneven = _unevenness(self._channels.largest_of_samples())
        return Range(self._low, self._high, threshold, self.channels(), statistics=statistics, unevenness=uneven)

    def statistics(self, method: str, threshold: float) -> RangeStatistics:
        """Return the statistics for reports, with the threshold of a method."""
        largest = self._channels.largest_of_samples()
        growth, samples = expected_growth(largest), len(largest)
        counts = self._histogram.counts
        if not self.has_histogram or not counts.any():
            return RangeStatistics(method, growth=growth, samples=samples)
        exponent = self._histogram.exponent
        clipped = clipped_share(counts, math.ldexp(threshold, -exponent))
        bins = exponent + (len(counts) // BINS).bit_length() - 1
        return RangeStatistics(method, level_counts(counts), bins, clipped, growth, samples)

    def threshold(self, method: str) -> float:
        """Threshold that a method gives for the collected values. Methods except ``minmax`` need a histogram."""
        largest = max(-self._low, self._high)
        name, share = split_method(method)
        if name == "minmax" or largest <= 0:
            return max(largest, 0.0)
        counts, levels = self._histogram.counts, self._levels
        edge = percentile_threshold(counts, share) if share is not None else _THRESHOLDS[name](counts, levels)
        return min(math.ldexp(edge, self._histogram.exponent), largest)

    def error(self, threshold: float) -> float:
        """Expected squared error of 8-bit integers with a threshold, as a share of the power."""
        return relative_error(self._histogram.counts, math.ldexp(threshold, -self._histogram.exponent), self._levels)

    @property
    def _levels(self) -> int:
        """Number of magnitudes of UINT8 for values that are never negative, else of INT8."""
        return 256 if self._low >= 0 else 128

    def channels(self) -> Channels | None:
        """Return the statistics per channel; None if there are no channels, or not all values are finite."""
        self.update()
        return self._channels.result()

    def _add_values(self, finite: Array) -> None:
        if finite.size:
            self._add_range(finite, float(finite.min()), float(finite.max()))

    def _widen(self, low: float, high: float) -> None:
        # Adding 0 prevents a negative zero.
        self._low, self._high = min(self._low, low) + 0.0, max(self._high, high) + 0.0

    def _add_range(self, array: Array, low: float, high: float) -> None:
        self._widen(low, high)
        if self.has_histogram:
            self._histogram.add(array, max(-low, high))
