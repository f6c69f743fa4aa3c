"""Offsets for buffers that share one arena."""

from __future__ import annotations

from collections.abc import Sequence

from tpuconvert.runtime.native.storage import Buffer

ALIGNMENT = 64
NEAR_ENOUGH = 1.05
"""An arena this near to the lower bound is not improved any further."""
MOST_WORK = 100_000
"""Pairs of buffers that may be looked at: it bounds the time that improving takes."""


def footprint(size: int, slack: int) -> int:
    """Bytes that a buffer takes in the arena."""
    return -(-(size + slack) // ALIGNMENT) * ALIGNMENT


def lower_bound(buffers: Sequence[Buffer], steps: int, slack: int) -> int:
    """The most bytes that are alive at one step: no arena can be smaller."""
    return max(_alive(buffers, steps, slack), default=0)


def place(buffers: Sequence[Buffer], slack: int) -> int:
    """Give every buffer an offset so that buffers alive at the same step do not overlap.

    Buffers are placed one after the other, each into the smallest gap that is big enough between those placed before
    it, or behind them. The order decides: largest first, and by the steps at which most bytes are alive. The better
    one is then improved by placing first what stuck out.

    Returns:
        The size of the arena in bytes.
    """
    if not buffers:
        return 0
    sizes = {buffer.index: footprint(buffer.size, slack) for buffer in buffers}
    alive = _alive(buffers, max(buffer.last for buffer in buffers), slack)
    enough = max(alive) * NEAR_ENOUGH
    largest_first = sorted(buffers, key=lambda item: (-item.size, item.first))
    by_breadth = sorted(buffers, key=lambda item: (-max(alive[item.first : item.last + 1]), -item.size, item.first))
    best_top, best, order = _placed(largest_first, sizes)
    rounds = MOST_WORK // len(buffers) ** 2
    if best_top > enough and rounds > 0:
        found = _placed(by_breadth, sizes)
        if found[0] < best_top:
            best_top, best, order = found
    top, offsets = best_top, best
    for _ in range(rounds):
        if best_top <= enough:
            break
        highest = max(order, key=lambda item: offsets[item.index] + sizes[item.index])
        position = order.index(highest)
        if position == 0:
            break
        order = [highest, *order[:position], *order[position + 1 :]]
        top, offsets, order = _placed(order, sizes)
        if top < best_top:
            best_top, best = top, offsets
    for buffer in buffers:
        buffer.arena_offset = best[buffer.index]
    return best_top


def _placed(order: list[Buffer], sizes: dict[int, int]) -> tuple[int, dict[int, int], list[Buffer]]:
    """Size of the arena and offsets by index of the buffer when buffers are placed in this order, and the order."""
    offsets: dict[int, int] = {}
    placed: list[Buffer] = []
    top = 0
    for buffer in order:
        size, first, last = sizes[buffer.index], buffer.first, buffer.last
        busy = sorted(
            [
                (offsets[other.index], sizes[other.index])
                for other in placed
                if other.first <= last and first <= other.last
            ]
        )
        smallest, start, end = -1, 0, 0
        for offset, length in busy:
            gap = offset - end
            if gap >= size and (smallest < 0 or gap < smallest):
                smallest, start = gap, end
            end = max(end, offset + length)
        offsets[buffer.index] = start = end if smallest < 0 else start
        top = max(top, start + size)
        placed.append(buffer)
    return top, offsets, order


def _alive(buffers: Sequence[Buffer], steps: int, slack: int) -> list[int]:
    """Bytes that are alive at each step."""
    change = [0] * (steps + 2)
    for buffer in buffers:
        change[buffer.first] += footprint(buffer.size, slack)
        change[buffer.last + 1] -= footprint(buffer.size, slack)
    found, total = [], 0
    for delta in change:
        total += delta
        found.append(total)
    return found
