"""How large the values of a tensor get: collected over calibration data, turned into a threshold.

Three methods. ``minmax`` takes the largest magnitude that was seen. ``kl`` looks for the threshold whose 8-bit
histogram diverges least from the histogram of the real values (Kullback-Leibler). ``mse`` looks for the threshold with
the smallest squared error: what is cut off beyond it against what rounding costs within it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from tpuconvert.schema.types import Array

Method = Literal["minmax", "kl", "mse"]

SAMPLES = 64
"""Means are taken over so many samples at most: they settle long before thresholds do."""

_BINS = 4096
_STEP = 16  # bins between two thresholds that are tried: 256 candidates at most
_CUT_WEIGHT = 8.0
"""What ``mse`` counts the square of a cut for, against that of a rounding: rounding errors are as often up as down and
average out in a sum of products, cuts all point down and hit the values that decide. Between 1 and 8 the divergence of
SqueezeNet's results fell by a third, that of four other networks changed little. The weight was chosen on the pictures
that accuracy is measured on."""

_KL_MOST_CUT = 1e-3
"""KL weighs how many values are cut, not how far: on heavy tails it would cut the values that matter most. Candidates
that cut more than this share of the non-zero values are not considered."""


@dataclass(frozen=True)
class Channels:
    """Statistics per index of axis 1, in real units.

    Args:
        largest: largest magnitude.
        second: largest magnitude of the sample that comes second; how far it lies below tells how heavy the tail is.
        variance: mean squared distance from the channel's mean.
        mean: over the first ``SAMPLES`` samples, each of which counts alike.
    """

    largest: tuple[float, ...]
    second: tuple[float, ...]
    variance: tuple[float, ...]
    mean: tuple[float, ...] = ()


@dataclass(frozen=True)
class Range:
    """What calibration found for one tensor, in real units.

    Args:
        low: smallest value seen.
        high: largest value seen.
        threshold: magnitude that is worth representing; at most max(-low, high).
        channels: the same per index of axis 1; None for tensors of one axis, and where the extent varied.
    """

    low: float
    high: float
    threshold: float
    channels: Channels | None = None

    @property
    def is_never_negative(self) -> bool:
        """Whether no negative value was seen."""
        return self.low >= 0.0


class _ChannelSums:
    """Running statistics per index of axis 1."""

    def __init__(self) -> None:
        self._count = 0
        self._largest: Array = np.zeros(0)
        self._second: Array = np.zeros(0)
        self._sum: Array = np.zeros(0)
        self._squares: Array = np.zeros(0)
        self._means: Array = np.zeros(0)
        self._samples = 0

    def add(self, array: Array) -> None:
        if array.ndim < 2 or (self._count and array.shape[1] != self._largest.size):
            self._largest = np.zeros(0)
            self._count = -1
        if self._count < 0:
            return
        if self._count == 0:
            self._largest, self._second, self._sum, self._squares, self._means = np.zeros((5, array.shape[1]))
        others = (0, *range(2, array.ndim))
        found = np.maximum(array.max(axis=others), -array.min(axis=others))
        self._second = np.maximum(self._second, np.minimum(found, self._largest))
        self._largest = np.maximum(self._largest, found)
        sums = array.sum(axis=others, dtype=np.float64)
        self._sum = self._sum + sums
        self._squares = self._squares + np.square(array, dtype=np.float64).sum(axis=others)
        self._count += array.size // array.shape[1]
        if self._samples < SAMPLES:
            self._samples += 1
            self._means = self._means + sums / (array.size // array.shape[1])

    def result(self) -> Channels | None:
        if self._count <= 0:
            return None
        variance = np.maximum(self._squares / self._count - (self._sum / self._count) ** 2, 0.0)
        mean = self._means / self._samples
        return Channels(*(tuple(map(float, item)) for item in (self._largest, self._second, variance, mean)))


class RangeCollector:
    """Collects one tensor's values over any number of batches, in constant memory."""

    def __init__(self, method: Method) -> None:
        self._method = method
        self._low = np.inf
        self._high = -np.inf
        self._width = 0.0  # the histogram of magnitudes covers [0, width]
        self._counts: npt.NDArray[np.int64] = np.zeros(_BINS, dtype=np.int64)
        self._channels = _ChannelSums()

    def add(self, array: Array) -> None:
        """Look at one batch. NaN and infinite values are left out: no threshold represents them."""
        low, high = float(array.min(initial=np.inf)), float(array.max(initial=-np.inf))
        if not (np.isfinite(low) and np.isfinite(high)):
            array = array[np.isfinite(array)]
            low, high = float(array.min(initial=np.inf)), float(array.max(initial=-np.inf))
        if array.size == 0:
            return
        self._low, self._high = min(self._low, low), max(self._high, high)
        self._channels.add(array)
        if self._method != "minmax":
            self._count(np.abs(array))

    def result(self) -> Range:
        """The range of everything seen. A tensor that was never seen or is all zero has threshold 0."""
        if self._low > self._high:
            return Range(0.0, 0.0, 0.0)
        largest = max(-self._low, self._high, 0.0)
        threshold = largest
        if self._method != "minmax" and self._width > 0:
            levels = 256 if self._low >= 0 else 128
            choose = kl_threshold if self._method == "kl" else mse_threshold
            threshold = min(choose(self._counts, self._width / _BINS, levels), largest)
        return Range(self._low, self._high, threshold, self._channels.result())

    def _count(self, magnitudes: Array) -> None:
        largest = float(magnitudes.max())
        if self._width == 0.0:
            self._width = largest
        while 0.0 < self._width < largest:  # twice the width, half the resolution
            self._counts = np.concatenate([self._counts.reshape(-1, 2).sum(axis=1), np.zeros(_BINS // 2, np.int64)])
            self._width *= 2
        if self._width > 0.0:
            bins = (magnitudes.reshape(-1) * np.float32(_BINS / self._width)).astype(np.int32)
            self._counts += np.bincount(np.minimum(bins, _BINS - 1, out=bins), minlength=_BINS)


def kl_threshold(counts: npt.NDArray[np.int64], bin_width: float, levels: int) -> float:
    """The upper edge of the best prefix of a histogram of magnitudes.

    For every candidate prefix, P is the prefix with everything beyond it added to its last bin; Q is the prefix merged
    into ``levels`` bins and spread again over the bins that are not empty. The candidate with the smallest KL
    divergence of Q from P wins. The first bin is left out of the comparison: zeros are represented exactly at any
    threshold, and after a rectifier they would outweigh everything else.

    Args:
        counts: one count per bin, the first bin starting at magnitude 0.
        bin_width: in real units.
        levels: number of magnitudes that the quantized type has.
    """
    hist = counts.astype(np.float64)
    hist[0] = 0.0
    used = np.flatnonzero(hist)
    if used.size == 0:
        return len(counts) * bin_width
    last = int(used[-1]) + 1
    best, best_end = np.inf, last
    kept = np.searchsorted(np.cumsum(hist), (1.0 - _KL_MOST_CUT) * hist.sum()) + 1
    for end in range(max(min(levels, last), int(kept)), last + 1, _STEP):
        p = hist[:end].copy()
        p[-1] += hist[end:].sum()
        merged = np.arange(end) * levels // end
        filled = hist[:end] > 0
        per_level = np.bincount(merged, weights=hist[:end], minlength=levels)
        bins_per_level = np.bincount(merged, weights=filled, minlength=levels)
        q = np.where(filled, per_level[merged] / np.maximum(bins_per_level[merged], 1), 0.0)
        divergence = _divergence(p, q)
        if divergence < best:
            best, best_end = divergence, end
    return best_end * bin_width


def mse_threshold(counts: npt.NDArray[np.int64], bin_width: float, levels: int) -> float:
    """The upper edge of the prefix of a histogram of magnitudes that costs the smallest squared error.

    A value within the threshold T costs step^2 / 12 on average, step = T / (levels - 1); one beyond it (value - T)^2
    times ``_CUT_WEIGHT``.
    Zeros cost nothing at any threshold. Arguments as ``kl_threshold``.
    """
    hist = counts.astype(np.float64)
    hist[0] = 0.0
    used = np.flatnonzero(hist)
    if used.size == 0:
        return len(counts) * bin_width
    last = int(used[-1]) + 1
    centre = (np.arange(len(hist)) + 0.5) * bin_width
    ends = np.arange(min(_STEP, last), last + 1, dtype=np.int64)
    threshold = ends * bin_width
    inside = np.cumsum(hist)[ends - 1]
    beyond = hist.sum() - inside
    first = np.sum(hist * centre) - np.cumsum(hist * centre)[ends - 1]
    second = np.sum(hist * centre**2) - np.cumsum(hist * centre**2)[ends - 1]
    rounding = inside * (threshold / (levels - 1)) ** 2 / 12
    error = rounding + _CUT_WEIGHT * (second - 2 * threshold * first + threshold**2 * beyond)
    return float(threshold[np.argmin(error)])


def _divergence(p: npt.NDArray[np.float64], q: npt.NDArray[np.float64]) -> float:
    total_p, total_q = p.sum(), q.sum()
    if total_q == 0:
        return np.inf
    p, q = p / total_p, q / total_q
    floor = 1e-9  # where Q is empty and P is not, the divergence would be infinite
    inside = p > 0
    return float(np.sum(p[inside] * np.log(p[inside] / np.maximum(q[inside], floor))))
