"""Head of SSD networks of the TensorFlow Object Detection API, whose TFLite file ends in the custom operator.

Source: https://github.com/tensorflow/tensorflow, ``tensorflow/lite/kernels/detection_postprocess.cc``.
"""

from __future__ import annotations

import numpy as np

from tpuconvert.outputs.detector import BoxHead, scale_of, unsuitable
from tpuconvert.outputs.head import Outputs, register_head
from tpuconvert.samples.preprocess import Preprocess
from tpuconvert.schema.arithmetic.boxes import Detections
from tpuconvert.schema.types import Array


@register_head("tflite_detection")
class TfliteDetection(BoxHead):
    """Boxes [1, N, 4] (top, left, bottom, right from 0 to 1), classes [1, N], scores [1, N] and their number."""

    recognized = "yes"
    suppresses = True

    def matches(self, outputs: Outputs, rule: Preprocess) -> bool:
        """Return True for outputs of these shapes."""
        return _tables(outputs) is not None

    def candidates(self, outputs: Outputs, size: tuple[int, int], min_score: float) -> Detections:
        """Return the boxes with a sufficient score."""
        tables = _tables(outputs)
        if tables is None:
            raise unsuitable("boxes [1, N, 4], classes [1, N], scores [1, N] and a number", outputs)
        boxes, first, second, count = tables
        is_whole = [bool((values == np.round(values)).all()) for values in (first, second)]
        # Names and order depend on the exporter. Scores are not whole numbers, unless nothing was found.
        classes, scores = (first, second) if is_whole[0] else (second, first)
        valid = (np.arange(len(scores)) < count) & (scores >= min_score)
        corners = boxes[:, [1, 0, 3, 2]] * scale_of(size)
        return Detections(corners[valid], scores[valid], classes[valid].astype(np.int64))


def _tables(outputs: Outputs) -> tuple[Array, Array, Array, float] | None:
    """Return boxes [N, 4], two lists [N] and the number of valid rows; None if the shapes are other ones."""
    boxes = [array for array in outputs.values() if array.ndim == 3 and len(array) == 1 and array.shape[2] == 4]
    if len(outputs) != 4 or len(boxes) != 1 or boxes[0].shape[1] < 2:
        return None
    lists = [array for array in outputs.values() if array.shape == boxes[0].shape[:2]]
    counts = [array for array in outputs.values() if array.size == 1]
    if len(lists) != 2 or len(counts) != 1:
        return None
    first, second = (array[0].astype(np.float64) for array in lists)
    return boxes[0][0].astype(np.float64), first, second, float(counts[0].item())
