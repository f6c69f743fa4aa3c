"""Statistics of calibrated tensors: histogram, clipped share, and growth with the number of samples."""

from itertools import combinations

import numpy as np
import pytest

from tpuconvert.optimizer.quantize.ranges.range_statistics import (
    BINS,
    RULE,
    RangeStatistics,
    clipped_share,
    expected_growth,
    sample_counts,
    typical_growth,
)
from tpuconvert.optimizer.quantize.ranges.ranges import RangeCollector
from tpuconvert.schema.arithmetic.count_levels import counts_of


def test_growth_is_the_mean_over_all_selections_of_samples() -> None:
    largest = np.array([1.0, 5.0, 2.0, 3.0, 9.0, 4.0, 4.0])
    expected = [np.mean([max(chosen) for chosen in combinations(largest, count)]) / 9.0 for count in (1, 2, 4, 7)]
    assert expected_growth(largest) == pytest.approx(expected, rel=1e-14)  # a few roundings of float64
    assert expected_growth(largest[::-1]) == expected_growth(largest)
    assert expected_growth(np.zeros(3)) == expected_growth(np.zeros(0)) == ()


def test_numbers_of_samples() -> None:
    assert [sample_counts(count) for count in (0, 1, 2, 8, 9)] == [[], [1], [1, 2], [1, 2, 4, 8], [1, 2, 4, 8, 9]]


def test_clipped_share_counts_the_values_beyond_the_threshold() -> None:
    counts = np.array([10, 20, 30, 40])
    assert [clipped_share(counts, edge) for edge in (0, 1, 3, 4, 9)] == [1.0, 0.9, 0.4, 0.0, 0.0]
    assert clipped_share(counts, 3.5) == pytest.approx(0.2)
    assert clipped_share(np.zeros(4, np.int64), 1) == 0.0


def collected(values: np.ndarray, method: str = "percentile:99") -> RangeCollector:
    found = RangeCollector(method)
    for sample in values:
        found.add(sample[None])
    return found


def test_histogram_and_clipped_share_are_those_of_the_values() -> None:
    values = np.random.default_rng(1).normal(size=(20, 4, 50)).astype(np.float32)
    found = collected(values).result()
    statistics = found.statistics
    assert statistics is not None and statistics.method == "percentile:99" and len(statistics.levels) == BINS
    magnitudes = np.abs(values.ravel())
    assert statistics.clipped == pytest.approx(np.mean(magnitudes > found.threshold), abs=1 / magnitudes.size)
    expected, _ = np.histogram(magnitudes, np.arange(BINS + 1) * 2.0**statistics.exponent)
    assert expected.sum() == magnitudes.size and np.any(expected[BINS // 2 :])
    assert np.all(np.abs(np.array(counts_of(statistics.levels)) - expected) <= 0.0443 * (expected + 1) + 0.5)


def test_growth_uses_the_largest_magnitude_of_each_sample() -> None:
    values = np.random.default_rng(2).normal(size=(9, 4, 50)).astype(np.float32)
    statistics = collected(values, "minmax").result().statistics
    assert statistics is not None and statistics.samples == 9
    assert statistics.growth == expected_growth(np.abs(values).max(axis=(1, 2)))
    assert statistics.levels == b"" and statistics.clipped is None  # minmax needs no histogram


def test_statistics_do_not_depend_on_order_or_parts() -> None:
    values = np.random.default_rng(3).normal(size=(70, 3, 16)).astype(np.float32)
    whole = collected(values, "mse").result().statistics
    rng = np.random.default_rng(4)
    for _ in range(4):
        order = rng.permutation(len(values))
        parts = [collected(values[part], "mse") for part in np.array_split(order, 3)]
        merged = parts[0]
        for other in parts[1:]:
            merged.merge(other)
        assert merged.result().statistics == whole


def test_threshold_of_a_rule_has_another_clipped_share() -> None:
    values = np.random.default_rng(5).uniform(-1.0, 1.0, size=(4, 2, 5000)).astype(np.float32)
    found = collected(values, "mse").result().with_threshold(0.75)
    assert found.threshold == 0.75 and found.statistics is not None and found.statistics.method == RULE
    assert found.statistics.clipped == pytest.approx(0.25, abs=0.01)  # of 0.045 per count, most cancels


def test_median_of_the_tensors_and_the_slowest_one() -> None:
    growths = {"a": (0.5, 0.8, 1.0), "b": (0.9, 0.7, 1.0), "c": (0.6, 0.9, 1.0)}
    statistics = {name: RangeStatistics("mse", growth=growth, samples=3) for name, growth in growths.items()}
    statistics["short"] = RangeStatistics("mse", growth=(1.0,), samples=1)
    statistics["none"] = RangeStatistics("mse")
    assert typical_growth(statistics) == ([1, 2, 3], [0.6, 0.8, 1.0], [0.5, 0.7, 1.0], "b")
    assert typical_growth({}) == ([], [], [], "")
