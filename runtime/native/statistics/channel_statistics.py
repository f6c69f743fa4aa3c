"""Statistics of tensors for calibration. The native engine handles float32 tensors, NumPy all others.

Both add the positions of a channel one after the other in binary64, so that they give the same bytes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tpuconvert.runtime.native.builder.loader import chosen_isa, extension, native
from tpuconvert.schema.types import Array

BINS = 8192
"""Number of bins of a histogram of magnitudes."""

_CHUNK = 1 << 16
"""Number of elements that NumPy processes at once: their intermediate results fit into the L2 cache."""


class ChannelSummary(NamedTuple):
    """Statistics of a tensor [outer, channels, positions] along its last axis.

    Args:
        sums: [outer, channels]. An element is not finite if an element of the tensor is not.
        squares: sums of squares, like ``sums``.
        highest: maxima; unspecified where the sum is not finite.
        lowest: minima; unspecified where the sum is not finite.
        low: smallest element; unspecified if an element is not finite.
        high: largest element; unspecified if an element is not finite.
        is_finite: True if all elements are finite.
    """

    sums: npt.NDArray[np.float64]
    squares: npt.NDArray[np.float64]
    highest: Array
    lowest: Array
    low: float
    high: float
    is_finite: bool


def channel_summary(rows: Array) -> ChannelSummary:
    """Summarize a tensor [outer, channels, positions] with at least one position, in any memory order."""
    function = _function("channel_statistics", rows)
    if function is None:
        wide = rows.transpose(2, 0, 1).astype(np.float64, order="C")
        sums = _sum_in_order(wide)
        squares = _sum_in_order(np.square(wide, out=wide))
        highest, lowest = rows.max(axis=2), rows.min(axis=2)
        is_finite = bool(np.isfinite(sums).all())
        return ChannelSummary(sums, squares, highest, lowest, float(lowest.min()), float(highest.max()), is_finite)
    shape = rows.shape[:2]
    arrays = np.empty(shape), np.empty(shape), np.empty(shape, np.float32), np.empty(shape, np.float32)
    return ChannelSummary(*arrays, *function(rows, *arrays, chosen_isa()))


def _sum_in_order(rows: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Sum over the first axis of a contiguous array, one row after the other."""
    # NumPy reduces a single column pairwise.
    total: npt.NDArray[np.float64] = (
        np.add.reduce(rows, axis=0) if rows[0].size > 1 else np.add.accumulate(rows, axis=0)[-1]
    )
    return total


def count_magnitudes(rows: Array, exponent: int, counts: npt.NDArray[np.int64]) -> None:
    """Add the number of elements with ``floor(abs(x) / 2^exponent) = k`` to ``counts[k]``.

    Args:
        rows: finite numbers [outer, channels, positions], below ``2^exponent * len(counts)`` in magnitude.
        exponent: binary logarithm of the width of a bin.
        counts: ``BINS`` bins, changed in place.
    """
    # The product of a binary32 value and 2^-e is exact, or it is below 2^-126 and in the first bin with any rounding.
    is_exact = rows.dtype.itemsize <= 4 and -126 <= exponent <= 126
    function = _function("count_magnitudes", rows) if is_exact else None
    if function is not None:
        function(rows, 2.0**-exponent, counts, chosen_isa())
        return
    flat = rows.reshape(-1)
    for start in range(0, flat.size, _CHUNK):
        part = flat[start : start + _CHUNK]
        if is_exact:
            bins = np.abs(part * np.float32(2.0**-exponent)).astype(np.int32)
        else:
            bins = np.abs(np.ldexp(part.astype(np.float64), -exponent)).astype(np.int64)
        bin_counts = np.bincount(bins)
        counts[: bin_counts.size] += bin_counts


class CollectedStatistics(NamedTuple):
    """Statistics of the runs of a ``TensorStatistics``.

    Args:
        runs: number of runs.
        summary: of the values of all runs, [runs * outer, channels].
        counts: as for ``count_magnitudes``.
        exponent: binary logarithm of the width of a bin, for which the largest magnitude is in the upper half of the
            bins; a negative number below all others if there are only zeros.
    """

    runs: int
    summary: ChannelSummary
    counts: npt.NDArray[np.int64]
    exponent: int


class TensorStatistics:
    """Statistics of a tensor that the native engine collects in runs of an observed plan.

    Args:
        location: where the elements are in the memory of a run.
        rows: a view of them, [outer, channels, positions].
        has_histogram: whether to count magnitudes.
    """

    def __init__(self, location: Any, rows: Array, *, has_histogram: bool) -> None:
        self.native = native().TensorStatistics(location, rows, has_histogram, chosen_isa())
        self._shape = rows.shape

    def take(self) -> CollectedStatistics | None:
        """Return the statistics of all runs since the last call; None if there was none."""
        runs, low, high, exponent = self.native.runs, self.native.low, self.native.high, self.native.exponent
        if runs == 0:
            return None
        shape = runs * self._shape[0], self._shape[1]
        arrays = np.empty(shape), np.empty(shape), np.empty(shape, np.float32), np.empty(shape, np.float32)
        counts = np.zeros(BINS, np.int64)
        self.native.take(*arrays, counts)
        return CollectedStatistics(runs, ChannelSummary(*arrays, low, high, True), counts, exponent)


def can_collect(rows: Array) -> bool:
    """Return True if ``TensorStatistics`` takes a tensor, [outer, channels, positions]."""
    return rows.size > 0 and _function("TensorStatistics", rows) is not None


def _function(name: str, rows: Array) -> Any:
    """Return a function of the extension, or None if NumPy has to compute the statistics."""
    return getattr(extension(), name, None) if rows.dtype == np.float32 and rows.flags.aligned else None
