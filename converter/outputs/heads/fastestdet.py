"""Head of FastestDet."""

from __future__ import annotations

import numpy as np

from tpuconvert.outputs.detector import BoxHead, above, cells_of, only_output, scale_of
from tpuconvert.outputs.head import Outputs, output_head
from tpuconvert.samples.preprocess import Preprocess
from tpuconvert.schema.arithmetic.boxes import Detections, corners_of

_BEFORE_CLASSES = 5
"""Channels before the scores of the classes: objectness and box."""


@output_head("fastestdet")
class FastestDet(BoxHead):
    """[1, 5 + C, rows, columns]: objectness, box relative to the cell, scores of C classes."""

    def classes(self, outputs: Outputs, rule: Preprocess) -> int | None:
        """Return the number of channels with scores."""
        shapes = [array.shape for array in outputs.values()]
        return int(shapes[0][1]) - _BEFORE_CLASSES if len(shapes) == 1 else None

    def candidates(self, outputs: Outputs, size: tuple[int, int], min_score: float) -> Detections:
        """Return the detections. A cell detects the class with the highest score only."""
        grid = only_output(
            outputs, lambda shape: len(shape) == 3 and shape[0] > _BEFORE_CLASSES, "[1, 5 + classes, rows, columns]"
        )
        height, width = grid.shape[1:]
        cells = grid.reshape(len(grid), -1).T
        center = (np.tanh(cells[:, 1:3]) + cells_of(height, width)) / (width, height)
        boxes = corners_of(center, 1 / (1 + np.exp(-cells[:, 3:5])))
        kinds = cells[:, _BEFORE_CLASSES:]
        best = kinds == kinds.max(axis=1, keepdims=True)
        scores = np.clip(cells[:, :1], 0, None) ** 0.6 * np.clip(kinds, 0, None) ** 0.4 * best
        return above(boxes * scale_of(size), scores, min_score)
