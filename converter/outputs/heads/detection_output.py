"""Head of Caffe's layer DetectionOutput."""

from __future__ import annotations

import numpy as np

from tpuconvert.outputs.detector import OneOutput, scale_of
from tpuconvert.outputs.head import Outputs, register_head
from tpuconvert.samples.preprocess import Preprocess
from tpuconvert.schema.arithmetic.boxes import Detections
from tpuconvert.schema.types import Array


@register_head("detection_output")
class DetectionOutput(OneOutput):
    """[1, 1, N, 7] of Caffe's `DetectionOutput`."""

    recognized = "yes"
    form, rank = "[1, 1, N, 7]", 4

    def array(self, outputs: Outputs) -> Array | None:
        """Return the only output, or None if its shape is another one."""
        array = super().array(outputs)
        return array if array is not None and array.shape[1] == 1 and array.shape[3] == 7 else None

    def matches(self, outputs: Outputs, rule: Preprocess) -> bool:
        """Return True for this shape."""
        return self.array(outputs) is not None

    def detections(self, array: Array, size: tuple[int, int], min_score: float) -> Detections:
        """Return the rows of image, class, score and box. Class 0 is the background; no detection has the image -1."""
        rows = array[0]
        rows = rows[(rows[:, 0] >= 0) & (rows[:, 1] >= 1) & (rows[:, 2] >= min_score)]
        return Detections(rows[:, 3:] * scale_of(size), rows[:, 2], rows[:, 1].astype(np.int64) - 1)
