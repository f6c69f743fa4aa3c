"""Head of the landmark networks of MediaPipe that have several outputs: hands, poses and eyes.

Source: https://github.com/google-ai-edge/mediapipe, ``TensorsToLandmarksCalculator`` with the options of
``hand_landmark``, ``pose_landmark`` and ``iris_landmark``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tpuconvert.outputs.head import DecodedImage, Head, Outputs, Points, list_outputs, register_head
from tpuconvert.samples.preprocess import Preprocess
from tpuconvert.schema.errors import UsageError


@dataclass(frozen=True)
class _Network:
    """Outputs of one network.

    Args:
        sizes: numbers of elements of all outputs, in ascending order.
        points: number of elements of the outputs with points in pixels.
        width: number of values per point.
        count: number of points that are shown; the others are auxiliary.
    """

    sizes: tuple[int, ...]
    points: tuple[int, ...]
    width: int
    count: int


_NETWORKS = (
    _Network((1, 1, 63, 63), (63,), 3, 21),  # hand; the other 63 values are in meters
    _Network((1, 117, 195, 256 * 256, 64 * 64 * 39), (195,), 5, 33),  # pose
    _Network((15, 213), (213, 15), 3, 76),  # eye and iris
)


@register_head("mediapipe_landmarks")
class MediaPipeLandmarks(Head):
    """Points of hands [1, 63], poses [1, 195] or eyes [1, 213] and [1, 15], in pixels of the input."""

    recognized = "by the sizes of all outputs"

    def matches(self, outputs: Outputs, rule: Preprocess) -> bool:
        """Return True for the sizes of the outputs of one of the networks."""
        return _network_of(outputs) is not None

    def decode(self, outputs: Outputs, image: DecodedImage) -> Points:
        """Return the points."""
        network = _network_of(outputs)
        if network is None:
            raise UsageError(
                f"expected the outputs of a landmark network of MediaPipe, found {list_outputs(outputs)}",
                hint="--decode points2d or points3d, or module:function",
            )
        places = []
        for size in network.points:
            arrays = [array.reshape(-1, network.width) for array in outputs.values() if array.size == size]
            places.append(max(arrays, key=lambda array: float(np.abs(array).max()))[:, :2])  # pixels, not meters
        points = np.concatenate(places)[: network.count].astype(np.float64)
        return Points(image.from_input(points))


def _network_of(outputs: Outputs) -> _Network | None:
    sizes = tuple(sorted(math.prod(array.shape) for array in outputs.values()))
    return next((network for network in _NETWORKS if network.sizes == sizes), None)
