"""Forms of an output [1, N, 5 + classes] with one box per cell: YOLOv6, YOLOX and others have the same shape."""

from __future__ import annotations

import enum

import numpy as np

from tpuconvert.outputs.grids import all_cells, find_strides
from tpuconvert.samples.preprocess import Preprocess
from tpuconvert.schema.types import Array

_SMALLEST_CORRELATION = 0.8
"""Smallest correlation of the centers of boxes with the centers of their cells, if boxes are relative to the input.
Offsets from the cell do not depend on its position."""


class Form(enum.Enum):
    """Meaning of the first five columns."""

    WITHOUT_OBJECTNESS = "without objectness"
    """The fifth column is constant (YOLOv6)."""
    OFFSETS = "offsets"
    """Boxes are relative to their cells (YOLOX)."""
    DECODED = "decoded"
    """Boxes are relative to the input."""


def form_of(array: Array, rule: Preprocess) -> Form | None:
    """Return the form of an output [1, N, 5 + classes]; None if N is not the number of cells."""
    strides = find_strides(rule.size, array.shape[1])
    if strides is None:
        return None
    assert rule.size is not None
    rows = array[0].astype(np.float64)
    if np.ptp(rows[:, 4]) == 0.0:
        return Form.WITHOUT_OBJECTNESS if rows[0, 4] != 0.0 else Form.OFFSETS
    cells = all_cells(rule.size, [(stride, 1) for stride in strides])
    is_decoded = all(_correlation(rows[:, axis], cells.centers[:, axis]) > _SMALLEST_CORRELATION for axis in (0, 1))
    return Form.DECODED if is_decoded else Form.OFFSETS


def _correlation(first: Array, second: Array) -> float:
    spread = float(np.std(first) * np.std(second))
    return float(np.mean((first - first.mean()) * (second - second.mean()))) / spread if spread > 0.0 else 0.0
