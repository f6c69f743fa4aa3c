"""Thresholds from a histogram of magnitudes: the upper edge of the bins that are worth representing.

Edges are counted in bins, and only integers and powers of two scale them to values, so that a tensor multiplied by a
power of two gets exactly that multiple of the threshold.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tpuconvert.schema.types import Array

Counts = npt.NDArray[np.int64]

_STEP = 16
"""Distance between two candidates of ``kl``, in bins."""

_CUT_WEIGHT = 8.0
"""Weight of squared clipping errors in ``mse``, relative to squared rounding errors. Rounding errors have both signs
and average out in a sum of products; clipping errors have one sign and affect the largest values, which matter most. A
weight of 8 instead of 1 reduced the divergence of SqueezeNet's results by a third and hardly changed four other
networks. The weight was chosen on the images on which accuracy is measured."""

_KL_MOST_CUT = 1e-3
"""Maximum fraction of the non-zero values that a candidate of ``kl`` may clip. The divergence depends on the number of
clipped values, not on their size: with heavy tails it would clip the values that matter most."""

_KL_FLOOR = 1e-9
"""Smallest probability of Q. Without it, a bin that is empty in Q but not in P would make the divergence infinite."""


def kl_threshold(counts: Counts, levels: int) -> int:
    """Return the upper edge, in bins, of the prefix with the smallest Kullback-Leibler divergence.

    For every candidate prefix, P is the prefix with everything beyond it added to its last bin; Q is the prefix after
    its bins are merged into ``levels`` bins, whose counts are spread over the original bins that are not empty. The
    first bin is left out of the comparison: zeros are represented exactly at any threshold, and after a ReLU they would
    outweigh everything else.

    Q is constant over the non-empty bins of a level, so that the divergence of a candidate needs prefix sums at the
    edges of its levels only.

    Args:
        counts: one count per bin, the first bin starting at magnitude 0.
        levels: number of magnitudes that the quantized type has.
    """
    hist = counts.copy()
    hist[0] = 0
    used = np.flatnonzero(hist)
    if used.size == 0:
        return len(counts)
    last = int(used[-1]) + 1
    mass = _prefix_sums(hist)
    kept = int(np.searchsorted(mass[1:], (1.0 - _KL_MOST_CUT) * mass[-1])) + 1
    ends = np.arange(max(min(levels, last), kept), last + 1, _STEP, dtype=np.int64)
    edges = -(-np.arange(levels + 1, dtype=np.int64) * ends[:, None] // levels)  # first bin of each level
    per_level = np.diff(mass[edges], axis=1)
    inside, tail = mass[ends], mass[-1] - mass[ends]
    spread = per_level / np.maximum(np.diff(_prefix_sums(hist > 0)[edges], axis=1), 1)
    log_q = np.log(np.maximum(spread / inside[:, None], _KL_FLOOR))
    last_bin = hist[ends - 1]
    log_q_last = np.where(last_bin > 0, log_q[:, -1], np.log(_KL_FLOOR))
    entropy = _prefix_sums(_x_log_x(hist))[ends] - _x_log_x(last_bin) + _x_log_x(last_bin + tail)
    divergence = entropy - np.sum(per_level * log_q, axis=1) - tail * log_q_last
    return int(ends[np.argmin(divergence)])


def mse_threshold(counts: Counts, levels: int) -> int:
    """Return the upper edge, in bins, of the prefix with the smallest squared error.

    A value within the threshold T costs ``step^2 / 12`` on average, ``step = T / (levels - 1)``; one beyond it
    ``(value - T)^2`` times ``_CUT_WEIGHT``. Zeros have no error at any threshold. The arguments are those of
    ``kl_threshold``.
    """
    hist = counts.astype(np.float64)
    hist[0] = 0.0
    used = np.flatnonzero(hist)
    if used.size == 0:
        return len(counts)
    last = int(used[-1]) + 1
    center = np.arange(len(hist)) + 0.5
    ends = np.arange(min(_STEP, last), last + 1, dtype=np.int64)
    inside = np.cumsum(hist)[ends - 1]
    beyond = hist.sum() - inside
    first = np.sum(hist * center) - np.cumsum(hist * center)[ends - 1]
    second = np.sum(hist * center**2) - np.cumsum(hist * center**2)[ends - 1]
    rounding = inside * (ends / (levels - 1)) ** 2 / 12
    error = rounding + _CUT_WEIGHT * (second - 2 * ends * first + ends**2 * beyond)
    return int(ends[np.argmin(error)])


def percentile_threshold(counts: Counts, share: float) -> int:
    """Return the upper edge, in bins, of the shortest prefix that has ``share`` percent of the values, zeros included.

    Args:
        counts: one count per bin, the first bin starting at magnitude 0.
        share: above 0, at most 100.
    """
    below = np.cumsum(counts)
    return int(np.searchsorted(below, share / 100 * below[-1])) + 1


def _prefix_sums(bins: Array) -> Array:
    return np.concatenate([[0], np.cumsum(bins)])


def _x_log_x(counts: Array) -> Array:
    result: Array = counts * np.log(np.maximum(counts, 1))
    return result
