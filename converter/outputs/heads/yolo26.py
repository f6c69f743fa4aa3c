"""Head of networks that need no suppression: YOLO26, YOLOv10, and exports that contain it."""

from __future__ import annotations

import numpy as np

from tpuconvert.outputs.detector import OneOutput
from tpuconvert.outputs.grids import in_pixels
from tpuconvert.outputs.head import Outputs, register_head
from tpuconvert.samples.preprocess import Preprocess
from tpuconvert.schema.arithmetic.boxes import Detections
from tpuconvert.schema.types import Array

_COLUMNS = 6
_FEWEST, _MOST = 10, 1000
"""Smallest and largest number of rows that are recognized; usual are 300."""


@register_head("yolo26")
class Yolo26(OneOutput):
    """[1, N, 6] of YOLO26, YOLOv10 and exports with suppression: left, top, right, bottom, score, class number."""

    recognized = f"with {_FEWEST} to {_MOST:,} rows, sorted by score, with whole class numbers"
    suppresses = True
    form, rank = "[1, N, 6]", 3

    def array(self, outputs: Outputs) -> Array | None:
        """Return the only output, or None if its shape is another one."""
        array = super().array(outputs)
        return array if array is not None and array.shape[2] == _COLUMNS else None

    def matches(self, outputs: Outputs, rule: Preprocess) -> bool:
        """Return True for sorted scores beside whole numbers."""
        array = self.array(outputs)
        if array is None or not _FEWEST <= array.shape[1] <= _MOST:
            return False
        scores, classes = array[0, :, 4], array[0, :, 5]
        is_sorted = bool((np.diff(scores) <= 0).all() and (scores >= 0).all() and (scores <= 1).all())
        return is_sorted and bool((classes == np.round(classes)).all() and (classes >= 0).all())

    def detections(self, array: Array, size: tuple[int, int], min_score: float) -> Detections:
        """Return the rows with a sufficient score."""
        rows = array[array[:, 4] >= min_score]
        return Detections(in_pixels(rows[:, :4], size), rows[:, 4], rows[:, 5].astype(np.int64))
