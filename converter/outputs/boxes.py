"""Boxes of detectors: overlap, non-maximum suppression, and the counting of equal detections.

Boxes are float64 [N, 4]: left, top, right, bottom, in pixels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tpuconvert.schema.types import Array

MOST_CANDIDATES = 30_000
"""Largest number of boxes that enter the suppression: those with the highest scores."""

MOST_DETECTIONS = 300
"""Largest number of boxes per image that leave the suppression."""


@dataclass(frozen=True)
class Detections:
    """Objects that a model found in one image.

    Args:
        boxes: [N, 4], left, top, right, bottom.
        scores: [N].
        classes: [N], class indices.
        points: [N, K, 2], x and y of the landmarks of each object; None if the model finds none.

    """

    boxes: Array
    scores: Array
    classes: Array
    points: Array | None = None

    def take(self, index: Array) -> Detections:
        """Return the detections at integer or boolean indices."""
        points = None if self.points is None else self.points[index]
        return Detections(self.boxes[index], self.scores[index], self.classes[index], points)


@dataclass(frozen=True)
class Objects:
    """Labeled objects in one image.

    Args:
        boxes: [N, 4], left, top, right, bottom, in pixels of the image.
        classes: [N], class indices.
        crowd: [N], True for a box around many objects: detections in it count neither as right nor as wrong.

    """

    boxes: Array
    classes: Array
    crowd: Array


def areas(boxes: Array) -> Array:
    """Return the areas of boxes; those with negative extents have none."""
    found: Array = np.clip(boxes[:, 2] - boxes[:, 0], 0, None) * np.clip(boxes[:, 3] - boxes[:, 1], 0, None)
    return found


def overlaps(first: Array, second: Array, crowd: Array | None = None) -> Array:
    """Return intersection over union of every pair of boxes, [N, M].

    Args:
        first: [N, 4].
        second: [M, 4].
        crowd: [M]; where True, the union is the area of the first box, as in the COCO evaluation.

    """
    low = np.maximum(first[:, None, :2], second[None, :, :2])
    high = np.minimum(first[:, None, 2:], second[None, :, 2:])
    shared = np.clip(high - low, 0, None).prod(axis=2)
    own = areas(first)[:, None]
    union = own + areas(second)[None, :] - shared
    if crowd is not None:
        union = np.where(crowd[None, :], own, union)
    found: Array = np.divide(shared, union, out=np.zeros_like(shared), where=union > 0)
    return found


def suppress(found: Detections, limit: float) -> Detections:
    """Remove detections that overlap one of the same class with a higher score by more than ``limit``.

    The result is sorted by descending score and has at most ``MOST_DETECTIONS`` entries. Equal scores keep their order.
    """
    found = found.take(np.argsort(-found.scores, kind="stable")[:MOST_CANDIDATES])
    keep = np.zeros(len(found.scores), dtype=bool)
    for index in np.unique(found.classes):
        waiting = np.flatnonzero(found.classes == index)
        while len(waiting):
            best, waiting = waiting[0], waiting[1:]
            keep[best] = True
            overlap = overlaps(found.boxes[best : best + 1], found.boxes[waiting])[0]
            waiting = waiting[overlap <= limit]
    return found.take(np.flatnonzero(keep)[:MOST_DETECTIONS])


def count_kept(found: Detections, reference: Detections, limit: float) -> int:
    """Return how many reference detections have a counterpart: the same class, an overlap of at least ``limit``."""
    pairs = overlaps(reference.boxes, found.boxes) * (reference.classes[:, None] == found.classes[None, :])
    kept = 0
    for index in np.argsort(-reference.scores, kind="stable"):
        row = pairs[index]
        if row.size and row.max() >= limit:
            pairs[:, row.argmax()] = 0
            kept += 1
    return kept
