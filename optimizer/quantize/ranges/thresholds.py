"""Thresholds from a histogram of magnitudes: the upper edge of the bins that are worth representing.

Edges are counted in bins, and only integers and powers of two scale them to values, so that a tensor multiplied by a
power of two gets exactly that multiple of the threshold.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

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

_MOST_STEPS = 100
"""Limit for the iteration of ``octav``, which takes about ten steps. Rounding could make it alternate between two."""


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
    smallest = int(np.searchsorted(mass[1:], (1.0 - _KL_MOST_CUT) * mass[-1])) + 1
    ends = np.arange(max(min(levels, last), smallest), last + 1, _STEP, dtype=np.int64)
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
    ``(value - T)^2`` times ``_CUT_WEIGHT``. Zeros have no error at any threshold. The arguments are the
    same as for ``kl_threshold``.
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


def octav_threshold(counts: Counts, levels: int) -> int:
    """Return the upper edge, in bins, next to the fixed point of OCTAV.

    The fixed point has the smallest squared error, if clipping and rounding errors count equally. The iteration is
    Newton's method: ``s = E[|x|; |x| > s] / (P(0 < |x| <= s) / (12 * levels^2) + P(|x| > s))``, started at the mean
    magnitude. All magnitudes of a bin count as its center. The arguments are the same as for ``kl_threshold``.

    Source: Sakr et al., Optimal Clipping and Magnitude-aware Differentiation for Improved Quantization-aware Training
    (2022), equation 6.
    """
    hist = counts.astype(np.float64)
    hist[0] = 0.0
    total, first = float(hist.sum()), float(np.sum(hist * _centers(hist)))
    if total == 0.0:
        return len(counts)
    number, size = _prefix_sums(hist), _prefix_sums(hist * _centers(hist))
    threshold = first / total
    for _ in range(_MOST_STEPS):
        inside = round(threshold)  # bins whose center is at most the threshold
        if inside >= len(counts):
            break
        beyond = total - number[inside]
        updated = (first - size[inside]) / (number[inside] / (12 * levels**2) + beyond) if beyond else threshold
        if updated == threshold:
            break
        threshold = float(updated)
    return max(1, math.ceil(threshold))


def aciq_threshold(counts: Counts, levels: int) -> int:
    """Return the upper edge, in bins, of the threshold with the smallest expected error for a fitted distribution.

    The magnitudes that are not 0 have a Laplace or a Gauss distribution around 0; the one with the larger
    likelihood is used. In units of the mean magnitude, the threshold for Laplace is the solution of
    ``t * exp(t) = 12 * levels^2``, the Lambert W function. The arguments are the same as for ``kl_threshold``.

    Source: Banner et al., Post-training 4-bit quantization of convolution networks for rapid-deployment (2019),
    section 2.
    """
    hist = counts.astype(np.float64)
    hist[0] = 0.0
    total = float(hist.sum())
    if total == 0.0:
        return len(counts)
    mean = float(np.sum(hist * _centers(hist))) / total
    deviation = math.sqrt(float(np.sum(hist * _centers(hist) ** 2)) / total)
    # Mean negative log-likelihood: log(b) + 1 and log(sigma) + log(pi / 2) / 2 + 1 / 2 for magnitudes.
    is_laplace = math.log(mean) + 1.0 < math.log(deviation) + 0.5 * math.log(math.pi / 2) + 0.5
    factor = laplace_factor(levels) * mean if is_laplace else gauss_factor(levels) * deviation
    return min(max(1, math.ceil(factor)), len(counts))


def laplace_factor(levels: int) -> float:
    """Best threshold for a Laplace distribution, in units of its mean magnitude."""
    return _root(lambda t: math.exp(-t) - t / (12 * levels**2))


def gauss_factor(levels: int) -> float:
    """Best threshold for a Gauss distribution with mean 0, in units of its standard deviation."""

    def slope(t: float) -> float:
        excess = math.sqrt(2 / math.pi) * math.exp(-t * t / 2) - t * math.erfc(t / math.sqrt(2))
        return excess - t / (12 * levels**2)

    return _root(slope)


def _root(function: Callable[[float], float]) -> float:
    """Root of a decreasing function between 0 and 64, by bisection."""
    low, high = 0.0, 64.0
    while low < (middle := (low + high) / 2) < high:
        if function(middle) > 0.0:
            low = middle
        else:
            high = middle
    return low


def relative_error(counts: Counts, threshold: float, levels: int) -> float:
    """Return the expected squared error of quantization with a threshold in bins, as a share of the power."""
    hist = counts.astype(np.float64)
    hist[0] = 0.0
    center = _centers(hist)
    beyond = np.maximum(center - threshold, 0.0)
    rounding = float(hist[center <= threshold].sum()) * (threshold / levels) ** 2 / 12
    power = float(np.sum(hist * center**2))
    return (rounding + float(np.sum(hist * beyond**2))) / power if power else 0.0


def percentile_threshold(counts: Counts, share: float) -> int:
    """Return the upper edge, in bins, of the shortest prefix that has ``share`` percent of the values, zeros included.

    Args:
        counts: one count per bin, the first bin starting at magnitude 0.
        share: above 0, at most 100.
    """
    below = np.cumsum(counts)
    needed = math.ceil(Fraction(str(share)) * int(below[-1]) / 100)  # floats: 99.9 / 100 * 100_000 is above 99,900
    return int(np.searchsorted(below, needed)) + 1


def _centers(hist: Array) -> Array:
    result: Array = np.arange(len(hist)) + 0.5
    return result


def _prefix_sums(bins: Array) -> Array:
    return np.concatenate([[0], np.cumsum(bins)])


def _x_log_x(counts: Array) -> Array:
    result: Array = counts * np.log(np.maximum(counts, 1))
    return result
