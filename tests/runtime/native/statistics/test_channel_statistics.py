"""Statistics of tensors: the native engine and NumPy give the same bytes, in every memory order."""

import numpy as np
import pytest

from tpuconvert.runtime.native.builder.loader import ISA_VARIABLE, available_isas
from tpuconvert.runtime.native.statistics import channel_statistics
from tpuconvert.runtime.native.statistics.channel_statistics import channel_summary, count_magnitudes

SHAPES = [(1, 64, 300), (2, 40, 17), (1, 3, 2000), (3, 1, 50), (1, 1, 1500), (4, 1000, 1), (1, 77, 5), (2, 2, 1)]
ORDERS = [(0, 1, 2), (0, 2, 1), (2, 1, 0)]


def drawn(shape, order=(0, 1, 2)) -> np.ndarray:
    """Float32 numbers with an uneven distribution; ``order`` is the order of the axes in memory."""
    rng = np.random.default_rng(sum(shape))
    x = (rng.normal(size=[shape[axis] for axis in order]) ** 3).astype(np.float32)
    x[np.abs(x) < 0.1] = 0
    return x.transpose(np.argsort(order))


@pytest.fixture
def by_numpy(monkeypatch):
    """Return a function that calls another one without the extension."""

    def call(function, *arguments):
        with monkeypatch.context() as context:
            context.setattr(channel_statistics, "extension", lambda: None)
            return function(*arguments)

    return call


@pytest.mark.parametrize("isa", available_isas())
@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_native_equals_numpy(shape, order, isa, by_numpy, monkeypatch):
    monkeypatch.setenv(ISA_VARIABLE, isa)
    for x in (drawn(shape, order), drawn((*shape[:2], 2 * shape[2]), order)[:, :, ::2]):
        wanted = by_numpy(channel_summary, x)
        for name, found in channel_summary(x)._asdict().items():
            assert np.array_equal(found, getattr(wanted, name)), name
        exponent = int(np.frexp(np.abs(x).max())[1]) - 13
        counts, expected = np.full((2, 8192), 5, np.int64)
        count_magnitudes(x, exponent, counts)
        by_numpy(count_magnitudes, x, exponent, expected)
        assert np.array_equal(counts, expected)


def test_summary_is_that_of_a_loop(by_numpy):
    x = drawn((2, 3, 40))
    for found in (channel_summary(x), by_numpy(channel_summary, x)):
        for n, channel in np.ndindex(2, 3):
            total = square = 0.0
            for value in x[n, channel].tolist():
                total, square = total + value, square + value * value
            assert (found.sums[n, channel], found.squares[n, channel]) == (total, square)
            assert found.highest[n, channel] == x[n, channel].max() and found.lowest[n, channel] == x[n, channel].min()


def test_counts_are_those_of_integer_parts():
    x = np.array([[[0.0, -0.0, 0.49, 0.5, -0.99, 1.0, -2.5, 4095.75]]], np.float32)
    counts = np.zeros(8192, np.int64)
    count_magnitudes(x, -1, counts)
    assert {int(k): int(counts[k]) for k in np.flatnonzero(counts)} == {0: 3, 1: 2, 2: 1, 5: 1, 8191: 1}


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_sum_is_not_finite_if_an_element_is_not(value, by_numpy):
    x = drawn((1, 40, 30))
    x[0, 7, 11] = value
    with np.errstate(invalid="ignore"):
        for found in (channel_summary(x), by_numpy(channel_summary, x)):
            assert np.flatnonzero(~np.isfinite(found.sums)).tolist() == [7]


def test_wide_and_tiny_numbers_are_counted_by_numpy():
    counts = np.zeros(8192, np.int64)
    count_magnitudes(np.array([[[2.0**-140, 3 * 2.0**-140]]], np.float32), -140, counts)
    count_magnitudes(np.array([[[5.5]]]), 0, counts)
    assert counts[[1, 3, 5]].tolist() == [1, 1, 1] and counts.sum() == 3
