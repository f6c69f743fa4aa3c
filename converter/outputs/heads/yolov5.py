"""Head of YOLOv5 and other networks with objectness and boxes of the whole input."""

from __future__ import annotations

from tpuconvert.outputs.detector import OneOutput, above
from tpuconvert.outputs.grids import find_strides, in_pixels
from tpuconvert.outputs.head import Outputs, register_head
from tpuconvert.outputs.objectness import Form, form_of
from tpuconvert.samples.preprocess import Preprocess
from tpuconvert.schema.arithmetic.boxes import Detections, corners_of
from tpuconvert.schema.types import Array

_ANCHORS = 3
"""Boxes per cell of each grid."""


@register_head("yolov5")
class YoloV5(OneOutput):
    """[1, N, 5 + C] of YOLOv5 and v7: center x, center y, width, height, objectness, scores of C classes."""

    recognized = "with three boxes per cell of the strides 8, 16, 32 and perhaps 64, or one box in pixels"
    form, rank, class_axis, before_classes = "[1, N, 5 + classes]", 3, 2, 5

    def matches(self, outputs: Outputs, rule: Preprocess) -> bool:
        """Return True for three boxes per cell, or for one whose center is in its surroundings."""
        array = self.array(outputs)
        if array is None:
            return False
        return find_strides(rule.size, array.shape[1], _ANCHORS) is not None or form_of(array, rule) is Form.DECODED

    def detections(self, array: Array, size: tuple[int, int], min_score: float) -> Detections:
        """Return the boxes whose objectness times score of the class is sufficient."""
        boxes = in_pixels(array[:, :4], size)
        return above(corners_of(boxes[:, :2], boxes[:, 2:]), array[:, 4:5] * array[:, 5:], min_score)
