"""Greedy decoding of text networks with a blank class (connectionist temporal classification)."""

from __future__ import annotations

import numpy as np

from tpuconvert.schema.types import Array


def blank_of(labels: Array, count: int | None) -> int:
    """Return the number of the blank class: the first one, or the last one if most steps without a character have it.

    The last class is a character in most networks, such as the space: it is the blank only from a quarter of the steps.

    Args:
        labels: classes of the steps.
        count: number of classes; None if it is not known, so that the blank is the first one.

    """
    if count is None:
        return 0
    first, last = np.count_nonzero(labels == 0), np.count_nonzero(labels == count - 1)
    return count - 1 if last > first and last >= len(labels) / 4 else 0


def collapse(labels: Array, blank: int) -> Array:
    """Return the numbers of the steps that are characters: repeats and blanks are left out."""
    is_first = np.concatenate([[True], labels[1:] != labels[:-1]])
    steps: Array = np.flatnonzero(is_first & (labels != blank))
    return steps
