"""Cost of the groups that end at one node, for every candidate tiling. A group grows backwards, node by node.

The rows that a node has to compute depend only on the nodes after it. Prepending a node therefore keeps the costs found
so far, except that its results are no longer loaded from global memory.
"""

from __future__ import annotations

import math

import numpy as np

from tpuconvert.optimizer.grouping.candidates import WHOLE, Bools, Candidates, Floats, Ints, Part, Shape
from tpuconvert.optimizer.grouping.facts import Facts


class _Live:
    """Lifetime of a value in on-chip memory. Steps are counted backwards from the end of the group."""

    __slots__ = ("first", "last", "part", "shape")

    def __init__(self, part: Part, shape: Shape, step: int) -> None:
        self.part = part
        self.shape = shape
        self.first = self.last = step


class Segment:
    """Group of consecutive nodes with a fixed last node.

    Args:
        candidates: the candidate tilings.
        end: position of the last node.

    Attributes:
        size: number of nodes.
    """

    def __init__(self, candidates: Candidates, end: int) -> None:
        count = len(candidates.ways)
        self.size = 0
        self._candidates = candidates
        self._end = end
        self._used: list[Ints] = []  # bytes per lane of each step; never decreases
        self._peak: Ints = np.zeros(count, np.int64)
        self._room: Ints = np.full(count, candidates.memory.lane_bytes, np.int64)
        self._possible: Bools = np.ones(count, np.bool_)
        self._live: dict[int, _Live] = {}
        self._changed = 0  # first step whose memory grew after the peak was computed
        self._moved: Ints = np.zeros(count, np.int64)  # without the operands of the group
        self._repeated: Floats = np.zeros(count)

    def add(self, facts: Facts) -> None:
        """Prepend a node."""
        step = self.size
        self.size += 1
        part = self._needed_tile(facts)
        found = self._candidates.step(facts, part)
        if not all(facts.use.can_cut):
            self._possible &= self._candidates.only(facts.use.can_cut)
        for number, shape, user in zip(facts.results, facts.use.results, facts.last_users, strict=True):
            known = self._live.pop(number, None)
            if known is not None:  # computed here instead of loaded: its lifetime begins here
                lanes = self._grow(known, part)
                self._keep(lanes, known.first + 1, step)
            if user > self._end:
                n, c, h, row = shape
                self._moved += n * c * h * row
                self._possible &= self._candidates.has_parts(n, c, h)
        if found.constants is not None:
            kept, moved = found.constants
            self._room -= kept
            self._moved += moved
        if found.repeated is not None:
            self._repeated += found.repeated
        if found.all_lanes is not None and facts.reads[0] not in self._live:
            self._used.append(found.all_lanes)
            self._live[facts.reads[0]] = _Live(*found.operands[0], step)
            return
        self._used.append(found.lanes)
        for number, (needed, shape) in zip(facts.reads, found.operands, strict=True):
            self._use(number, needed, shape, step)

    def best(self) -> tuple[float, int, int] | None:
        """Return the lowest cost, the index of its tiling, and the least tiling overhead in bytes.

        The overhead is that of the cheapest tiling compared with a single tile. It excludes operands of the group,
        which a prepended node may compute. It remains a lower bound of the cost above the bound of ``whole_groups``
        when nodes are prepended, because every node moves at least the bytes that it moves in a single tile. Rounding
        down to an integer keeps it a lower bound in larger floating-point sums.

        Return None if no tiling fits into memory.
        """
        for used in self._used[self._changed :]:
            np.maximum(self._peak, used, out=self._peak)
        self._changed = self.size
        self._possible &= self._peak <= self._room
        if not self._possible.any():
            return None
        loaded = self._moved
        for live in self._live.values():
            loaded = loaded + self._candidates.size(live.part, live.shape)[1]
        cost = np.where(self._possible, loaded + self._repeated, np.inf)
        way = int(cost.argmin())
        least = (self._moved + self._repeated)[self._possible].min()
        return float(cost[way]), way, math.floor(least) - int(self._moved[WHOLE])

    def needs_equal_parts(self, facts: Facts) -> bool:
        """Return True if the next node must compute at least the rows that it computes as the last node of a group.

        These are equal tiles of its only result, none of them empty in a tiling that is still possible.
        """
        live = self._live.get(facts.results[0])
        if live is None:
            return False
        n, c, h, _ = live.shape
        rows, equal = live.part.rows, self._candidates.equal_rows(h)
        if rows is not equal and ((rows.start > equal.start).any() or (rows.stop < equal.stop).any()):
            return False
        return not (self._possible & ~self._candidates.has_parts(n, c, h)).any()

    def _needed_tile(self, facts: Facts) -> Part:
        """Tile that a node must compute: union of the tiles its users need, and of equal tiles if a result leaves."""
        tile: Part | None = None
        extent = facts.use.results[0].h
        for number, shape, user in zip(facts.results, facts.use.results, facts.last_users, strict=True):
            live = self._live.get(number)
            if live is not None:
                tile = live.part if tile is None else self._candidates.union(tile, live.part, extent)
            if user > self._end:
                equal = self._candidates.equal_rows(shape.h).part(True, True)
                tile = equal if tile is None else self._candidates.union(tile, equal, extent)
        assert tile is not None, f"no user of {facts.node}"
        if facts.use.row_multiple == 1:
            return tile
        rows = self._candidates.rounded_rows(tile.rows, facts.use.row_multiple, extent)
        return rows.part(tile.is_cut_n, tile.is_cut_c)

    def _use(self, number: int, part: Part, shape: Shape, step: int) -> None:
        """Add a use of a value: unless a producer is prepended, it is loaded here and kept for its later users."""
        known = self._live.get(number)
        if known is None:
            self._live[number] = _Live(part, shape, step)
            first, lanes = step, self._candidates.size(part, shape)[0]
        else:
            first = known.first + 1
            lanes = self._grow(known, self._candidates.union(known.part, part, shape.h))
            known.first = step
        self._keep(lanes, first, step + 1)

    def _grow(self, live: _Live, part: Part) -> Ints:
        """Enlarge the needed tile of a value. Return its bytes per lane."""
        lanes, _ = self._candidates.size(part, live.shape)
        if part is not live.part:
            before, _ = self._candidates.size(live.part, live.shape)
            self._keep(lanes - before, live.last, live.first + 1)
            live.part = part
        return lanes

    def _keep(self, lanes: Ints, begin: int, end: int) -> None:
        """Add the bytes of a lane to the steps from ``begin`` to ``end`` (exclusive)."""
        for step in range(begin, end):
            self._used[step] = self._used[step] + lanes
        if begin < end:
            self._changed = min(self._changed, begin)
