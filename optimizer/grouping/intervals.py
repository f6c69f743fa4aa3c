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
    """Interval of each tile, for every distinct number of tiles along the axis.

    Attributes:
        start, stop: intervals of all tiles, concatenated over the tile counts.
        longest, total: for each tiling, length of the longest interval and sum of the lengths.
    """

    start: Array
    stop: Array
    longest: Array
    total: Array


class Axis:
    """Intervals along one axis. Equal intervals are the same object, so that results can be cached by identity.

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
        self._known: dict[tuple[bytes, bytes], Intervals] = {}
        # Cached for one plan.
        self.equal = functools.cache(self._equal)
        self.whole = functools.cache(self._whole)
        self.needed = functools.cache(self._needed)
        self.union = functools.cache(self._union)
        self.rounded = functools.cache(self._rounded)

    def _equal(self, extent: int) -> Intervals:
        """Tiles of equal length; lengths differ by at most 1."""
        low, high = (index * extent // self._repeated for index in (self._indices, self._indices + 1))
        return self._intervals(low, high, extent)

    def _whole(self, extent: int) -> Intervals:
        """The full extent for every tile."""
        return self._intervals(np.zeros_like(self._repeated), np.full_like(self._repeated, extent), extent)

    def _needed(self, result: Intervals, cut: Cut, extent: int) -> Intervals:
        """Intervals of an operand that intervals of a result need."""
        return self._intervals(*cut.of(result.start, result.stop, extent), extent)

    def _union(self, one: Intervals, other: Intervals, extent: int) -> Intervals:
        """Smallest intervals that contain both."""
        return self._intervals(np.minimum(one.start, other.start), np.maximum(one.stop, other.stop), extent)

    def _rounded(self, item: Intervals, multiple: int, extent: int) -> Intervals:
        """Extend each interval to multiples of ``multiple``."""
        return self._intervals(item.start // multiple * multiple, -(-item.stop // multiple) * multiple, extent)

    def _intervals(self, start: Any, stop: Any, extent: int) -> Intervals:
        if self._is_single:
            start[0], stop[0] = 0, extent  # a single tile contains also what no window reads
        key = start.tobytes(), stop.tobytes()
        known = self._known.get(key)
        if known is None:
            length = (stop - start).astype(np.float64)
            longest, total = (ufunc.reduceat(length, self._begins)[self._of_tiling] for ufunc in (np.maximum, np.add))
            known = self._known[key] = Intervals(start, stop, longest, total)
        return known
