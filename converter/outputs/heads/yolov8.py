"""Head of YOLOv8 and later networks without objectness."""

from __future__ import annotations

from tpuconvert.outputs.detector import OneOutput, above
from tpuconvert.outputs.grids import find_strides, in_pixels
from tpuconvert.outputs.head import Outputs, register_head
from tpuconvert.samples.preprocess import Preprocess
from tpuconvert.schema.arithmetic.boxes import Detections, corners_of
from tpuconvert.schema.types import Array

LARGEST_SCORE = 1.5
"""Largest value of scores of classes; coordinates of keypoints are larger."""


@register_head("yolov8")
class YoloV8(OneOutput):
    """[1, 4 + C, N] of YOLOv8 and v11: center x, center y, width, height, scores of C classes."""

    recognized = "with one box per cell of the strides 8, 16, 32 and perhaps 64"
    form, rank, class_axis, before_classes = "[1, 4 + classes, N]", 3, 1, 4

    def matches(self, outputs: Outputs, rule: Preprocess) -> bool:
        """Return True for one box per cell, with scores."""
        array = self.array(outputs)
        if array is None or find_strides(rule.size, array.shape[2]) is None:
            return False
        return bool((array[0, 4:] <= LARGEST_SCORE).all())

    def detections(self, array: Array, size: tuple[int, int], min_score: float) -> Detections:
        """Return the boxes with a sufficient score."""
        boxes = in_pixels(array[:4].T, size)
        return above(corners_of(boxes[:, :2], boxes[:, 2:]), array[4:].T, min_score)
