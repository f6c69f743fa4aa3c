"""Head of YOLOv8 and later networks without objectness."""

from __future__ import annotations

from tpuconvert.outputs.detector import BoxHead, above, cell_count, only_output
from tpuconvert.outputs.head import Outputs, output_head
from tpuconvert.samples.preprocess import Preprocess
from tpuconvert.schema.arithmetic.boxes import Detections, corners_of

_BEFORE_CLASSES = 4
"""Values of a column before the scores of the classes: center and size."""


@output_head("yolov8")
class YoloV8(BoxHead):
    """[1, 4 + C, N]: center x, center y, width, height in pixels of the input, scores of C classes."""

    recognized = "with the number of boxes of the strides 8, 16 and 32"

    def matches(self, outputs: Outputs, rule: Preprocess) -> bool:
        """Return True for a single output with one box per cell."""
        assert rule.size is not None
        shapes = [array.shape for array in outputs.values()]
        return len(shapes) == 1 and _is_columns(shapes[0][1:]) and shapes[0][2] == cell_count(rule.size)

    def classes(self, outputs: Outputs, rule: Preprocess) -> int | None:
        """Return the number of scores of a column."""
        shapes = [array.shape for array in outputs.values()]
        return int(shapes[0][1]) - _BEFORE_CLASSES if len(shapes) == 1 else None

    def candidates(self, outputs: Outputs, size: tuple[int, int], min_score: float) -> Detections:
        """Return the boxes with a sufficient score."""
        rows = only_output(outputs, _is_columns, "[1, 4 + classes, N]").T
        return above(corners_of(rows[:, :2], rows[:, 2:4]), rows[:, _BEFORE_CLASSES:], min_score)


def _is_columns(shape: tuple[int, ...]) -> bool:
    return len(shape) == 2 and shape[0] > _BEFORE_CLASSES
