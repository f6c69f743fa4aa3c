"""Wrong shapes and numbers that the systematic changes of models put in place of right ones."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

HUGE = 2**31 - 1
EXTENTS = (0, 1, HUGE, -1)
"""Extents that replace each extent of a shape."""

MOST_ELEMENTS = 1 << 14
"""A constant gets elements for its changed shape up to this size. Larger ones keep their bytes, which do not fit."""


def changed_shapes(shape: Sequence[int]) -> list[tuple[int, ...]]:
    """Return ranks and extents that differ from a shape."""
    old = tuple(shape)
    found = [(), (max(1, math.prod(old)),), (0,), (1, *old), (*old, 1), (*old, 2), old[:-1], old[1:]]
    found += [(1,) * 9, (2,) * len(old)]
    for axis in range(len(old)):
        found += [(*old[:axis], extent, *old[axis + 1 :]) for extent in (*EXTENTS, old[axis] + 1)]
    return [new for new in dict.fromkeys(found) if new != old]


def resized(array: Any, shape: Sequence[int]) -> Any:
    """Repeat or cut the elements of an array to a shape; None if it is not a shape or has too many elements."""
    if any(extent < 0 for extent in shape) or math.prod(shape) > MOST_ELEMENTS:
        return None
    if not array.size:
        return np.zeros(shape, array.dtype)
    return np.resize(array, shape)


def wrong_numbers(dtype: Any) -> list[int]:
    """Return integers of a type that are out of range as an axis, an extent, an index or a number of elements."""
    limits = np.iinfo(dtype)
    wanted = (0, 1, -1, -100, 100, HUGE, -(2**31), 2**62, limits.min, limits.max)
    return [number for number in dict.fromkeys(wanted) if limits.min <= number <= limits.max]


def changed_numbers(array: Any) -> Iterator[Any]:
    """Return a constant of integers with the first, the last or all of its elements replaced by wrong ones.

    The shapes include shapes of no element, of one element and of rank 0.
    """
    yield array.reshape(-1)[:0]
    yield array.reshape(-1)[:1]
    yield np.resize(array, ()) if array.size else np.zeros((), array.dtype)
    if array.size > 1:
        yield array.reshape(-1)[:-1]
        yield array.reshape(-1)[::-1].reshape(array.shape)
    for number in wrong_numbers(array.dtype):
        yield np.full(array.shape, number, array.dtype)
        for place in {0, array.size - 1} if array.size > 1 else ():
            changed = array.copy()
            changed.reshape(-1)[place] = number
            yield changed


def changed_list(numbers: Sequence[int]) -> list[list[int]]:
    """Return other lists than one of integers: none, one fewer, one more, and wrong elements."""
    old = list(numbers)
    found = [[], old[:-1], [*old, 1], old[::-1]]
    for number in (0, -1, -100, 100, HUGE, 2**62):
        found.append([number] * max(len(old), 1))
        found += [[*old[:place], number, *old[place + 1 :]] for place in sorted({0, len(old) - 1}) if old]
    return [list(new) for new in dict.fromkeys(map(tuple, found)) if list(new) != old]
