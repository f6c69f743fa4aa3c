"""The cost of groups that are not cut. Where one fits, no way of cutting it moves less: nothing is loaded twice.

Groups in which windows skip rows are the exception, because cutting leaves those out. They are not looked at here.
"""

from __future__ import annotations

from collections.abc import Sequence

from tpuconvert.optimizer.grouping.candidates import Candidates
from tpuconvert.optimizer.grouping.facts import Facts
from tpuconvert.optimizer.grouping.pieces import Pieces

WHOLE = 0
"""The way of cutting that is none."""


def whole_groups(window: Sequence[Facts], end: int, candidates: Candidates) -> list[tuple[float, int] | None]:
    """The weight of the last node alone, of the last two, ...: as many as fit. None where they are not connected.

    What ``Segment`` does for every way of cutting is done here for one, with plain numbers: this is where the planner
    spends its time on networks whose tensors are small.

    Args:
        window: nodes in their order.
        end: place of the last one.
        candidates: sizes.
    """
    limit = candidates.memory.lane_bytes
    pieces = Pieces()
    found: list[tuple[float, int] | None] = []
    used: list[int] = []  # per node, counted from the last one
    first: dict[int, int] = {}  # the first node that reads a value, as far as its producer has not been reached
    total = peak = 0
    for step, facts in enumerate(reversed(window)):
        if facts.skips_rows:
            break
        results, operands, now, moved = candidates.whole(facts)
        total += moved
        for number, lanes, moved, reader in results:
            begin = first.pop(number, None)
            if begin is not None:
                total -= moved  # it is not loaded after all
                for place in range(begin + 1, step):
                    used[place] += lanes
                    peak = max(peak, used[place])
            now += lanes
            if reader > end:
                total += moved
        for number, lanes, moved in operands:
            begin = first.get(number)
            if begin is None:
                total += moved
            elif begin == step:  # read twice by this node
                continue
            else:
                for place in range(begin + 1, step):
                    used[place] += lanes
                    peak = max(peak, used[place])
            now += lanes
            first[number] = step
        used.append(now)
        peak = max(peak, now)
        if peak > limit:
            break
        pieces.add(facts.results, facts.reads)
        found.append((float(total), WHOLE) if pieces.count == 1 else None)
    return found
