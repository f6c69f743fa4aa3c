"""The cost of all groups that end at one node, for every way of cutting them: grown node by node towards the front.

What a node has to compute is decided by the nodes behind it. A node that joins in front changes nothing of what has
been found, except that its results are no longer loaded.
"""

from __future__ import annotations

import numpy as np

from tpuconvert.optimizer.grouping.candidates import Bools, Candidates, Floats, Ints, Part, Shape
from tpuconvert.optimizer.grouping.facts import Facts, Operand
from tpuconvert.optimizer.grouping.pieces import Pieces


class _Live:
    """A value in on-chip memory between two steps; steps count back from the end of the group."""

    __slots__ = ("first", "last", "part")

    def __init__(self, part: Part, step: int) -> None:
        self.part = part
        self.first = self.last = step


class Segment:
    """Nodes up to one that is the last.

    Args:
        candidates: the ways of cutting.
        end: place of the last node.
        longest: most nodes.
    """

    def __init__(self, candidates: Candidates, end: int, longest: int) -> None:
        count = len(candidates.ways)
        self._candidates = candidates
        self._end = end
        self._used: Ints = np.zeros((longest, count), np.int64)
        self._room: Ints = np.full(count, candidates.memory.lane_bytes, np.int64)
        self._moved: Ints = np.zeros(count, np.int64)
        self._repeated: Floats = np.zeros(count)
        self._peak: Ints = np.zeros(count, np.int64)
        self._possible: Bools = np.ones(count, np.bool_)
        self._live: dict[int, _Live] = {}
        self._size = 0
        self._changed = 0  # the first step that has not been looked at since it has grown
        self._pieces = Pieces()

    def add(self, facts: Facts) -> None:
        """Put a node in front."""
        step = self._size
        self._size += 1
        self._pieces.add(facts.results, facts.reads)
        part = self._wanted(facts)
        if not all(facts.can_cut):
            self._possible &= self._candidates.only(facts.can_cut)
        for place, number in enumerate(facts.results):
            self._touch(self._produce(number, part, facts.shapes[place], step))
            if facts.last_readers[place] > self._end:
                n, c, h, row = facts.shapes[place]
                self._moved += n * c * h * row
                self._possible &= self._candidates.has_parts(n, c, h)
        if facts.has_constants:
            lanes, kept, moved = self._candidates.constants(facts, part)
            self._used[step] += lanes
            self._room -= kept
            self._moved += moved
        for operand in facts.operands:
            if operand.value >= 0:
                self._touch(self._use(operand, self._needed(operand, part, facts.shapes[0]), step))
        if facts.steps:
            self._repeated += self._candidates.repetition(part, facts.shapes[0], facts.steps)

    def _touch(self, step: int) -> None:
        """From this step on, what a step takes may have grown."""
        self._changed = min(self._changed, step)

    def fits(self) -> bool:
        """Whether some way of cutting fits into the memory."""
        # What a step takes never shrinks: those that are not changed have been looked at.
        for used in self._used[self._changed : self._size]:
            np.maximum(self._peak, used, out=self._peak)
        self._changed = self._size
        self._possible &= self._peak <= self._room
        return bool(np.count_nonzero(self._possible))

    def best(self) -> tuple[float, int] | None:
        """The least weight and the way that has it; None when the nodes are not connected."""
        if self._pieces.count != 1:
            return None
        weight = np.where(self._possible, self._moved + self._repeated, np.inf)
        way = int(weight.argmin())
        return float(weight[way]), way

    def _wanted(self, facts: Facts) -> Part:
        """What has to be computed: what nodes behind it read, and equal parts of results that leave."""
        wanted: Part | None = None
        extent = facts.shapes[0].h
        for number, shape, reader in zip(facts.results, facts.shapes, facts.last_readers, strict=True):
            parts = [self._live[number].part] if number in self._live else []
            if reader > self._end:
                parts.append(Part(True, True, self._candidates.equal_rows(shape.h)))
            for part in parts:
                wanted = part if wanted is None else self._candidates.join(wanted, part, extent)
        assert wanted is not None, f"nobody reads {facts.node}"
        if facts.row_multiple == 1:
            return wanted
        return wanted._replace(rows=self._candidates.rounded_rows(wanted.rows, facts.row_multiple, extent))

    def _needed(self, operand: Operand, part: Part, result: Shape) -> Part:
        cut_n, cut_c, cut_h = operand.cuts
        extent = operand.shape.h
        if cut_h is None:
            rows = self._candidates.whole_rows(extent)
        elif cut_h.is_same and extent == result.h:
            rows = part.rows
        else:
            rows = self._candidates.cut_rows(part.rows, cut_h, extent)
        return Part(cut_n is not None and part.is_cut_n, cut_c is not None and part.is_cut_c, rows)

    def _produce(self, number: int, part: Part, shape: Shape, step: int) -> int:
        """A result is made here: it is not loaded after all, and lives from here on.

        Returns the first step that changes.
        """
        lanes, _ = self._candidates.size(part, shape)
        known = self._live.pop(number, None)
        if known is None:
            self._used[step] += lanes
            return step
        before, loaded = self._candidates.size(known.part, shape)
        self._moved -= loaded
        if lanes is not before:
            self._used[known.last : known.first + 1] += lanes - before
        self._used[known.first + 1 : step + 1] += lanes
        return known.last if lanes is not before else known.first + 1

    def _use(self, operand: Operand, part: Part, step: int) -> int:
        """A value is read here: loaded here, so far, and kept for those that read it later.

        Returns the first step that changes.
        """
        known = self._live.get(operand.value)
        if known is None:
            lanes, loaded = self._candidates.size(part, operand.shape)
            self._live[operand.value] = _Live(part, step)
            self._used[step] += lanes
            self._moved += loaded
            return step
        changed = known.first + 1
        both = self._candidates.join(known.part, part, operand.shape.h)
        lanes, loaded = self._candidates.size(both, operand.shape)
        if both != known.part:
            before, counted = self._candidates.size(known.part, operand.shape)
            self._used[known.last : known.first + 1] += lanes - before
            self._moved += loaded - counted
            known.part = both
            changed = known.last
        self._used[known.first + 1 : step + 1] += lanes
        known.first = step
        return changed
