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
        before: as for ``whole_groups``.

    Attributes:
        whole: what the groups cost that are not cut.
        weights: of each group, or a bound below it; infinite where it does not fit or is no group.
        ways: the way of cutting that has this weight; None for a bound.
    """

    def __init__(
        self, window: Sequence[Facts], end: int, candidates: Candidates, before: Sequence[Sequence[Whole]]
    ) -> None:
        self._window = window
        self._end = end
        self._candidates = candidates
        self._segment: Segment | None = None
        self.whole = whole_groups(window, end, candidates, before)
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
                way = self.ways[count - 1]
                if way is None:
                    bound = self.weigh(count)
                    way = self.ways[count - 1]
                if way is not None and before + bound < known:
                    known = before + bound
                    found = known, (count, way)
        self._segment = None  # the memory that weighing has taken
        return found

    def weigh(self, count: int) -> float:
        """The weight of the group of so many nodes, of which a bound has been known. Bounds of longer ones rise."""
        segment = self._segment
        if segment is None or segment.size > count:
            segment = self._segment = Segment(self._candidates, self._end)
        while segment.size < count:
            segment.add(self._window[-1 - segment.size])
        found = segment.best()
        if found is None:  # and longer ones need more memory
            self.weights[count - 1 :] = [math.inf] * (len(self.weights) - count + 1)
            return math.inf
        weight, way, excess = found
        self.weights[count - 1], self.ways[count - 1] = weight, way
        if excess > 0:
            for place in range(count, len(self.weights)):
                if self.ways[place] is None:
                    self.weights[place] = max(self.weights[place], self.whole[place][1] + excess)
        return weight
