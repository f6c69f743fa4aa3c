"""Levels of counts are rounded logarithms, and counts are recovered from them."""

import numpy as np

from tpuconvert.schema.arithmetic.count_levels import counts_of, levels_of


def test_levels_are_rounded_logarithms() -> None:
    counts = np.unique(
        np.concatenate([np.arange(5000), 2 ** np.arange(32), 2 ** np.arange(1, 32) - 1, 3 ** np.arange(20)])
    )
    assert list(levels_of(counts)) == np.round(8 * np.log2(1.0 + counts)).astype(int).tolist()
    assert list(levels_of(np.array([0, 1, 3, 2**40]))) == [0, 8, 16, 255]


def test_counts_differ_by_a_few_percent() -> None:
    counts = np.concatenate([np.arange(100), np.random.default_rng(0).integers(100, 2**31, 1000)])
    found = np.array(counts_of(levels_of(counts)))
    assert found[:8].tolist() == list(range(8))
    # Half a level is a factor of 2^(1/16), which is 1.0443, and the result is rounded to an integer.
    assert np.all(np.abs(found - counts) <= 0.0443 * (counts + 1) + 0.5)
