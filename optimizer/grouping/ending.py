"""All groups that end at one node: bounds of what they weigh, and the weights of those that somebody asks for.

Most groups that do not fit into the memory as a whole are never asked for: what they move at least is too much.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tpuconvert.optimizer.grouping.candidates import WHOLE, Candidates
from tpuconvert.optimizer.grouping.facts import Facts
from tpuconvert.optimizer.grouping.segment import Segment
from tpuconvert.optimizer.grouping.whole_segment import Whole, whole_groups


class Ending:
    """The last node of a window, the last two, ...: all that are connected.

    Args:
        window: nodes in their order.
        end: place of the last one.
        candidates: the ways of cutting.
        before: the groups that end at each other node of the window; None where they have not been looked at.

    Attributes:
        whole: what the groups cost that are not cut.
        weights: of each group, or a bound below it; infinite where it does not fit or is no group.
        ways: the way of cutting that has this weight; None for a bound.
    """

    def __init__(
        self, window: Sequence[Facts], end: int, candidates: Candidates, before: Sequence[Ending | None]
    ) -> None:
        self._window = window
        self._end = end
        self._candidates = candidates
        self._before = before
        self._segment: Segment | None = None
        self.whole: list[Whole] = whole_groups(
            window, end, candidates, [() if item is None else item.whole for item in before]
        )
        limit = candidates.memory.lane_bytes
        self.weights = [moved if peak <= limit else least for moved, least, peak in self.whole]
        self.weights[0] = math.inf  # a node alone is no group
        self.ways = [WHOLE if peak <= limit else None for _, _, peak in self.whole]

    def lightest(self, weights: Sequence[float], known: float) -> tuple[float, tuple[int, int]] | None:
        """The least weight of all nodes up to the last, with the number of those in its group and the way of cutting.

        A group whose bound is not less than what is known is passed over: it cannot be less either.

        Args:
            weights: the least weight of the nodes before each place.
            known: a weight that is known; None when no group has less.
        """
        found = None
        # Weighing one group raises the bounds of those that are still to come in this loop.
        for count, (before, bound) in enumerate(zip(reversed(weights), self.weights, strict=False), 1):
            if before + bound < known:
                if self.ways[count - 1] is None:
                    bound = self.weigh(count, known - before)
                way = self.ways[count - 1]
                if way is not None and before + bound < known:
                    known = before + bound
                    found = known, (count, way)
        self._segment = None  # the memory that weighing has taken
        return found

    def weigh(self, count: int, enough: float = math.inf) -> float:
        """The weight of the group of so many nodes, of which a bound has been known. Bounds of longer ones rise.

        Args:
            count: of the nodes.
            enough: where the weight turns out to be as much, a bound that says so will do.
        """
        segment = self._segment
        if segment is None or segment.size > count:
            segment = self._segment = Segment(self._candidates, self._end)
        while segment.size < count:
            facts = self._window[-1 - segment.size]
            earlier = self._before[-segment.size] if segment.size and facts.is_narrow else None
            if earlier is not None:
                bound = self.whole[count - 1][1] + earlier.excess(count - segment.size)
                if bound > self.weights[count - 1] and segment.needs_equal_parts(facts):
                    for longer in range(count, len(self.weights) + 1):
                        self._raise(longer, earlier.excess(longer - segment.size))
                    if bound >= enough:
                        return bound
            segment.add(facts)
        found = segment.best()
        if found is None:  # and longer ones need more memory
            self.weights[count - 1 :] = [math.inf] * (len(self.weights) - count + 1)
            return math.inf
        weight, way, excess = found
        self.weights[count - 1], self.ways[count - 1] = weight, way
        for longer in range(count + 1, len(self.weights) + 1):
            self._raise(longer, excess)
        return weight

    def _raise(self, count: int, excess: float) -> None:
        """The group of so many nodes weighs so much more at least than the bound of ``whole_groups``."""
        bound = self.whole[count - 1][1] + excess
        if bound > self.weights[count - 1] and self.ways[count - 1] is None:
            self.weights[count - 1] = bound

    def excess(self, count: int) -> float:
        """What cutting the group of so many nodes costs at least: its weight above the bound of ``whole_groups``.

        It costs as much in a longer group that needs as much of its last result as this one makes, where that is all
        that nodes behind it read: more rows of a result need more rows of everything, never less memory. The bytes are
        whole ones, and one is left off, for what rounding does to sums in another order.
        """
        if not 1 < count <= len(self.whole) or self.ways[count - 1] == WHOLE:
            return 0
        least = self.whole[count - 1][1]
        if not 0 <= least < math.inf:  # without a bound, or no group
            return 0
        excess = self.weights[count - 1] - least
        return excess if excess == math.inf else math.floor(excess) - 1
