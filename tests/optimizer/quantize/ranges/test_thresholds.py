"""Thresholds of OCTAV and ACIQ: published values, and minima that are found by a search over all candidates."""

import numpy as np
import pytest

from tpuconvert.optimizer.quantize.ranges.ranges import RangeCollector
from tpuconvert.optimizer.quantize.ranges.thresholds import (
    aciq_threshold,
    gauss_factor,
    laplace_factor,
    octav_threshold,
)

BINS = 8192


def histogram(values: np.ndarray) -> tuple[np.ndarray, float]:
    """Counts of magnitudes and the width of a bin."""
    width = float(np.abs(values).max()) / (BINS - 1)
    return np.bincount((np.abs(values) / width).astype(np.int64), minlength=BINS), width


def draw(name: str, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    size = 100_000
    if name == "relu":
        return np.maximum(rng.normal(size=size), 0.0)
    if name == "student":
        return rng.standard_t(4, size=size)
    return getattr(rng, name)(size=size)


def best_of_all(values: np.ndarray, levels: int) -> float:
    """Threshold with the smallest squared error of values that are not 0, from their sorted magnitudes."""
    x = np.sort(np.abs(values[values != 0.0]))
    candidates = np.linspace(x[-1] / 4000, x[-1], 4000)
    first, second = (np.concatenate([[0.0], np.cumsum(power)]) for power in (x, x**2))
    inside = np.searchsorted(x, candidates, side="right")
    clipping = second[-1] - second[inside] - 2 * candidates * (first[-1] - first[inside])
    clipping += candidates**2 * (len(x) - inside)
    return float(candidates[np.argmin(inside * (candidates / levels) ** 2 / 12 + clipping)])


@pytest.mark.parametrize("levels", [8, 128, 256])
@pytest.mark.parametrize("name", ["laplace", "normal", "relu", "student"])
def test_octav_minimizes_the_squared_error(name, levels):
    values = draw(name, seed=levels)
    counts, width = histogram(values)
    # 1 %: the minimum is flat, and the candidates of the search are 0.025 to 0.4 % of the threshold apart.
    assert octav_threshold(counts, levels) * width == pytest.approx(
        best_of_all(values, levels), rel=0.01, abs=2 * width
    )


@pytest.mark.parametrize(
    ("levels", "laplace", "gauss"),
    [(2, 2.83, 1.71), (4, 3.89, 2.15), (8, 5.03, 2.55)],  # Banner et al.: 2, 3 and 4 bits
)
def test_aciq_factors_are_those_of_the_paper(levels, laplace, gauss):
    # The paper states two digits, some of them truncated.
    assert laplace_factor(levels) == pytest.approx(laplace, abs=0.01)
    assert gauss_factor(levels) == pytest.approx(gauss, abs=0.01)


def test_aciq_factor_for_laplace_is_the_lambert_w_function():
    for levels in (8, 128, 256):
        factor = laplace_factor(levels)
        assert factor * np.exp(factor) == pytest.approx(12 * levels**2)


@pytest.mark.parametrize(
    ("name", "levels", "expected"),
    [
        ("laplace", 128, 9.8968),  # W(196608) times the mean magnitude 1
        ("laplace", 8, 5.0286),  # W(768)
        ("normal", 128, 3.9240),  # times the standard deviation 1
        ("relu", 128, 3.9240),  # zeros are not part of the distribution
    ],
)
def test_aciq_fits_the_distribution(name, levels, expected):
    counts, width = histogram(draw(name, seed=1))
    # 2 %: deviation of the estimated scale for 50,000 values, 0.3 to 0.5 %, and the width of a bin.
    assert aciq_threshold(counts, levels) * width == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("threshold", [octav_threshold, aciq_threshold])
def test_zeros_and_a_single_magnitude_are_represented(threshold):
    zeros = np.zeros(BINS, np.int64)
    zeros[0] = 5
    assert threshold(zeros, 128) == BINS
    single = zeros.copy()
    single[1000] = 3
    assert threshold(single, 128) >= 1000


@pytest.mark.parametrize("method", ["octav", "aciq"])
def test_a_power_of_two_scales_the_threshold(method):
    values = np.random.default_rng(2).laplace(size=5000).astype(np.float32)
    found = []
    for factor in (1.0, 4.0):
        collector = RangeCollector(method)
        collector.add(factor * values)
        found.append(collector.result().threshold)
    assert found[1] == 4.0 * found[0]


def test_a_collector_gives_the_thresholds_of_other_methods():
    values = np.random.default_rng(3).laplace(size=5000).astype(np.float32)
    methods = ("mse", "kl", "octav", "aciq", "percentile:99", "minmax")
    collectors = {method: RangeCollector(method) for method in methods}
    for collector in collectors.values():
        collector.add(values)
    assert [collectors["mse"].threshold(method) for method in methods] == [
        collector.result().threshold for collector in collectors.values()
    ]
