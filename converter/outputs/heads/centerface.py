"""Head of the face detector CenterFace.

Source: https://github.com/Star-Clouds/CenterFace, ``prj-python/centerface.py``.
"""

from __future__ import annotations

import numpy as np

from tpuconvert.outputs.detector import BoxHead, above, unsuitable
from tpuconvert.outputs.grids import cells_of, extents_of
from tpuconvert.outputs.head import Outputs, register_head
from tpuconvert.samples.preprocess import Preprocess
from tpuconvert.schema.arithmetic.boxes import Detections, boxes_in_cells
from tpuconvert.schema.types import Array

_STRIDE = 4
_CHANNELS = (1, 2, 2, 10)
"""Channels of the heat map, the logarithms of height and width, the offsets y and x, and the landmarks (y, x)."""


@register_head("centerface")
class CenterFace(BoxHead):
    """Maps of stride 4, [1, 1, ...] to [1, 10, ...]: scores, extents, offsets and landmarks, in this order."""

    recognized = "yes"
    class_names = ("face",)

    def matches(self, outputs: Outputs, rule: Preprocess) -> bool:
        """Return True for maps with these channels."""
        assert rule.size is not None
        return _maps(outputs, rule.size) is not None

    def candidates(self, outputs: Outputs, size: tuple[int, int], min_score: float) -> Detections:
        """Return the faces with their landmarks."""
        maps = _maps(outputs, size)
        if maps is None:
            raise unsuitable("maps of 1, 2, 2 and 10 channels with a quarter of the rows and columns", outputs)
        scores, extents, offsets, landmarks = maps
        rows, columns = extents_of(size, _STRIDE)
        codes = np.concatenate([offsets[:, ::-1] + 0.5, extents[:, ::-1]], axis=1)
        side = np.full((len(codes), 2), float(_STRIDE))
        boxes = boxes_in_cells(codes, cells_of(rows, columns) * _STRIDE, side)
        shares = landmarks.reshape(len(landmarks), -1, 2)[:, :, ::-1]
        points = shares * (boxes[:, 2:] - boxes[:, :2])[:, np.newaxis] + boxes[:, np.newaxis, :2]
        return above(boxes, scores, min_score, points)


def _maps(outputs: Outputs, size: tuple[int, int]) -> list[Array] | None:
    """Return the maps as [cells, channels], or None."""
    shapes = [(1, channels, *extents_of(size, _STRIDE)) for channels in _CHANNELS]
    if [array.shape for array in outputs.values()] != shapes:
        return None
    return [array[0].reshape(array.shape[1], -1).T.astype(np.float64) for array in outputs.values()]
