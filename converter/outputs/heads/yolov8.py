"""Head of YOLOv8 and later networks without objectness."""

from __future__ import annotations

from tpuconvert.outputs.detector import OneOutput, above, cell_count
from tpuconvert.outputs.head import Outputs, register_head
from tpuconvert.samples.preprocess import Preprocess
from tpuconvert.schema.arithmetic.boxes import Detections, corners_of
from tpuconvert.schema.types import Array


@register_head("yolov8")
class YoloV8(OneOutput):
    """[1, 4 + C, N]: center x, center y, width, height in pixels of the input, scores of C classes."""

    recognized = "with the number of boxes of the strides 8, 16 and 32"
    form, rank, class_axis, before_classes = "[1, 4 + classes, N]", 3, 1, 4

    def matches(self, outputs: Outputs, rule: Preprocess) -> bool:
        """Return True for one box per cell."""
        array = self.array(outputs)
        return array is not None and array.shape[2] == cell_count(rule)

    def detections(self, array: Array, size: tuple[int, int], min_score: float) -> Detections:
        """Return the boxes with a sufficient score."""
        return above(corners_of(array[:2].T, array[2:4].T), array[4:].T, min_score)
