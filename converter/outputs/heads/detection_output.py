"""Head of Caffe's layer DetectionOutput."""

from __future__ import annotations

import numpy as np

from tpuconvert.outputs.detector import BoxHead, only_output, scale_of
from tpuconvert.outputs.head import Outputs, output_head
from tpuconvert.samples.preprocess import Preprocess
from tpuconvert.schema.arithmetic.boxes import Detections

_COLUMNS = 7
"""Columns: image, class, score, left, top, right, bottom."""


@output_head("detection_output")
class DetectionOutput(BoxHead):
    """[1, 1, N, 7] of Caffe's `DetectionOutput`."""

    recognized = "yes"

    def matches(self, outputs: Outputs, rule: Preprocess) -> bool:
        """Return True for a single output [1, 1, N, 7]."""
        shapes = [array.shape for array in outputs.values()]
        return len(shapes) == 1 and len(shapes[0]) == 4 and shapes[0][:2] == (1, 1) and shapes[0][3] == _COLUMNS

    def candidates(self, outputs: Outputs, size: tuple[int, int], min_score: float) -> Detections:
        """Return the rows with a sufficient score. Class 0 is the background; a row without detection has image -1."""
        rows = only_output(outputs, lambda shape: shape[-1] == _COLUMNS, "[1, 1, N, 7]").reshape(-1, _COLUMNS)
        rows = rows[(rows[:, 0] >= 0) & (rows[:, 1] >= 1) & (rows[:, 2] >= min_score)]
        return Detections(rows[:, 3:] * scale_of(size), rows[:, 2], rows[:, 1].astype(np.int64) - 1)
