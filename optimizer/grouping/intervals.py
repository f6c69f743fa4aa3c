"""Intervals that the tiles of a value need along one axis, for many tilings at once."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from tpuconvert.optimizer.grouping.slicing import Cut
from tpuconvert.schema.types import Array


@dataclass(frozen=True, eq=False, slots=True)
class Intervals:
    """Interval of each tile along one axis, for several tilings.

    Attributes:
        start, stop: intervals of all tiles, concatenated over the distinct numbers of tiles.
        longest, total: for each tiling, the length of the longest interval and the sum of the lengths.
    """

    start: Array
    stop: Array
    longest: Array
    total: Array


class Axis:
    """Operations on intervals along one axis. Equal intervals are one object, so that caches can use its identity.

    Args:
        counts: number of tiles along the axis, for each tiling.
    """

    def __init__(self, counts: Array) -> None:
        self.counts = counts
        distinct, self._of_tiling = np.unique(counts, return_inverse=True)
        self._is_single = distinct[0] == 1
        self._repeated = np.repeat(distinct, distinct)
        self._indices = np.concatenate([np.arange(count) for count in distinct])
        self._begins = np.cumsum([0, *distinct[:-1]])
        self._cache: dict[tuple[bytes, bytes], Intervals] = {}
        # The caches live as long as the plan.
        self.equal = functools.cache(self._equal)
        self.whole = functools.cache(self._whole)
        self.needed = functools.cache(self._needed)
        self.union = functools.cache(self._union)
        self.round_to_multiple = functools.cache(self._round_to_multiple)

    def _equal(self, extent: int) -> Intervals:
        """Split the extent into tiles whose lengths differ by at most 1."""
        low, high = (index * extent // self._repeated for index in (self._indices, self._indices + 1))
        return self._intervals(low, high, extent)

    def _whole(self, extent: int) -> Intervals:
        """Return the full extent for every tile."""
        return self._intervals(np.zeros_like(self._repeated), np.full_like(self._repeated, extent), extent)

    def _needed(self, result: Intervals, cut: Cut, extent: int) -> Intervals:
        """Return the intervals of an operand that are needed to compute intervals of a result."""
        return self._intervals(*cut.of(result.start, result.stop, extent), extent)

    def _union(self, one: Intervals, other: Intervals, extent: int) -> Intervals:
        """Return the smallest intervals that contain both."""
        return self._intervals(np.minimum(one.start, other.start), np.maximum(one.stop, other.stop), extent)

    def _round_to_multiple(self, item: Intervals, multiple: int, extent: int) -> Intervals:
        """Extend each interval so that it begins and ends at a multiple of ``multiple``."""
        return self._intervals(item.start // multiple * multiple, -(-item.stop // multiple) * multiple, extent)

    def _intervals(self, start: Any, stop: Any, extent: int) -> Intervals:
        if self._is_single:
            start[0], stop[0] = 0, extent  # A single tile also contains rows that no window reads.
        key = start.tobytes(), stop.tobytes()
        cached = self._cache.get(key)
        if cached is None:
            length = (stop - start).astype(np.float64)
            longest, total = (ufunc.reduceat(length, self._begins)[self._of_tiling] for ufunc in (np.maximum, np.add))
            cached = self._cache[key] = Intervals(start, stop, longest, total)
        return cached
