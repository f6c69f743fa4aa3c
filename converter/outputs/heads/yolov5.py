"""Head of YOLOv5 and later networks with objectness."""

from __future__ import annotations

from tpuconvert.outputs.detector import OneOutput, above, cell_count
from tpuconvert.outputs.head import Outputs, register_head
from tpuconvert.samples.preprocess import Preprocess
from tpuconvert.schema.arithmetic.boxes import Detections, corners_of
from tpuconvert.schema.types import Array

_ANCHORS = 3
"""Boxes per cell of each grid."""


@register_head("yolov5")
class YoloV5(OneOutput):
    """[1, N, 5 + C]: center x, center y, width, height in pixels of the input, objectness, scores of C classes."""

    recognized = "with the number of boxes of the strides 8, 16 and 32"
    form, rank, class_axis, before_classes = "[1, N, 5 + classes]", 3, 2, 5

    def matches(self, outputs: Outputs, rule: Preprocess) -> bool:
        """Return True for three boxes per cell."""
        array = self.array(outputs)
        return array is not None and array.shape[1] == _ANCHORS * cell_count(rule)

    def detections(self, array: Array, size: tuple[int, int], min_score: float) -> Detections:
        """Return the boxes whose objectness times score of the class is sufficient."""
        return above(corners_of(array[:, :2], array[:, 2:4]), array[:, 4:5] * array[:, 5:], min_score)
