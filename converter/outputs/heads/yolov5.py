"""Head of YOLOv5 and later networks with objectness."""

from __future__ import annotations

from tpuconvert.outputs.detector import BoxHead, above, cell_count, only_output
from tpuconvert.outputs.head import Outputs, output_head
from tpuconvert.samples.preprocess import Preprocess
from tpuconvert.schema.arithmetic.boxes import Detections, corners_of

_BEFORE_CLASSES = 5
"""Values of a row before the scores of the classes: center, size and objectness."""

_ANCHORS = 3
"""Boxes per cell of each grid."""


@output_head("yolov5")
class YoloV5(BoxHead):
    """[1, N, 5 + C]: center x, center y, width, height in pixels of the input, objectness, scores of C classes."""

    recognized = "with the number of boxes of the strides 8, 16 and 32"

    def matches(self, outputs: Outputs, rule: Preprocess) -> bool:
        """Return True for a single output with three boxes per cell."""
        assert rule.size is not None
        shapes = [array.shape for array in outputs.values()]
        return len(shapes) == 1 and _is_rows(shapes[0][1:]) and shapes[0][1] == _ANCHORS * cell_count(rule.size)

    def classes(self, outputs: Outputs, rule: Preprocess) -> int | None:
        """Return the number of scores of a row."""
        shapes = [array.shape for array in outputs.values()]
        return int(shapes[0][2]) - _BEFORE_CLASSES if len(shapes) == 1 else None

    def candidates(self, outputs: Outputs, size: tuple[int, int], min_score: float) -> Detections:
        """Return the boxes whose objectness times score of the class is sufficient."""
        rows = only_output(outputs, _is_rows, "[1, N, 5 + classes]")
        scores = rows[:, _BEFORE_CLASSES - 1 : _BEFORE_CLASSES] * rows[:, _BEFORE_CLASSES:]
        return above(corners_of(rows[:, :2], rows[:, 2:4]), scores, min_score)


def _is_rows(shape: tuple[int, ...]) -> bool:
    return len(shape) == 2 and shape[1] > _BEFORE_CLASSES
