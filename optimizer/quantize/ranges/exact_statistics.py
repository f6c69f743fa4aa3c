"""Statistics that merge exactly: every order and every partition of the data gives the same bits.

Floating-point addition is not associative, and a histogram whose bin width is taken from the first data depends on
which data come first. Both problems are avoided by bin edges and digit positions that do not depend on the data: they
are multiples of powers of two.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from tpuconvert.runtime.native.statistics.channel_statistics import BINS, count_magnitudes
from tpuconvert.schema.types import Array

_NO_DATA = -(10**6)
"""Exponent of a state without data; smaller than the exponent of any data."""

_WAITING = 32
"""Number of rows that ``ExactSums`` buffers before it adds them."""

_WORD = 32
_WORDS = 3
"""Number of digits of ``ExactSums`` in base 2^32. They hold 65 to 96 bits, more than the 53 of a float64."""


class Histogram:
    """Counts of magnitudes in ``BINS`` bins of width ``2^exponent``, the first bin starting at 0.

    The exponent is the smallest one with which the largest magnitude has a bin: it is in the upper half, so that at
    least 4096 bins cover the values. When the exponent grows by one, pairs
    of bins are merged: ``floor(x / 2^(e + 1))`` is ``floor(floor(x / 2^e) / 2)``, so the counts are equal to counts
    with the final width.
    """

    def __init__(self) -> None:
        self.exponent = _NO_DATA
        self.counts: npt.NDArray[np.int64] = np.zeros(BINS, dtype=np.int64)

    def add(self, array: Array, largest: float) -> None:
        """Count the magnitudes of finite values; ``largest`` is the largest of them."""
        if largest > 0.0:
            self._widen(math.frexp(largest)[1] - (BINS.bit_length() - 1))
        rows = array if array.ndim == 3 else array.reshape(1, 1, -1)
        count_magnitudes(rows, self.exponent, self.counts)

    def __getstate__(self) -> dict[str, Any]:
        """Return what is pickled: the counts in the smallest type, mostly a quarter or half of the size."""
        return {**vars(self), "counts": self.counts.astype(np.min_scalar_type(self.counts.max()))}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, counts=state["counts"].astype(np.int64))

    def merge(self, other: Histogram) -> None:
        """Add the counts of another histogram."""
        self.add_counts(other.counts, other.exponent)

    def add_counts(self, counts: npt.NDArray[np.int64], exponent: int) -> None:
        """Add the counts of another histogram with an exponent."""
        self._widen(exponent)
        self.counts += _merge_bins(counts, self.exponent - exponent)

    def _widen(self, exponent: int) -> None:
        if exponent > self.exponent:
            self.counts = _merge_bins(self.counts, exponent - self.exponent)
            self.exponent = exponent


def _merge_bins(counts: npt.NDArray[np.int64], doublings: int) -> npt.NDArray[np.int64]:
    """Return the counts of bins that are ``2^doublings`` times as wide; the same array for 0."""
    if doublings == 0:
        return counts
    merged = np.zeros_like(counts)
    joined = counts.reshape(-1, min(1 << min(doublings, 30), BINS)).sum(axis=1)
    merged[: joined.size] = joined
    return merged


class ExactSums:
    """Sums of float64 vectors, rounded only when they are read by ``divided_by``.

    Numbers are split into digits in base 2^32 whose positions do not depend on the data; digits are added as integers.
    The ``_WORDS`` most significant digits are kept; lower digits of all numbers are dropped.
    """

    def __init__(self, size: int) -> None:
        self._top = _NO_DATA
        self._words: npt.NDArray[np.int64] = np.zeros((_WORDS, size), dtype=np.int64)
        self._waiting: list[npt.NDArray[np.float64]] = []

    def __getstate__(self) -> dict[str, Any]:
        """Return what is pickled: the digits, which are smaller than the buffered rows of several samples."""
        self._digest()
        return vars(self)

    @property
    def size(self) -> int:
        """Length of the vectors."""
        return int(self._words.shape[1])

    def add(self, rows: npt.NDArray[np.float64]) -> None:
        """Add every row of a matrix. All numbers are finite."""
        self._waiting.append(rows)
        if sum(map(len, self._waiting)) >= _WAITING:
            self._digest()

    def merge(self, other: ExactSums) -> None:
        """Add the sums of ``other``, which has the same size and is not modified."""
        self._raise(other._top)
        self._words += _shift(other._words, self._top - other._top)
        self._waiting += other._waiting
        if sum(map(len, self._waiting)) >= _WAITING:
            self._digest()

    def divided_by(self, count: int) -> npt.NDArray[np.float64]:
        """Return the sums divided by a number, rounded to float64."""
        self._digest()
        total = np.zeros(self._words.shape[1])
        for word in self._words[::-1]:
            total = total * 2.0**-_WORD + word
        return np.ldexp(total / count, _WORD * self._top)

    def _digest(self) -> None:
        """Add the buffered rows to the digits. Few large steps cost less than many small ones."""
        if not self._waiting:
            return
        rows = np.concatenate(self._waiting)
        self._waiting = []
        largest = float(np.abs(rows).max(initial=0.0))
        if largest == 0.0:
            return
        self._raise((math.frexp(largest)[1] - 1) // _WORD)
        left = np.ldexp(rows, -_WORD * self._top)
        for word in self._words:
            digits = np.trunc(left)
            # The sums of digits are exact below 2^53, which allows 2^21 rows.
            word += digits.sum(axis=0).astype(np.int64)
            left = (left - digits) * 2.0**_WORD

    def _raise(self, top: int) -> None:
        if top > self._top:
            self._words = _shift(self._words, top - self._top)
            self._top = top


def _shift(words: npt.NDArray[np.int64], by: int) -> npt.NDArray[np.int64]:
    result = np.zeros_like(words)
    if by < _WORDS:
        result[by:] = words[: _WORDS - by]
    return result
