"""Recognition of arrays whose axes are in a different order from the axes of an input."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

_MOST_AXES = 6
"""Largest rank whose orders are tried."""

_CHANNELS_LAST = {3: "NLC", 4: "NHWC", 5: "NDHWC"}
_CHANNELS_FIRST = {3: "NCL", 4: "NCHW", 5: "NCDHW"}


class AxisOrder(NamedTuple):
    """Order of the axes of an array that does not fit an input.

    Args:
        mismatch: text for the message.
        hint: next step.
    """

    mismatch: str
    hint: str


def axis_order(shape: Sequence[int], expected: Sequence[int | str]) -> AxisOrder | None:
    """Return the order in which the axes of an array fit an input; None if there is none, or no axis would move.

    Args:
        shape: extents of the array, with or without the axis of the batch.
        expected: extents of the input; names are symbolic ones.
    """
    rank = len(expected)
    start = rank - len(shape)  # 1 if the array is one sample without the axis of the batch
    if start not in (0, 1) or not 3 <= rank <= _MOST_AXES:
        return None
    first = 1 - start  # the first axis of the array that may move
    axes = range(first, len(shape))
    last_to_front = (axes[-1], *axes[:-1])
    front_to_last = (*axes[1:], axes[0])
    for order in (last_to_front, front_to_last, *itertools.permutations(axes)):
        moved = [shape[axis] for axis in order]
        if order == tuple(axes) or not _fit(moved, expected[1:]):
            continue
        call = f"numpy.transpose(array, {(*range(first), *order)})"
        if order == last_to_front and rank in _CHANNELS_LAST:
            have, want = _CHANNELS_LAST[rank], _CHANNELS_FIRST[rank]
        elif order == front_to_last and rank in _CHANNELS_LAST:
            have, want = _CHANNELS_FIRST[rank], _CHANNELS_LAST[rank]
        else:
            return AxisOrder("its axes are transposed", f"transpose it: {call}")
        mismatch = f"it is transposed, its axes are in the order {have[start:]} and the axes of the input {want}"
        return AxisOrder(mismatch, f"transpose it: {call}")
    return None


def _fit(shape: Sequence[int], expected: Sequence[int | str]) -> bool:
    return all(isinstance(want, str) or have == want for have, want in zip(shape, expected, strict=True))
