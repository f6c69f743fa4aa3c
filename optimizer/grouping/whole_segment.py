"""Cost of groups without tiling. If such a group fits, no tiling moves fewer bytes: nothing is loaded twice.

Groups in which windows skip rows are an exception, because tiling does not load these rows: they never count as
fitting.

If a group does not fit, the same numbers give a lower bound of its cost with tiling. The tiles together contain all
rows of the results and need all rows of the operands that are read completely: every constant, every operand of the
group and every result that leaves it is moved at least once, and every node is computed at least once. The bound
excludes the rows that windows may skip.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from tpuconvert.optimizer.grouping.candidates import Candidates
from tpuconvert.optimizer.grouping.facts import Facts

Whole = tuple[float, float, float]
"""Bytes that a group moves without tiling, lower bound of the bytes with tiling, and peak memory of one lane. The first
two are infinite if the nodes are not connected, the last if the group does not count as fitting."""

ANYTHING = 1e300
"""Slack if no bound of the skipped bytes is known. It is finite, because ``inf - inf`` is NaN."""


def whole_groups(
    window: Sequence[Facts], end: int, candidates: Candidates, before: Sequence[Sequence[Whole]]
) -> list[Whole]:
    """Cost of the last node alone, of the last two, ...; the list ends early if no longer group is connected.

    Nodes after a narrow node (``Facts.is_narrow``) share only its result with the nodes before. Costs then add up, and
    the groups that end at the narrow node are not evaluated again.

    Args:
        window: consecutive nodes, in execution order.
        end: position of the last one.
        candidates: sizes of values and constants.
        before: costs of the groups that end at each earlier node of the window; empty if not evaluated.
    """
    segment = _WholeSegment(end, candidates)
    found: list[Whole] = []
    for step, facts in enumerate(reversed(window)):
        if step and facts.is_narrow and before[-step]:
            return found + segment.extend(facts, before[-step][: len(window) - step])
        found.append(segment.add(facts))
    return found


class _WholeSegment:
    """Group of consecutive nodes with a fixed last node. Steps are counted backwards from it."""

    def __init__(self, end: int, candidates: Candidates) -> None:
        self._end = end
        self._candidates = candidates
        self._components = _Components()
        self._used: list[int] = []
        self._first: dict[int, int] = {}  # first user of a value whose producer is not in the group
        self._left_out: set[int] = set()  # such values of which tiles may skip rows
        self._moved = 0
        self._slack = 0.0  # bytes that tiling may save
        self._peak = 0.0

    def add(self, facts: Facts) -> Whole:
        """Prepend a node."""
        step, first = len(self._used), self._first
        results, operands, used, moved, spared = self._candidates.whole(facts)
        self._moved += moved
        self._slack += spared
        is_whole = False  # whether all tiles together need all rows of the results
        for number, lanes, moved, user in results:
            if number in first:
                is_whole |= self._produce(number, lanes, moved, step)
            used += lanes
            if user > self._end:
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
                if begin == step:  # two operands of this node
                    continue
                self._keep(lanes, begin, step)
            used += lanes
            first[number] = step
        self._used.append(used)
        self._peak = math.inf if facts.use.skips_rows else max(self._peak, used)
        if self._components.add(facts.results, facts.reads) != 1:
            return math.inf, math.inf, self._peak
        return self._moved, self._moved - self._slack, self._peak

    def extend(self, facts: Facts, before: Sequence[Whole]) -> list[Whole]:
        """Costs of this group extended by a narrow node alone, by this node and the one before it, ..."""
        ((number, lanes, moved, user),) = self._candidates.whole(facts)[0]
        if number not in self._first or self._components.add(facts.results, ()) != 1:
            return []
        if not self._produce(number, lanes, moved, len(self._used)) and user <= self._end:
            self._slack = ANYTHING
        # Groups that end at the narrow node store its result. Here it stays on chip unless a later group uses it.
        more = self._moved + (0 if user > self._end else -moved)
        least, peak = more - self._slack, self._peak
        return [(more + one, least + two, three if three > peak else peak) for one, two, three in before]

    def _produce(self, number: int, lanes: int, moved: int, step: int) -> bool:
        """Mark a value as computed here instead of loaded. Return True if the tiles need all of its rows."""
        self._keep(lanes, self._first.pop(number), step)
        self._moved -= moved
        if number not in self._left_out:
            return True
        self._left_out.remove(number)
        self._slack -= moved
        return False

    def _keep(self, lanes: int, begin: int, step: int) -> None:
        """Keep a value in memory between two steps."""
        for index in range(begin + 1, step):
            self._used[index] += lanes
            self._peak = max(self._peak, self._used[index])


class _Components:
    """Count connected components of nodes, added in reverse order. A common operand does not connect nodes."""

    def __init__(self) -> None:
        self._count = 0
        self._roots: list[int] = []
        self._users: dict[int, list[int]] = {}

    def add(self, results: Iterable[int], operands: Iterable[int]) -> int:
        """Add a node and return the number of components.

        Args:
            results: numbers of its results.
            operands: numbers of its operands, without constants.
        """
        roots, users = self._roots, self._users
        step = len(roots)
        mine = -1
        for number in results:
            for user in users.pop(number, ()):
                while roots[user] != user:
                    user = roots[user]
                if mine < 0:
                    mine = user
                elif mine != user:
                    roots[user] = mine
                    self._count -= 1
        if mine < 0:
            mine = step
            self._count += 1
        roots.append(mine)
        for number in operands:
            known = users.get(number)
            if known is None:
                users[number] = [step]
            else:
                known.append(step)
        return self._count
