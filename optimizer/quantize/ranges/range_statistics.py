"""Statistics of a calibrated tensor that reports show: a small histogram, the clipped share, and the convergence.

They are exact: they do not depend on the order of the samples, nor on the workers that counted them. Integers and
operations that are rounded in the same way everywhere give the same bytes on every machine.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from tpuconvert.schema.arithmetic.count_levels import counts_of, levels_of
from tpuconvert.schema.types import Array

BINS = 64
"""Number of bins of the magnitudes. The largest one is in the upper half."""

RULE = "rule"
"""Method of a threshold that a precision rule gives."""


@dataclass(frozen=True)
class RangeStatistics:
    """Statistics of one tensor over all samples.

    Args:
        method: calibration method of the threshold.
        levels: levels of the counts in ``BINS`` bins of magnitudes, the first bin starting at 0; empty if the method
            needs no histogram.
        exponent: the width of a bin is ``2^exponent``.
        clipped: share of the values with a larger magnitude than the threshold; None without a histogram.
        growth: mean of the largest magnitude of 1, 2, 4 ... samples and of all, as a share of the largest of all; empty
            if the tensor has no axis for samples. The mean is over all subsets with this number of samples.
        samples: number of samples.
    """

    method: str
    levels: bytes = b""
    exponent: int = 0
    clipped: float | None = None
    growth: tuple[float, ...] = ()
    samples: int = 0

    def with_threshold(self, threshold: float) -> RangeStatistics:
        """Return the statistics with the threshold of a precision rule. The clipped share is estimated from levels."""
        if not self.levels:
            return dataclasses.replace(self, method=RULE)
        clipped = clipped_share(np.array(counts_of(self.levels), np.int64), math.ldexp(threshold, -self.exponent))
        return dataclasses.replace(self, method=RULE, clipped=clipped)


def level_counts(counts: npt.NDArray[np.int64]) -> bytes:
    """Merge the bins of a histogram into ``BINS`` bins, and return the levels of their counts."""
    merged = counts.reshape(BINS, -1).sum(axis=1)
    return levels_of(merged)


def clipped_share(counts: npt.NDArray[np.int64], threshold: float) -> float:
    """Return the share of the values beyond a threshold in bins. Values of a bin are distributed uniformly."""
    total = int(counts.sum())
    if not total or threshold >= len(counts):
        return 0.0
    index = int(threshold)
    beyond = int(counts[index + 1 :].sum()) + float(counts[index]) * (1.0 - (threshold - index))
    return beyond / total


def sample_counts(samples: int) -> list[int]:
    """Return 1, 2, 4 ... and the number of samples."""
    return [1 << power for power in range(samples.bit_length()) if 1 << power < samples] + (
        [samples] if samples else []
    )


def expected_growth(largest: Array) -> tuple[float, ...]:
    """Return the mean of the largest of 1, 2, 4 ... and all numbers, as a share of the largest number.

    The mean is over all subsets of this size. It depends on the numbers only, not on their order.
    """
    ordered = np.sort(largest.astype(np.float64))
    if not ordered.size or ordered[-1] <= 0.0:
        return ()
    shares = ordered / ordered[-1]
    counts = sample_counts(len(ordered))
    return tuple(math.fsum((_weights(len(ordered), count) * shares).tolist()) for count in counts)


@lru_cache(64)
def _weights(samples: int, count: int) -> Array:
    """Return the probability that each of ascending numbers is the largest of ``count`` of them.

    Number ``i`` of ``n`` has the probability ``C(i - 1, count - 1) / C(n, count)``.
    """
    weights = np.zeros(samples)
    weights[-1] = count / samples
    for i in range(samples, count, -1):
        weights[i - 2] = weights[i - 1] * ((i - count) / (i - 1))
    return weights


def typical_growth(statistics: Mapping[str, RangeStatistics]) -> tuple[list[int], list[float], list[float], str]:
    """Return numbers of samples; the median and the smallest growth of the tensors; and the tensor that grows most.

    Tensors whose number of samples differs from the most frequent number are left out. All results are empty without
    tensors.
    """
    grown = {name: item for name, item in statistics.items() if item.growth}
    samples = max((item.samples for item in grown.values()), default=0)
    grown = {name: item for name, item in grown.items() if item.samples == samples}
    if not grown:
        return [], [], [], ""
    columns: Sequence[tuple[float, ...]] = list(zip(*(item.growth for item in grown.values()), strict=True))
    last = max(len(columns) - 2, 0)  # the largest number of samples that is not all of them
    slowest = min(grown, key=lambda name: (grown[name].growth[last], name))
    medians = [sorted(column)[len(column) // 2] for column in columns]
    return sample_counts(samples), medians, [min(column) for column in columns], slowest
