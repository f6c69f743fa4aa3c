"""Searches for small sets for which a test is true."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def smallest_end(count: int, test: Callable[[int], bool]) -> int:
    """Return a small ``n`` for which ``test(n)`` is true, by bisection. ``test(count)`` is known to be true.

    It is the smallest one if the test is monotone.
    """
    low, high = 0, count
    while high - low > 1:
        middle = (low + high) // 2
        if test(middle):
            high = middle
        else:
            low = middle
    return high


def minimize(items: Sequence[T], test: Callable[[list[T]], bool]) -> list[T]:
    """Remove as many items as possible while the test is true for the remaining ones (delta debugging).

    Parts of half the length are removed first, then of a quarter, and so on. At the end no single item can be removed.

    Args:
        items: items for which the test is true.
        test: called with a sublist that is not empty.

    """
    remaining = list(items)
    size = max(1, len(remaining) // 2)
    while len(remaining) > 1:
        removed = False
        start = 0
        while start < len(remaining):
            rest = remaining[:start] + remaining[start + size :]
            if rest and test(rest):
                remaining, removed = rest, True
            else:
                start += size
        if size == 1 and not removed:
            break
        size = max(1, min(size, len(remaining)) // 2) if size > 1 else 1
    return remaining


def largest_change(items: Sequence[T], test: Callable[[list[T]], bool]) -> list[T]:
    """Find many items that a change accepts together: all, or else the halves, quarters and so on that can be added."""
    accepted: list[T] = []

    def add(part: Sequence[T]) -> None:
        if test([*accepted, *part]):
            accepted.extend(part)
        elif len(part) > 1:
            middle = len(part) // 2
            add(part[:middle])
            add(part[middle:])

    if items:
        add(items)
    return accepted
