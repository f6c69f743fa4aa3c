"""Collecting ranges and choosing thresholds."""

import numpy as np
import pytest

from tpuconvert.optimizer.quantize.ranges.ranges import ChannelMeans, RangeCollector
from tpuconvert.optimizer.quantize.ranges.thresholds import kl_threshold


def collect(method, *arrays):
    collector = RangeCollector(method)
    for array in arrays:
        collector.add(np.asarray(array, np.float32))
    return collector.result()


def test_minmax_is_the_largest_magnitude_over_all_batches():
    found = collect("minmax", [0.5, 1.0], [-3.0, 2.0])
    assert (found.low, found.high, found.threshold) == (-3.0, 2.0, 3.0)
    assert not found.is_never_negative
    assert collect("minmax", [0.0, 2.0]).is_never_negative


@pytest.mark.parametrize("method", ["minmax", "kl", "mse", "percentile"])
def test_nan_and_infinity_are_left_out(method):
    found = collect(method, [np.nan, np.inf, 1.0, -np.inf])
    assert (found.low, found.high) == (1.0, 1.0)
    assert found.threshold == pytest.approx(1.0, rel=1e-3)  # one bin of the histogram


@pytest.mark.parametrize("method", ["minmax", "kl", "mse", "percentile"])
def test_nothing_and_zeros_have_threshold_zero(method):
    assert collect(method).threshold == 0.0
    assert collect(method, [np.nan]).threshold == 0.0
    assert collect(method, [0.0, 0.0]).threshold == 0.0


def test_kl_cuts_a_rare_outlier_and_minmax_does_not():
    values = np.random.default_rng(0).normal(size=100_000)
    values[0] = 100.0
    assert collect("minmax", values).threshold == 100.0
    assert collect("kl", values).threshold < 20.0


@pytest.mark.parametrize("share", [50.0, 99.0, 99.9, 100.0])
def test_percentile_is_the_magnitude_that_this_share_does_not_exceed(share):
    values = np.random.default_rng(0).normal(size=100_000).astype(np.float32)
    largest = float(np.abs(values).max())
    expected = np.sort(np.abs(values))[round(share * 1000) - 1]
    assert collect(f"percentile:{share}", values).threshold == pytest.approx(expected, abs=largest / 4096)


def test_zeros_count_for_the_percentile():
    values = np.concatenate([np.zeros(90), np.linspace(1.0, 10.0, 10)])
    assert collect("percentile:90", values).threshold < 0.01
    assert collect("percentile:95", values).threshold == pytest.approx(5.0, abs=0.01)


@pytest.mark.parametrize("method", ["kl", "mse"])
def test_a_uniform_range_is_kept(method):
    values = np.random.default_rng(0).uniform(0, 10, size=100_000)
    assert collect(method, values).threshold == pytest.approx(10.0, rel=0.02)


def test_mse_is_the_threshold_of_the_smallest_error():
    """The threshold agrees with a search over all thresholds, in which clipping errors count eight times."""
    values = np.abs(np.random.default_rng(3).standard_t(3, size=50_000))

    def error(threshold):
        step = threshold / 255
        rounded = np.minimum(np.round(values / step), 255) * step
        squares = (values - rounded) ** 2
        return squares[values <= threshold].sum() + 8 * squares[values > threshold].sum()

    candidates = np.linspace(values.max() / 100, values.max(), 100)
    best = candidates[np.argmin([error(threshold) for threshold in candidates])]
    assert error(collect("mse", values).threshold) == pytest.approx(error(best), rel=0.05)


def test_kl_of_batches_is_kl_of_all_when_the_range_grows():
    rng = np.random.default_rng(1)
    small, large = rng.normal(size=20_000), 7 * rng.normal(size=20_000)
    together = collect("kl", np.concatenate([large, small])).threshold
    one_by_one = collect("kl", small, large).threshold
    assert one_by_one == pytest.approx(together, rel=0.1)  # bins differ by a factor of two in width at most


def test_zeros_do_not_decide():
    """After a ReLU most values are zero; the threshold depends on the others."""
    values = np.maximum(np.random.default_rng(2).normal(size=50_000), 0)
    with_more_zeros = np.concatenate([values, np.zeros(1_000_000)])
    assert collect("kl", with_more_zeros).threshold == pytest.approx(collect("kl", values).threshold, rel=0.05)


def test_a_histogram_narrower_than_the_levels_is_kept_whole():
    counts = np.zeros(4096, np.int64)
    counts[:100] = 5
    assert kl_threshold(counts, 128) == 100


def test_means_of_a_varying_number_of_channels_are_unknown():
    means, other = ChannelMeans(), ChannelMeans()
    means.add(np.ones((1, 3, 4), np.float32), 1)
    assert means.result() is not None
    other.add(np.ones((1, 5, 4), np.float32), 1)
    means.merge(other)
    assert means.result() is None
    other.add(np.ones((1, 4, 4), np.float32), 1)
    assert other.result() is None
