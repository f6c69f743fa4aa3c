"""The cost of groups that end at one node, for every way of cutting them: grown node by node towards the front.

What a node has to compute is decided by the nodes behind it. A node that joins in front changes nothing of what has
been found, except that its results are no longer loaded.
"""

from __future__ import annotations

import math

import numpy as np

from tpuconvert.optimizer.grouping.candidates import WHOLE, Bools, Candidates, Floats, Ints, Part, Shape
from tpuconvert.optimizer.grouping.facts import Facts


class _Live:
    """A value in on-chip memory between two steps; steps count back from the end of the group."""

    __slots__ = ("first", "last", "part", "shape")

    def __init__(self, part: Part, shape: Shape, step: int) -> None:
        self.part = part
        self.shape = shape
        self.first = self.last = step


class Segment:
    """Nodes up to one that is the last.

    Args:
        candidates: the ways of cutting.
        end: place of the last node.

    Attributes:
        size: number of nodes.
    """

    def __init__(self, candidates: Candidates, end: int) -> None:
        count = len(candidates.ways)
        self.size = 0
        self._candidates = candidates
        self._end = end
        self._used: list[Ints] = []  # per step; what a step takes never shrinks
        self._peak: Ints = np.zeros(count, np.int64)
        self._room: Ints = np.full(count, candidates.memory.lane_bytes, np.int64)
        self._possible: Bools = np.ones(count, np.bool_)
        self._live: dict[int, _Live] = {}
        self._changed = 0  # the first step that has not been looked at since it has grown
        self._moved: Ints = np.zeros(count, np.int64)  # but for values that would be loaded
        self._repeated: Floats = np.zeros(count)

    def add(self, facts: Facts) -> None:
        """Put a node in front."""
        step = self.size
        self.size += 1
        part = self._wanted(facts)
        found = self._candidates.step(facts, part)
        if not all(facts.use.can_cut):
            self._possible &= self._candidates.only(facts.use.can_cut)
        for number, shape, reader in zip(facts.results, facts.use.results, facts.last_readers, strict=True):
            known = self._live.pop(number, None)
            if known is not None:  # it is not loaded after all, and lives from here on
                lanes = self._grow(known, part)
                self._keep(lanes, known.first + 1, step)
            if reader > self._end:
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
        """The least weight, the way that has it, and how many bytes more than one part every possible way costs.

        The last does not count what would be loaded, which nodes in front may make. However many of these join, the
        weight is as much above the bound of ``whole_groups`` at least: every node that is added moves what it has to
        move in any case, or more. Rounded down to whole bytes, it is not too much in larger sums, which are rounded.

        None when no way fits into the memory.
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
        weight = np.where(self._possible, loaded + self._repeated, np.inf)
        way = int(weight.argmin())
        least = (self._moved + self._repeated)[self._possible].min()
        return float(weight[way]), way, math.floor(least) - int(self._moved[WHOLE])

    def needs_equal_parts(self, facts: Facts) -> bool:
        """Whether the next node has to make of its only result what it makes as the last of a group, or more of it.

        That is: equal parts at least, and none of them empty in any way of cutting that is possible so far.
        """
        live = self._live.get(facts.results[0])
        if live is None:
            return False
        n, c, h, _ = live.shape
        rows, equal = live.part.rows, self._candidates.equal_rows(h)
        if rows is not equal and ((rows.start > equal.start).any() or (rows.stop < equal.stop).any()):
            return False
        return not (self._possible & ~self._candidates.has_parts(n, c, h)).any()

    def _wanted(self, facts: Facts) -> Part:
        """What has to be computed: what nodes behind it read, and equal parts of results that leave."""
        wanted: Part | None = None
        extent = facts.use.results[0].h
        for number, shape, reader in zip(facts.results, facts.use.results, facts.last_readers, strict=True):
            live = self._live.get(number)
            if live is not None:
                wanted = live.part if wanted is None else self._candidates.join(wanted, live.part, extent)
            if reader > self._end:
                equal = self._candidates.equal_rows(shape.h).part(True, True)
                wanted = equal if wanted is None else self._candidates.join(wanted, equal, extent)
        assert wanted is not None, f"nobody reads {facts.node}"
        if facts.use.row_multiple == 1:
            return wanted
        rows = self._candidates.rounded_rows(wanted.rows, facts.use.row_multiple, extent)
        return rows.part(wanted.is_cut_n, wanted.is_cut_c)

    def _use(self, number: int, part: Part, shape: Shape, step: int) -> None:
        """A value is read here: loaded here, so far, and kept for those that read it later."""
        known = self._live.get(number)
        if known is None:
            self._live[number] = _Live(part, shape, step)
            first, lanes = step, self._candidates.size(part, shape)[0]
        else:
            first = known.first + 1
            lanes = self._grow(known, self._candidates.join(known.part, part, shape.h))
            known.first = step
        self._keep(lanes, first, step + 1)

    def _grow(self, live: _Live, part: Part) -> Ints:
        """More of a value is needed than has been known. Returns the bytes of one lane that it takes."""
        lanes, _ = self._candidates.size(part, live.shape)
        if part is not live.part:
            before, _ = self._candidates.size(live.part, live.shape)
            self._keep(lanes - before, live.last, live.first + 1)
            live.part = part
        return lanes

    def _keep(self, lanes: Ints, begin: int, end: int) -> None:
        """So much more is taken from one step on, up to another."""
        for step in range(begin, end):
            self._used[step] = self._used[step] + lanes
        if begin < end:
            self._changed = min(self._changed, begin)
