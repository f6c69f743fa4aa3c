"""The cost of groups that are not cut. Where one fits, no way of cutting it moves less: nothing is loaded twice.

Groups in which windows skip rows are the exception, because cutting leaves those out: they never count as fitting.

Where a group does not fit, the same numbers bound what it weighs when it is cut. Parts that together are all rows of
the results need all rows of what is read whole: every constant, every value from outside and every result that leaves
is moved at least once, and no step is computed less than once. What windows may leave out is not counted on.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from tpuconvert.optimizer.grouping.candidates import Candidates
from tpuconvert.optimizer.grouping.facts import Facts

Whole = tuple[float, float, float]
"""Bytes that a group moves, bytes that it moves at least when it is cut, and memory of one lane. The first two are
infinite where the nodes are not connected, the last where the group does not count as fitting."""

ANYTHING = 1e300
"""Bytes that may be left out where nothing is known of them. Not infinity, from which it could not be taken away."""


def whole_groups(
    window: Sequence[Facts], end: int, candidates: Candidates, before: Sequence[Sequence[Whole]]
) -> list[Whole]:
    """The last node alone, the last two, ...; fewer than the window has where longer ones are not connected.

    Behind a narrow place nodes have nothing but its result in common with those before, so that costs add up: groups
    that end there are not looked at again.

    Args:
        window: nodes in their order.
        end: place of the last one.
        candidates: sizes.
        before: the groups that end at each other node of the window, without any where they have not been looked at.
    """
    segment = _WholeSegment(end, candidates)
    found: list[Whole] = []
    for step, facts in enumerate(reversed(window)):
        if step and facts.is_narrow and before[-step]:
            return found + segment.joined(facts, before[-step][: len(window) - step])
        found.append(segment.add(facts))
    return found


class _WholeSegment:
    """Nodes up to one that is the last; steps count back from it."""

    def __init__(self, end: int, candidates: Candidates) -> None:
        self._end = end
        self._candidates = candidates
        self._pieces = _Pieces()
        self._used: list[int] = []
        self._first: dict[int, int] = {}  # the first step that reads a value whose producer has not been reached
        self._left_out: set[int] = set()  # such values of which parts may need less
        self._moved = 0
        self._slack = 0.0  # bytes that cutting may save
        self._peak = 0.0

    def add(self, facts: Facts) -> Whole:
        """Put a node in front."""
        step, first = len(self._used), self._first
        results, operands, used, moved, spared = self._candidates.whole(facts)
        self._moved += moved
        self._slack += spared
        is_whole = False  # whether all parts together need all of the results
        for number, lanes, moved, reader in results:
            if number in first:
                is_whole |= self._produce(number, lanes, moved, step)
            used += lanes
            if reader > self._end:
                self._moved += moved
                is_whole = True
        if not is_whole:
            self._slack = ANYTHING
        for number, lanes, moved, is_read_whole in operands:
            begin = first.get(number)
            if begin is None:
                self._moved += moved
                if not is_read_whole:
                    self._left_out.add(number)
                    self._slack += moved
            else:
                if is_read_whole and number in self._left_out:
                    self._left_out.remove(number)
                    self._slack -= moved
                if begin == step:  # read twice by this node
                    continue
                self._keep(lanes, begin, step)
            used += lanes
            first[number] = step
        self._used.append(used)
        self._peak = math.inf if facts.use.skips_rows else max(self._peak, used)
        if self._pieces.add(facts.results, facts.reads) != 1:
            return math.inf, math.inf, self._peak
        return self._moved, self._moved - self._slack, self._peak

    def joined(self, facts: Facts, before: Sequence[Whole]) -> list[Whole]:
        """The groups of these nodes and those up to a narrow place: its node alone, with the one before it, ..."""
        ((number, lanes, moved, reader),) = self._candidates.whole(facts)[0]
        if number not in self._first or self._pieces.add(facts.results, ()) != 1:
            return []
        if not self._produce(number, lanes, moved, len(self._used)) and reader <= self._end:
            self._slack = ANYTHING
        # The groups that end there store the result, which here stays unless somebody else reads it.
        more = self._moved + (0 if reader > self._end else -moved)
        least, peak = more - self._slack, self._peak
        return [(more + one, least + two, three if three > peak else peak) for one, two, three in before]

    def _produce(self, number: int, lanes: int, moved: int, step: int) -> bool:
        """A value is made here: it is not loaded after all. Returns whether parts need all of it."""
        self._keep(lanes, self._first.pop(number), step)
        self._moved -= moved
        if number not in self._left_out:
            return True
        self._left_out.remove(number)
        self._slack -= moved
        return False

    def _keep(self, lanes: int, begin: int, step: int) -> None:
        """A value stays in memory between two steps."""
        for place in range(begin + 1, step):
            self._used[place] += lanes
            self._peak = max(self._peak, self._used[place])


class _Pieces:
    """Counts the connected pieces of nodes, added from the last to the first. Reading one value connects nothing."""

    def __init__(self) -> None:
        self._count = 0
        self._roots: list[int] = []
        self._readers: dict[int, list[int]] = {}

    def add(self, results: Iterable[int], operands: Iterable[int]) -> int:
        """The number of pieces with a node more.

        Args:
            results: numbers of the values that it makes.
            operands: numbers of those that it reads; constants do not count.
        """
        roots, readers = self._roots, self._readers
        step = len(roots)
        mine = -1
        for number in results:
            for reader in readers.pop(number, ()):
                while roots[reader] != reader:
                    reader = roots[reader]
                if mine < 0:
                    mine = reader
                elif mine != reader:
                    roots[reader] = mine
                    self._count -= 1
        if mine < 0:
            mine = step
            self._count += 1
        roots.append(mine)
        for number in operands:
            known = readers.get(number)
            if known is None:
                readers[number] = [step]
            else:
                known.append(step)
        return self._count
