"""Head of RetinaFace and of the smaller networks with the same outputs.

Sources: https://github.com/biubug6/Pytorch_Retinaface and https://github.com/biubug6/Face-Detector-1MB-with-landmark,
class ``PriorBox``, functions ``decode`` and ``decode_landm``.
"""

from __future__ import annotations

import numpy as np

from tpuconvert.outputs.detector import BoxHead, above, unsuitable
from tpuconvert.outputs.grids import all_cells
from tpuconvert.outputs.head import Outputs, register_head
from tpuconvert.samples.preprocess import Preprocess
from tpuconvert.schema.arithmetic.boxes import Detections, boxes_in_cells
from tpuconvert.schema.types import Array

_WIDTHS = (4, 2, 10)
"""Columns of boxes, scores and landmarks."""

_PRIORS = (
    ((8, (16, 32)), (16, (64, 128)), (32, (256, 512))),
    ((8, (10, 16, 24)), (16, (32, 48)), (32, (64, 96)), (64, (128, 192, 256))),
)
"""Sides of the priors in pixels, by stride: of RetinaFace, and of its small versions."""

_VARIANCES = np.array([0.1, 0.1, 0.2, 0.2])


@register_head("retinaface")
class RetinaFace(BoxHead):
    """Boxes [1, N, 4], scores [1, N, 2] and five landmarks [1, N, 10], relative to the priors of RetinaFace."""

    recognized = "with the number of its priors"
    class_names = ("face",)

    def matches(self, outputs: Outputs, rule: Preprocess) -> bool:
        """Return True for outputs of these widths, with one row per prior."""
        tables = _tables(outputs)
        assert rule.size is not None
        return tables is not None and _priors(rule.size, len(tables[0])) is not None

    def candidates(self, outputs: Outputs, size: tuple[int, int], min_score: float) -> Detections:
        """Return the faces with their landmarks."""
        tables = _tables(outputs)
        priors = None if tables is None else _priors(size, len(tables[0]))
        if tables is None or priors is None:
            raise unsuitable("[1, N, 4], [1, N, 2] and [1, N, 10] with one row per prior", outputs)
        boxes, scores, landmarks = tables
        centers, extents = priors
        corners = boxes_in_cells(boxes * _VARIANCES, centers, extents)
        offsets = landmarks.reshape(len(landmarks), -1, 2) * _VARIANCES[:2]
        points = offsets * extents[:, np.newaxis] + centers[:, np.newaxis]
        return above(corners, _probabilities(scores)[:, 1:], min_score, points)


def _tables(outputs: Outputs) -> list[Array] | None:
    """Return boxes, scores and landmarks [N, columns]."""
    tables = {array.shape[2]: array[0] for array in outputs.values() if array.ndim == 3 and len(array) == 1}
    if len(outputs) != len(_WIDTHS) or set(tables) != set(_WIDTHS) or len({len(item) for item in tables.values()}) > 1:
        return None
    return [tables[width].astype(np.float64) for width in _WIDTHS]


def _priors(size: tuple[int, int], count: int) -> tuple[Array, Array] | None:
    """Return centers and extents of the priors [count, 2] in pixels; None if no network has that many."""
    for layers in _PRIORS:
        cells = all_cells(size, [(stride, len(sides)) for stride, sides in layers])
        if len(cells.corners) == count:
            by_cell = [
                np.tile(sides, len(all_cells(size, [(stride, 1)]).corners)).astype(np.float64)
                for stride, sides in layers
            ]
            return cells.centers, np.concatenate(by_cell)[:, np.newaxis].repeat(2, axis=1)
    return None


def _probabilities(scores: Array) -> Array:
    """Return the softmax of the two scores, unless the network contains it."""
    if ((scores >= 0) & (scores <= 1)).all():
        return scores
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares: Array = powers / powers.sum(axis=1, keepdims=True)
    return shares
