"""Assignment of buffers to offsets in one arena."""

from __future__ import annotations

from collections.abc import Sequence

from tpuconvert.runtime.native.storage import Buffer

ALIGNMENT = 64
NEAR_ENOUGH = 1.05
"""The search stops when the arena is at most this multiple of the lower bound."""
MOST_WORK = 100_000
"""Maximum number of comparisons of two buffers, which bounds the planning time."""


def footprint(size: int, slack: int) -> int:
    """Size of a buffer in the arena, including slack and rounded up to the alignment."""
    return -(-(size + slack) // ALIGNMENT) * ALIGNMENT


def lower_bound(buffers: Sequence[Buffer], steps: int, slack: int) -> int:
    """Largest number of bytes that are live at one step. No arena can be smaller."""
    return max(live_bytes(buffers, steps, slack), default=0)


def place(buffers: Sequence[Buffer], slack: int) -> int:
    """Assign an offset to every buffer so that buffers with overlapping lifetimes do not overlap in memory.

    Best fit: each buffer goes to the smallest sufficient gap between the buffers placed before it, or to the end. Two
    orders are tried, by size and by the most live bytes during the lifetime. The better order is then refined:
    repeatedly, the buffer that determines the size of the arena is moved to the front.

    Returns:
        The size of the arena in bytes.
    """
    if not buffers:
        return 0
    sizes = {buffer.index: footprint(buffer.size, slack) for buffer in buffers}
    live = live_bytes(buffers, max(buffer.last for buffer in buffers), slack)
    enough = max(live) * NEAR_ENOUGH
    largest_first = sorted(buffers, key=lambda item: (-item.size, item.first))
    by_breadth = sorted(buffers, key=lambda item: (-max(live[item.first : item.last + 1]), -item.size, item.first))
    best_top, best, order = _assign_offsets(largest_first, sizes)
    rounds = MOST_WORK // len(buffers) ** 2
    if best_top > enough and rounds > 0:
        found = _assign_offsets(by_breadth, sizes)
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
        top, offsets, order = _assign_offsets(order, sizes)
        if top < best_top:
            best_top, best = top, offsets
    for buffer in buffers:
        buffer.arena_offset = best[buffer.index]
    return best_top


def _assign_offsets(order: list[Buffer], sizes: dict[int, int]) -> tuple[int, dict[int, int], list[Buffer]]:
    """Place buffers in the given order. Return the size of the arena, the offsets by buffer index, and the order."""
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


def live_bytes(buffers: Sequence[Buffer], steps: int, slack: int) -> list[int]:
    """Number of live bytes at each step, and 0 after the last ones."""
    change = [0] * (steps + 2)
    for buffer in buffers:
        change[buffer.first] += footprint(buffer.size, slack)
        change[buffer.last + 1] -= footprint(buffer.size, slack)
    found, total = [], 0
    for delta in change:
        total += delta
        found.append(total)
    return found
