"""Heads of landmarks and keypoints."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from tpuconvert.outputs.head import DecodedImage, Head, Outputs, Points, register_head
from tpuconvert.samples.preprocess import Preprocess
from tpuconvert.schema.errors import UsageError

FEWEST_POINTS = 5
"""Smallest number of points that are recognized as such without ``--decode``."""


class _PointsHead(Head):
    width: ClassVar[int]
    """Number of values per point."""

    other: ClassVar[str]
    """Name of the head with another number."""

    def decode(self, outputs: Outputs, image: DecodedImage) -> Points:
        """Return the points of the largest output."""
        output = max(outputs, key=lambda name: outputs[name].size)
        values = outputs[output].reshape(-1).astype(np.float64)
        if values.size % self.width:
            shape = list(outputs[output].shape)
            raise UsageError(
                f"output '{output}' {shape} has {values.size} values, expected {self.width} per point",
                hint=f"--decode {self.other}, or module:function",
            )
        return Points(image.from_input(values.reshape(-1, self.width)[:, :2]))


@register_head("points2d")
class Points2D(_PointsHead):
    """x, y per point, in pixels of the input; the largest output is used."""

    width = 2
    other = "points3d"


@register_head("points3d")
class Points3D(_PointsHead):
    """x, y, z per point, in pixels of the input; the largest output is used."""

    width = 3
    other = "points2d"
    recognized = "with [1, 1, 1, 3 K] and a single value"

    def matches(self, outputs: Outputs, rule: Preprocess) -> bool:
        """Return True for points [1, 1, 1, 3 K] beside a single value, the presence of the object."""
        if len(outputs) != 2:
            return False
        short, long = sorted((array.shape for array in outputs.values()), key=math.prod)
        if math.prod(short) != 1 or len(long) != 4 or long[:3] != (1, 1, 1):
            return False
        return bool(long[3] % 3 == 0 and long[3] >= 3 * FEWEST_POINTS)
