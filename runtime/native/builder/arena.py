"""Assignment of buffers to offsets in one arena."""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Sequence
from typing import TypeAlias

from tpuconvert.runtime.native.builder.storage import Buffer

ALIGNMENT = 64
NEAR_ENOUGH = 1.05
"""The search stops when the arena is at most this multiple of the lower bound."""
MOST_WORK = 100_000
"""Maximum number of comparisons of two buffers in the search for a better order, which bounds the planning time."""
MOST_PAIRS = 1_000_000
"""Maximum number of pairs of buffers that are live at the same time. Beyond it, best fit in the order of time."""


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
    repeatedly, the buffer that determines the size of the arena is moved to the front. These orders take time for each
    pair of buffers that are live at the same time. With too many of them, the buffers are placed in the order in which
    they become live.

    Returns:
        The size of the arena in bytes.
    """
    if not buffers:
        return 0
    sizes = {buffer.index: footprint(buffer.size, slack) for buffer in buffers}
    live = live_bytes(buffers, max(buffer.last for buffer in buffers), slack)
    enough = max(live) * NEAR_ENOUGH
    together = _find_pairs(buffers)
    if together is None:
        best_top, best = _assign_in_time(buffers, sizes)
        for buffer in buffers:
            buffer.arena_offset = best[buffer.index]
        return best_top
    largest_first = sorted(buffers, key=lambda item: (-item.size, item.first))
    best_top, best, order = _assign_offsets(largest_first, sizes, together)
    rounds = MOST_WORK // len(buffers) ** 2
    if best_top > enough and rounds > 0:
        by_breadth = sorted(buffers, key=lambda item: (-max(live[item.first : item.last + 1]), -item.size, item.first))
        assignment = _assign_offsets(by_breadth, sizes, together)
        if assignment[0] < best_top:
            best_top, best, order = assignment
    top, offsets = best_top, best
    for _ in range(rounds):
        if best_top <= enough:
            break
        highest = max(order, key=lambda item: offsets[item.index] + sizes[item.index])
        position = order.index(highest)
        if position == 0:
            break
        order = [highest, *order[:position], *order[position + 1 :]]
        top, offsets, order = _assign_offsets(order, sizes, together)
        if top < best_top:
            best_top, best = top, offsets
    for buffer in buffers:
        buffer.arena_offset = best[buffer.index]
    return best_top


Together: TypeAlias = dict[int, list[int]]
"""Index of a buffer -> indices of the buffers that are live at one of its steps."""


def _find_pairs(buffers: Sequence[Buffer]) -> Together | None:
    """Return the buffers that are live together, or None if these are more than ``MOST_PAIRS`` pairs."""
    pairs_of: Together = {buffer.index: [] for buffer in buffers}
    live: list[tuple[int, int]] = []  # last step and index, a heap
    pairs = 0
    for buffer in sorted(buffers, key=lambda item: item.first):
        while live and live[0][0] < buffer.first:
            heapq.heappop(live)
        pairs += len(live)
        if pairs > MOST_PAIRS:
            return None
        others = [index for _, index in live]
        pairs_of[buffer.index] += others
        for index in others:
            pairs_of[index].append(buffer.index)
        heapq.heappush(live, (buffer.last, buffer.index))
    return pairs_of


def _assign_offsets(
    order: list[Buffer], sizes: dict[int, int], together: Together
) -> tuple[int, dict[int, int], list[Buffer]]:
    """Place buffers in the given order. Return the size of the arena, the offsets by buffer index, and the order."""
    offsets: dict[int, int] = {}
    top = 0
    for buffer in order:
        size = sizes[buffer.index]
        busy = sorted([(offsets[other], sizes[other]) for other in together[buffer.index] if other in offsets])
        smallest, start, end = -1, 0, 0
        for offset, length in busy:
            gap = offset - end
            if gap >= size and (smallest < 0 or gap < smallest):
                smallest, start = gap, end
            end = max(end, offset + length)
        offsets[buffer.index] = start = end if smallest < 0 else start
        top = max(top, start + size)
    return top, offsets, order


def _assign_in_time(buffers: Sequence[Buffer], sizes: dict[int, int]) -> tuple[int, dict[int, int]]:
    """Place buffers in the order in which they become live. Return the size of the arena and the offsets by index.

    Free memory is a list of blocks in the order of their sizes, and each block is known by its start and its end, so
    that a freed buffer is merged with its neighbors.
    """
    offsets: dict[int, int] = {}
    blocks: list[tuple[int, int]] = []  # size and start of each free block, sorted
    starts: dict[int, int] = {}  # start -> end of each free block
    ends: dict[int, int] = {}  # end -> start
    live: list[tuple[int, int]] = []  # last step and index, a heap
    top = 0

    def add(start: int, end: int) -> None:
        insort(blocks, (end - start, start))
        starts[start], ends[end] = end, start

    def remove(start: int, end: int) -> None:
        del blocks[bisect_left(blocks, (end - start, start))], starts[start], ends[end]

    for buffer in sorted(buffers, key=lambda item: (item.first, -item.size)):
        while live and live[0][0] < buffer.first:
            _, index = heapq.heappop(live)
            start = end = offsets[index]
            end += sizes[index]
            if end in starts:
                after = starts[end]
                remove(end, after)
                end = after
            if start in ends:
                before = ends[start]
                remove(before, start)
                start = before
            add(start, end)
        size = sizes[buffer.index]
        position = bisect_left(blocks, (size, 0))
        if position < len(blocks):
            _, start = blocks[position]
            end = starts[start]
            remove(start, end)
            if start + size < end:
                add(start + size, end)
        elif top in ends:  # the free block at the end grows
            start = ends[top]
            remove(start, top)
            top = start + size
        else:
            start, top = top, top + size
        offsets[buffer.index] = start
        heapq.heappush(live, (buffer.last, buffer.index))
    return top, offsets


def live_bytes(buffers: Sequence[Buffer], steps: int, slack: int) -> list[int]:
    """Number of live bytes at each step, and 0 after the last ones."""
    change = [0] * (steps + 2)
    for buffer in buffers:
        change[buffer.first] += footprint(buffer.size, slack)
        change[buffer.last + 1] -= footprint(buffer.size, slack)
    sizes, total = [], 0
    for delta in change:
        total += delta
        sizes.append(total)
    return sizes
