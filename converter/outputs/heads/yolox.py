"""Head of YOLOX in its ONNX export without ``decode_in_inference``.

Source: https://github.com/Megvii-BaseDetection/YOLOX, function ``demo_postprocess``.
"""

from __future__ import annotations

from tpuconvert.outputs.detector import OneOutput, above, unsuitable
from tpuconvert.outputs.grids import all_cells, find_strides
from tpuconvert.outputs.head import Outputs, register_head
from tpuconvert.outputs.objectness import Form, form_of
from tpuconvert.samples.preprocess import Preprocess
from tpuconvert.schema.arithmetic.boxes import Detections, boxes_in_cells
from tpuconvert.schema.types import Array


@register_head("yolox")
class YoloX(OneOutput):
    """[1, N, 5 + C]: center and logarithm of the extents in cells, objectness, scores of C classes."""

    recognized = "with one box per cell of the strides 8, 16, 32 and perhaps 64, relative to the cell"
    form, rank, class_axis, before_classes = "[1, cells, 5 + classes]", 3, 2, 5

    def matches(self, outputs: Outputs, rule: Preprocess) -> bool:
        """Return True for one box per cell whose center does not depend on the position of the cell."""
        array = self.array(outputs)
        return array is not None and form_of(array, rule) is Form.OFFSETS

    def detections(self, array: Array, size: tuple[int, int], min_score: float) -> Detections:
        """Return the boxes whose objectness times score of the class is sufficient."""
        strides = find_strides(size, len(array))
        if strides is None:
            raise unsuitable(f"one box per cell for an input {list(size)}", {"": array})
        cells = all_cells(size, [(stride, 1) for stride in strides])
        boxes = boxes_in_cells(array[:, :4], cells.corners, cells.strides)
        return above(boxes, array[:, 4:5] * array[:, 5:], min_score)
