"""Boxes of detectors: overlap, non-maximum suppression, and matching of equal detections.

Boxes are float64 [N, 4]: left, top, right, bottom, all in the same unit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tpuconvert.schema.types import Array

MIN_SCORE = 0.4
"""Usual smallest score of a detection that a program shows."""

NMS_IOU = 0.45
"""Usual overlap above which the box with the lower score is suppressed."""

MOST_CANDIDATES = 30_000
"""Largest number of boxes that enter the suppression: those with the highest scores."""

MOST_DETECTIONS = 300
"""Largest number of boxes per image that leave the suppression."""

_LOG_EXTENTS = (-20.0, 12.0)
"""Limits of the logarithm of an extent in cells, so that the power is finite: boxes of 162,754 cells are none."""


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


def areas(boxes: Array) -> Array:
    """Return the areas of boxes; those with negative extents have none."""
    sizes: Array = np.clip(boxes[:, 2] - boxes[:, 0], 0, None) * np.clip(boxes[:, 3] - boxes[:, 1], 0, None)
    return sizes


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
    ratios: Array = np.divide(shared, union, out=np.zeros_like(shared), where=union > 0)
    return ratios


def suppress(detections: Detections, limit: float) -> Detections:
    """Remove detections that overlap one of the same class with a higher score by more than ``limit``.

    The result is sorted by descending score and has at most ``MOST_DETECTIONS`` entries. Equal scores keep their order.
    """
    detections = detections.take(np.argsort(-detections.scores, kind="stable")[:MOST_CANDIDATES])
    keep = np.zeros(len(detections.scores), dtype=bool)
    for index in np.unique(detections.classes):
        waiting = np.flatnonzero(detections.classes == index)
        while len(waiting):
            best, waiting = waiting[0], waiting[1:]
            keep[best] = True
            overlap = overlaps(detections.boxes[best : best + 1], detections.boxes[waiting])[0]
            waiting = waiting[overlap <= limit]
    return detections.take(np.flatnonzero(keep)[:MOST_DETECTIONS])


def match_detections(reference: Detections, others: Detections, limit: float) -> list[tuple[int, int]]:
    """Return index pairs of detections with the same class and an overlap of at least ``limit``.

    The reference detection with the highest score chooses first. Each detection is in one pair at most.
    """
    candidates = overlaps(reference.boxes, others.boxes) * (reference.classes[:, None] == others.classes[None, :])
    pairs = []
    for index in np.argsort(-reference.scores, kind="stable").tolist():
        row = candidates[index]
        if row.size and row.max() >= limit:
            pairs.append((index, int(row.argmax())))
            candidates[:, pairs[-1][1]] = 0
    return pairs


def corners_of(centers: Array, extents: Array) -> Array:
    """Return boxes [N, 4] from centers x, y [N, 2] and extents: width, height [N, 2]."""
    half = extents / 2
    return np.concatenate([centers - half, centers + half], axis=1)


def boxes_in_cells(values: Array, origins: Array, cells: Array) -> Array:
    """Return boxes [N, 4] that are given relative to cells of a grid, as by YOLOX and YuNet.

    Args:
        values: [N, 4], the offset of the center in cells and the logarithm of the extents in cells.
        origins: [N, 2], x and y of the left upper corner of each cell.
        cells: [N, 2], width and height of each cell.

    """
    extents = np.exp(np.clip(values[:, 2:4], *_LOG_EXTENTS)) * cells
    return corners_of(values[:, :2] * cells + origins, extents)
