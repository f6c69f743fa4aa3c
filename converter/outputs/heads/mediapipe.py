"""Heads of the detectors of MediaPipe, whose boxes are relative to anchors in the cells of grids.

Source: https://github.com/google-ai-edge/mediapipe, ``SsdAnchorsCalculator`` and ``TensorsToDetectionsCalculator`` with
the options of ``face_detection``, ``palm_detection`` and ``pose_detection``.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from tpuconvert.outputs.detector import BoxHead, above, unsuitable
from tpuconvert.outputs.grids import Cells, all_cells
from tpuconvert.outputs.head import Outputs, register_head
from tpuconvert.samples.preprocess import Preprocess
from tpuconvert.schema.arithmetic.boxes import Detections, corners_of
from tpuconvert.schema.types import Array

_LAYERS = (((4, 1),), ((8, 2), (16, 6)), ((16, 2), (32, 6)), ((8, 2), (16, 2), (32, 6)))
"""Stride and number of anchors per cell, by grid: of faces in the full range, of faces in the short range and palms, of
faces of the back camera, and of poses."""

_LARGEST_LOGIT = 100.0


class _MediaPipeHead(BoxHead):
    points: ClassVar[int]
    """Number of keypoints."""

    def matches(self, outputs: Outputs, rule: Preprocess) -> bool:
        """Return True for boxes with this number of keypoints beside one score for each anchor."""
        tables = self._tables(outputs)
        assert rule.size is not None
        return tables is not None and _anchors(rule.size, len(tables[0])) is not None

    def candidates(self, outputs: Outputs, size: tuple[int, int], min_score: float) -> Detections:
        """Return the boxes with their keypoints."""
        tables = self._tables(outputs)
        anchors = None if tables is None else _anchors(size, len(tables[0]))
        if tables is None or anchors is None:
            columns = 4 + 2 * self.points
            raise unsuitable(f"[1, N, {columns}] and [1, N, 1] with one row per anchor", outputs)
        rows, logits = tables
        scores = 1 / (1 + np.exp(-np.clip(logits, -_LARGEST_LOGIT, _LARGEST_LOGIT)))
        points = rows[:, 4:].reshape(len(rows), -1, 2) + anchors.centers[:, np.newaxis]
        return above(corners_of(rows[:, :2] + anchors.centers, rows[:, 2:4]), scores, min_score, points)

    def _tables(self, outputs: Outputs) -> tuple[Array, Array] | None:
        """Return boxes with keypoints [N, 4 + 2 * points] and logits [N, 1]."""
        tables = {array.shape[2]: array[0] for array in outputs.values() if array.ndim == 3 and len(array) == 1}
        width = 4 + 2 * self.points
        if len(outputs) != 2 or set(tables) != {width, 1} or len(tables[width]) != len(tables[1]):
            return None
        return tables[width].astype(np.float64), tables[1].astype(np.float64)


def _anchors(size: tuple[int, int], count: int) -> Cells | None:
    """Return the cells of the anchors; None if no network has that many."""
    for layers in _LAYERS:
        cells = all_cells(size, layers)
        if len(cells.corners) == count:
            return cells
    return None


@register_head("mediapipe_face")
class MediaPipeFace(_MediaPipeHead):
    """Box and six keypoints [1, N, 16] in pixels from the anchor, and logits [1, N, 1]."""

    recognized = "with the number of its anchors"
    class_names = ("face",)
    points = 6


@register_head("mediapipe_palm")
class MediaPipePalm(_MediaPipeHead):
    """Box and seven keypoints [1, N, 18] in pixels from the anchor, and logits [1, N, 1]."""

    recognized = "with the number of its anchors"
    class_names = ("palm",)
    points = 7


@register_head("mediapipe_pose")
class MediaPipePose(_MediaPipeHead):
    """Box of the face and four keypoints [1, N, 12] in pixels from the anchor, and logits [1, N, 1]."""

    recognized = "with the number of its anchors"
    class_names = ("person",)
    points = 4
