"""Head of YOLOv6, whose objectness is the constant 1.

Source: https://github.com/meituan/YOLOv6, ``yolov6/models/effidehead.py``.
"""

from __future__ import annotations

from tpuconvert.outputs.detector import OneOutput, above
from tpuconvert.outputs.grids import in_pixels
from tpuconvert.outputs.head import Outputs, register_head
from tpuconvert.outputs.objectness import Form, form_of
from tpuconvert.samples.preprocess import Preprocess
from tpuconvert.schema.arithmetic.boxes import Detections, corners_of
from tpuconvert.schema.types import Array


@register_head("yolov6")
class YoloV6(OneOutput):
    """[1, N, 5 + C]: center x, center y, width, height, a constant, scores of C classes."""

    recognized = "with one box per cell of the strides 8, 16, 32 and perhaps 64, and the same objectness everywhere"
    form, rank, class_axis, before_classes = "[1, N, 5 + classes]", 3, 2, 5

    def matches(self, outputs: Outputs, rule: Preprocess) -> bool:
        """Return True for one box per cell with a constant objectness."""
        array = self.array(outputs)
        return array is not None and form_of(array, rule) is Form.WITHOUT_OBJECTNESS

    def detections(self, array: Array, size: tuple[int, int], min_score: float) -> Detections:
        """Return the boxes with a sufficient score."""
        boxes = in_pixels(array[:, :4], size)
        return above(corners_of(boxes[:, :2], boxes[:, 2:]), array[:, 5:], min_score)
