"""Head of YOLOv8 and later networks for poses: boxes of persons with keypoints."""

from __future__ import annotations

from tpuconvert.outputs.detector import OneOutput, above
from tpuconvert.outputs.grids import find_strides
from tpuconvert.outputs.head import Outputs, register_head
from tpuconvert.outputs.heads.yolov8 import LARGEST_SCORE
from tpuconvert.samples.preprocess import Preprocess
from tpuconvert.schema.arithmetic.boxes import Detections, corners_of
from tpuconvert.schema.types import Array

_BEFORE_POINTS = 5
"""Center, size and score."""


@register_head("yolov8_pose")
class YoloV8Pose(OneOutput):
    """[1, 5 + 3 K, N]: center x, center y, width, height, score; x, y and visibility of K keypoints."""

    recognized = "with one box per cell of the strides 8, 16, 32 and perhaps 64, and keypoints in pixels"
    class_names = ("person",)
    form, rank = "[1, 5 + 3 * points, N]", 3

    def array(self, outputs: Outputs) -> Array | None:
        """Return the only output, or None if its shape is another one."""
        array = super().array(outputs)
        has_points = array is not None and array.shape[1] > _BEFORE_POINTS and array.shape[1] % 3 == 2
        return array if has_points else None

    def matches(self, outputs: Outputs, rule: Preprocess) -> bool:
        """Return True for one box per cell, with values that are too large for scores."""
        array = self.array(outputs)
        if array is None or find_strides(rule.size, array.shape[2]) is None:
            return False
        return bool((array[0, _BEFORE_POINTS:] > LARGEST_SCORE).any())

    def detections(self, array: Array, size: tuple[int, int], min_score: float) -> Detections:
        """Return the boxes with a sufficient score, and all of their keypoints."""
        rows = array.T
        points = rows[:, _BEFORE_POINTS:].reshape(len(rows), -1, 3)[:, :, :2]
        return above(corners_of(rows[:, :2], rows[:, 2:4]), rows[:, 4:_BEFORE_POINTS], min_score, points)
