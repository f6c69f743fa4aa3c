"""Grids of detectors: positions of the cells, and boxes that are relative to them or to the size of the input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tpuconvert.outputs.detector import scale_of
from tpuconvert.schema.types import Array

STRIDES = (8, 16, 32)
"""Strides of the grids of most detectors, which determine their number of boxes."""

_STRIDES_OF_LARGE_INPUTS = (*STRIDES, 64)
"""Strides of the networks with a fourth grid, such as YOLOv5l6."""

_LARGEST_SHARE = 2.0
"""Largest coordinate of a center that is a share of the input; a center in pixels is larger."""


@dataclass(frozen=True)
class Cells:
    """Cells of all grids, row by row, grid after grid.

    Args:
        corners: x and y of the left upper corner of each cell in pixels, [N, 2].
        strides: width of each cell, [N, 1].

    """

    corners: Array
    strides: Array

    @property
    def centers(self) -> Array:
        """Return x and y of the center of each cell in pixels, [N, 2]."""
        centers: Array = self.corners + self.strides / 2
        return centers


def cells_of(height: int, width: int) -> Array:
    """Return (column, row) of every cell of a grid, row by row, [height * width, 2]."""
    rows, columns = np.divmod(np.arange(height * width), width)
    return np.stack([columns, rows], axis=1)


def extents_of(size: tuple[int, int], stride: int) -> tuple[int, int]:
    """Return (rows, columns) of the grid of a stride, for an input (height, width)."""
    return -(-size[0] // stride), -(-size[1] // stride)


def find_strides(size: tuple[int, int] | None, count: int, boxes: int = 1) -> tuple[int, ...] | None:
    """Return the strides whose grids have ``count`` boxes together, or None.

    Args:
        size: (height, width) of the input.
        count: number of all boxes.
        boxes: number of boxes per cell.

    """
    assert size is not None
    for strides in (STRIDES, _STRIDES_OF_LARGE_INPUTS):
        if count == boxes * sum(rows * columns for rows, columns in (extents_of(size, item) for item in strides)):
            return strides
    return None


def all_cells(size: tuple[int, int], layers: Sequence[tuple[int, int]]) -> Cells:
    """Return the cells of grids, each repeated for every box in it.

    Args:
        size: (height, width) of the input.
        layers: stride and number of boxes per cell, by grid.

    """
    tables = [(np.repeat(cells_of(*extents_of(size, stride)), boxes, axis=0), stride) for stride, boxes in layers]
    corners = np.concatenate([cells * stride for cells, stride in tables]).astype(np.float64)
    strides = np.concatenate([np.full((len(cells), 1), stride) for cells, stride in tables]).astype(np.float64)
    return Cells(corners, strides)


def in_pixels(boxes: Array, size: tuple[int, int]) -> Array:
    """Return boxes in pixels of the input: exports for TFLite divide them by its size.

    Args:
        boxes: [N, K], x and y in turn.
        size: (height, width) of the input.

    """
    finite = boxes[np.isfinite(boxes)]
    is_share = finite.size > 0 and finite.max() <= _LARGEST_SHARE
    scaled: Array = boxes * np.tile(scale_of(size)[:2], boxes.shape[1] // 2) if is_share else boxes
    return scaled
