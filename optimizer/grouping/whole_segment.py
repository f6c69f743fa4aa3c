"""The cost of groups that are not cut. Where one fits, no way of cutting it moves less: nothing is loaded twice.

Groups in which windows skip rows are the exception, because cutting leaves those out. They are not looked at here.
"""

from __future__ import annotations

from tpuconvert.optimizer.grouping.candidates import Candidates
from tpuconvert.optimizer.grouping.facts import Facts
from tpuconvert.optimizer.grouping.pieces import Pieces

WHOLE = 0
"""The way of cutting that is none."""


class WholeSegment:
    """Nodes up to one that is the last, as ``Segment`` has them; plain numbers, because there is one way only.

    Args:
        candidates: sizes.
        end: place of the last node.
    """

    def __init__(self, candidates: Candidates, end: int) -> None:
        self._candidates = candidates
        self._end = end
        self._used: list[int] = []
        self._peak = 0
        self._moved = 0
        self._first: dict[int, int] = {}
        self._pieces = Pieces()

    def add(self, facts: Facts) -> bool:
        """Put a node in front. Returns whether the group fits into the memory."""
        if facts.skips_rows:
            return False
        step = len(self._used)
        self._used.append(0)
        self._pieces.add(facts.results, facts.reads)
        for number, shape, reader in zip(facts.results, facts.shapes, facts.last_readers, strict=True):
            lanes, moved = self._candidates.whole(shape)
            self._keep(number, lanes, step)
            if self._first.pop(number, None) is not None:
                self._moved -= moved
            if reader > self._end:
                self._moved += moved
        if facts.has_constants:
            lanes, moved = self._candidates.whole_constants(facts)
            self._used[step] += lanes
            self._moved += moved
        for operand in facts.operands:
            if operand.value >= 0:
                lanes, moved = self._candidates.whole(operand.shape)
                self._keep(operand.value, lanes, step)
                if operand.value not in self._first:
                    self._moved += moved
                self._first[operand.value] = step
        self._peak = max(self._peak, self._used[step])
        return self._peak <= self._candidates.memory.lane_bytes

    def best(self) -> tuple[float, int] | None:
        """The weight; None when the nodes are not connected."""
        return (float(self._moved), WHOLE) if self._pieces.count == 1 else None

    def _keep(self, number: int, lanes: int, step: int) -> None:
        """A value is there from this node on; so far it was from its first reader on."""
        for place in range(self._first.get(number, step - 1) + 1, step):
            self._used[place] += lanes
            self._peak = max(self._peak, self._used[place])
        if self._first.get(number) != step:
            self._used[step] += lanes
