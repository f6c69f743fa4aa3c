"""Offsets for buffers that share one arena."""

from __future__ import annotations

from collections.abc import Sequence

from tpuconvert.runtime.native.storage import Buffer

ALIGNMENT = 64


def footprint(size: int, slack: int) -> int:
    """Bytes that a buffer takes in the arena."""
    return -(-(size + slack) // ALIGNMENT) * ALIGNMENT


def lower_bound(buffers: Sequence[Buffer], steps: int, slack: int) -> int:
    """The most bytes that are alive at one step: no arena can be smaller."""
    change = [0] * (steps + 2)
    for buffer in buffers:
        change[buffer.first] += footprint(buffer.size, slack)
        change[buffer.last + 1] -= footprint(buffer.size, slack)
    most = alive = 0
    for delta in change:
        alive += delta
        most = max(most, alive)
    return most


def place(buffers: Sequence[Buffer], slack: int) -> int:
    """Give every buffer an offset so that buffers alive at the same step do not overlap.

    Largest first; each goes into the smallest gap that is big enough between those placed before it, or behind them.

    Returns:
        The size of the arena in bytes.
    """
    placed: list[Buffer] = []
    top = 0
    for buffer in sorted(buffers, key=lambda item: (-item.size, item.first)):
        size = footprint(buffer.size, slack)
        busy = sorted(
            (other.arena_offset, other.arena_offset + footprint(other.size, slack))
            for other in placed
            if other.first <= buffer.last and buffer.first <= other.last
        )
        best: tuple[int, int] | None = None
        end = 0
        for start, stop in busy:
            gap = start - end
            if gap >= size and (best is None or gap < best[0]):
                best = (gap, end)
            end = max(end, stop)
        buffer.arena_offset = end if best is None else best[1]
        top = max(top, buffer.arena_offset + size)
        placed.append(buffer)
    return top
