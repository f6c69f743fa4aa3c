"""Lower bounds and costs of all groups that end at one node.

A cost is computed on request. Most groups that do not fit into memory untiled are never evaluated: their lower bound
already exceeds the best known cost.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tpuconvert.optimizer.grouping.candidates import WHOLE, Candidates
from tpuconvert.optimizer.grouping.facts import Facts
from tpuconvert.optimizer.grouping.segment import Segment
from tpuconvert.optimizer.grouping.whole_segment import Whole, whole_groups


class SegmentBounds:
    """Groups of the last node of a window, the last two, ..., as long as they are connected.

    Args:
        window: consecutive nodes, in execution order.
        end: position of the last one.
        candidates: the candidate tilings.
        before: bounds of the groups that end at each earlier node of the window; None if not evaluated.

    Attributes:
        whole: costs of the groups without tiling.
        costs: cost of each group, or a lower bound; infinite if it does not fit or is not a group.
        ways: index of the tiling that has this cost; None for a bound.
    """

    def __init__(
        self, window: Sequence[Facts], end: int, candidates: Candidates, before: Sequence[SegmentBounds | None]
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
        self.costs = [moved if peak <= limit else least for moved, least, peak in self.whole]
        self.costs[0] = math.inf  # a single node is not a group
        self.ways = [WHOLE if peak <= limit else None for _, _, peak in self.whole]

    def cheapest_group(self, costs: Sequence[float], known: float) -> tuple[float, tuple[int, int]] | None:
        """Return the lowest cost of all nodes up to the last, and the size and tiling of the last group.

        A group whose lower bound is not below the known cost is skipped.

        Args:
            costs: lowest cost of the nodes before each position.
            known: a known cost; the result is None if no group costs less.
        """
        found = None
        # `segment_cost` raises the bounds of the longer groups, which follow in this loop.
        for count, (before, bound) in enumerate(zip(reversed(costs), self.costs, strict=False), 1):
            if before + bound < known:
                if self.ways[count - 1] is None:
                    bound = self.segment_cost(count, known - before)
                way = self.ways[count - 1]
                if way is not None and before + bound < known:
                    known = before + bound
                    found = known, (count, way)
        self._segment = None  # release its arrays
        return found

    def segment_cost(self, count: int, enough: float = math.inf) -> float:
        """Return the cost of the group of ``count`` nodes, and raise the lower bounds of longer groups.

        Args:
            count: number of nodes; only a bound of their cost is known so far.
            enough: if a lower bound reaches this value, it is returned instead of the cost.
        """
        segment = self._segment
        if segment is None or segment.size > count:
            segment = self._segment = Segment(self._candidates, self._end)
        while segment.size < count:
            facts = self._window[-1 - segment.size]
            earlier = self._before[-segment.size] if segment.size and facts.is_narrow else None
            if earlier is not None:
                bound = self.whole[count - 1][1] + earlier.excess(count - segment.size)
                if bound > self.costs[count - 1] and segment.needs_equal_parts(facts):
                    for longer in range(count, len(self.costs) + 1):
                        self._raise(longer, earlier.excess(longer - segment.size))
                    if bound >= enough:
                        return bound
            segment.add(facts)
        found = segment.best()
        if found is None:  # longer groups need at least as much memory
            self.costs[count - 1 :] = [math.inf] * (len(self.costs) - count + 1)
            return math.inf
        cost, way, excess = found
        self.costs[count - 1], self.ways[count - 1] = cost, way
        for longer in range(count + 1, len(self.costs) + 1):
            self._raise(longer, excess)
        return cost

    def _raise(self, count: int, excess: float) -> None:
        """Raise the lower bound of the group of ``count`` nodes to ``excess`` above that of ``whole_groups``."""
        bound = self.whole[count - 1][1] + excess
        if bound > self.costs[count - 1] and self.ways[count - 1] is None:
            self.costs[count - 1] = bound

    def excess(self, count: int) -> float:
        """Return a lower bound of the tiling overhead of the group of ``count`` nodes.

        The overhead is the cost above the bound of ``whole_groups``. It also bounds the overhead in a longer group in
        which later nodes use only the last result of this group, and need at least the rows that this group computes:
        more rows of a result need more rows of every operand, and never less memory. The bound is rounded down to an
        integer minus 1, because floating-point sums in another order round differently.
        """
        if not 1 < count <= len(self.whole) or self.ways[count - 1] == WHOLE:
            return 0
        least = self.whole[count - 1][1]
        if not 0 <= least < math.inf:  # no bound, or not a group
            return 0
        excess = self.costs[count - 1] - least
        return excess if excess == math.inf else math.floor(excess) - 1
