"""Head of FastestDet."""

from __future__ import annotations

import numpy as np

from tpuconvert.outputs.detector import OneOutput, above, scale_of
from tpuconvert.outputs.grids import cells_of
from tpuconvert.outputs.head import register_head
from tpuconvert.schema.arithmetic.boxes import Detections, corners_of
from tpuconvert.schema.types import Array


@register_head("fastestdet")
class FastestDet(OneOutput):
    """[1, 5 + C, rows, columns]: objectness, box relative to the cell, scores of C classes."""

    form, rank, class_axis, before_classes = "[1, 5 + classes, rows, columns]", 4, 1, 5

    def detections(self, array: Array, size: tuple[int, int], min_score: float) -> Detections:
        """Return the detections. A cell detects the class with the highest score only."""
        height, width = array.shape[1:]
        cells = array.reshape(len(array), -1).T
        center = (np.tanh(cells[:, 1:3]) + cells_of(height, width)) / (width, height)
        boxes = corners_of(center, 1 / (1 + np.exp(-cells[:, 3:5])))
        best = cells[:, 5:] == cells[:, 5:].max(axis=1, keepdims=True)
        scores = np.clip(cells[:, :1], 0, None) ** 0.6 * np.clip(cells[:, 5:], 0, None) ** 0.4 * best
        return above(boxes * scale_of(size), scores, min_score)
