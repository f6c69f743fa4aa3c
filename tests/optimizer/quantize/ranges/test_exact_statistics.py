"""Statistics of calibration that merge exactly, against sums of fractions and counts of the final bin width."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tpuconvert.optimizer.quantize.ranges.exact_statistics import BINS, ExactSums, Histogram
from tpuconvert.optimizer.quantize.ranges.ranges import RangeCollector
from tpuconvert.optimizer.quantize.ranges.thresholds import kl_threshold

METHODS = ("minmax", "kl", "mse", "percentile:99")
MAGNITUDES = (0.0, 1e-44, 1e-38, 1e-6, 1.0, 7.0, 6e4, 1e30, 3e38)
"""Zeros, subnormal numbers, and numbers near the largest of both types."""


@st.composite
def sample_sets(draw: st.DrawFn) -> list[np.ndarray]:
    """Samples of one tensor, [1, channels, positions], whose magnitudes differ by up to 82 powers of ten."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    dtype = draw(st.sampled_from([np.float32, np.float32, np.float16]))
    channels, positions = draw(st.integers(1, 4)), draw(st.sampled_from([1, 9, 130]))
    limit = float(np.finfo(dtype).max)
    samples = []
    for scale in draw(st.lists(st.sampled_from(MAGNITUDES), min_size=1, max_size=9)):
        x = np.clip(scale * rng.standard_normal((1, channels, positions)), -limit, limit)
        x = np.maximum(x, 0.0) if draw(st.booleans()) else x
        samples.append(x.astype(dtype))
    return samples


def collect(method: str, samples: list[np.ndarray]) -> RangeCollector:
    collector = RangeCollector(method)
    for sample in samples:
        collector.add(sample)
    return collector


def bits(collector: RangeCollector) -> str:
    """Return the result in a form that distinguishes all floats, including both zeros."""
    return repr(collector.result())


@settings(max_examples=150, deadline=None)
@given(samples=sample_sets(), data=st.data())
def test_any_partition_and_order_gives_the_same_range(samples: list[np.ndarray], data: st.DataObject) -> None:
    parts = data.draw(st.lists(st.integers(0, 4), min_size=len(samples), max_size=len(samples)))
    order = data.draw(st.permutations(range(5)))  # parts without a sample are merged as well
    for method in METHODS:
        merged = RangeCollector(method)
        for part in order:
            chosen = [sample for sample, number in zip(samples, parts, strict=True) if number == part]
            merged.merge(collect(method, chosen[::-1]))
        assert bits(merged) == bits(collect(method, samples))


@settings(max_examples=60, deadline=None)
@given(samples=sample_sets())
def test_merging_is_commutative_and_associative(samples: list[np.ndarray]) -> None:
    for method in METHODS:
        a, b, c = (collect(method, samples[start::3]) for start in range(3))
        left, right = RangeCollector(method), RangeCollector(method)
        for item in (a, b, c):
            left.merge(item)
        inner = collect(method, samples[2::3])
        inner.merge(b)  # c + b, then + a
        right.merge(inner)
        right.merge(a)
        assert bits(left) == bits(right)
        assert bits(a) == bits(collect(method, samples[0::3]))  # merging does not change its operands


@settings(max_examples=100, deadline=None)
@given(samples=sample_sets(), rows=st.integers(1, 3))
def test_a_batch_gives_the_range_of_its_samples(samples: list[np.ndarray], rows: int) -> None:
    """Also where a reshape has joined axis 0 with the next one, so that a sample has several rows."""
    taken = [np.repeat(sample, rows, axis=0) * np.arange(1, rows + 1)[:, None, None] / 4 for sample in samples]
    taken = [sample.astype(samples[0].dtype) for sample in taken]
    for method in METHODS:
        batched = RangeCollector(method)
        batched.add(np.concatenate(taken), samples=len(taken))
        assert bits(batched) == bits(collect(method, taken))


@pytest.mark.parametrize("inner", [(), (5,), (3, 333), (112, 112)])
def test_sums_of_a_sample_do_not_depend_on_its_batch(inner: tuple[int, ...]) -> None:
    """At lengths where NumPy adds in blocks and in pairs."""
    x = np.random.default_rng(0).normal(size=(6, 3, *inner)).astype(np.float32)
    single, batched = RangeCollector("minmax"), RangeCollector("minmax")
    for sample in x:
        single.add(sample[np.newaxis])
    batched.add(x, samples=6)
    assert bits(single) == bits(batched)


@settings(max_examples=100, deadline=None)
@given(samples=sample_sets())
def test_counts_are_those_of_the_final_bin_width(samples: list[np.ndarray]) -> None:
    histogram = Histogram()
    for sample in samples:
        histogram.add(sample, float(np.abs(sample).max()))
    values = np.abs(np.concatenate([sample.reshape(-1) for sample in samples]).astype(np.float64))
    if not values.any():
        assert histogram.counts[0] == values.size
        return
    width = Fraction(2) ** histogram.exponent
    bins = [math.floor(Fraction(float(value)) / width) for value in values]
    assert histogram.counts.tolist() == np.bincount(bins, minlength=BINS).tolist()
    assert BINS // 2 <= max(bins) < BINS  # the finest width with which the largest magnitude has a bin


@settings(max_examples=100, deadline=None)
@given(rows=st.lists(st.floats(-1e70, 1e70), min_size=1, max_size=60), data=st.data())
def test_sums_are_exact(rows: list[float], data: st.DataObject) -> None:
    exact = sum(map(Fraction, rows))
    cut = data.draw(st.integers(0, len(rows)))
    first, second = ExactSums(1), ExactSums(1)
    first.add(np.array(rows[:cut])[:, None])
    second.add(np.array(rows[cut:])[:, None])
    first.merge(second)
    (found,) = first.divided_by(1)
    # At least 64 bits below the largest number are kept; reading rounds once per digit of 32 bits.
    below = max(abs(Fraction(row)) for row in rows) * len(rows) / 2**64
    assert abs(Fraction(float(found)) - exact) <= below + abs(exact) / 2**50


def test_a_varying_extent_has_no_channels_in_any_order() -> None:
    samples = [np.ones((1, channels, 2), np.float32) for channels in (3, 4, 3)]
    for order in ((0, 1, 2), (1, 0, 2), (0, 2, 1)):
        assert collect("mse", [samples[index] for index in order]).result().channels is None
        merged = RangeCollector("mse")
        for index in order:
            merged.merge(collect("mse", [samples[index]]))
        assert merged.result().channels is None


def test_a_multiple_by_a_power_of_two_has_that_multiple_of_the_threshold() -> None:
    x = np.random.default_rng(0).standard_t(3, size=(1, 3, 4000)).astype(np.float32)
    for method in METHODS:
        threshold = collect(method, [x]).result().threshold
        assert collect(method, [x * np.float32(2.0**40)]).result().threshold == threshold * 2.0**40


def spelled_out_kl(counts: np.ndarray, levels: int, step: int) -> list[float]:
    """The divergence of every candidate, bin by bin: P and Q as the docstring of ``kl_threshold`` defines them."""
    hist = counts.astype(np.float64)
    hist[0] = 0.0
    last = int(np.flatnonzero(hist)[-1]) + 1
    kept = int(np.searchsorted(np.cumsum(hist), 0.999 * hist.sum())) + 1
    found = {}
    for end in range(max(min(levels, last), kept), last + 1, step):
        p, q = hist[:end].copy(), np.zeros(end)
        p[-1] += hist[end:].sum()
        level = np.arange(end) * levels // end
        for number in range(levels):
            inside = (level == number) & (hist[:end] > 0)
            if inside.any():
                q[inside] = hist[:end][inside].sum() / inside.sum()
        p, q = p / p.sum(), np.maximum(q / q.sum(), 1e-9)
        used = p > 0
        found[end] = float(np.sum(p[used] * np.log(p[used] / q[used])))
    return found


@pytest.mark.parametrize("seed", range(6))
def test_kl_takes_the_smallest_divergence(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = np.abs([rng.normal(size=3000), rng.standard_t(2, size=3000), rng.exponential(size=300)][seed % 3])
    counts = np.bincount((values / values.max() * 1023).astype(int), minlength=1024)
    for levels in (128, 256):
        divergences = spelled_out_kl(counts, levels, 16)
        assert divergences[kl_threshold(counts, levels)] == pytest.approx(min(divergences.values()), rel=1e-9)
