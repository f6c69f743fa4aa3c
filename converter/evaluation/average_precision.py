"""Average precision of detections with the rules of the COCO evaluation (https://cocodataset.org/#detection-eval).

Detections of one class are matched in order of their scores, each to the free object of the image with the largest
overlap. Precision is interpolated at 101 recall values. Objects of all sizes count, and at most 100 detections per
image and class.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tpuconvert.evaluation.objects import Objects
from tpuconvert.schema.arithmetic.boxes import Detections, overlaps
from tpuconvert.schema.types import Array

IOU_LIMITS = np.linspace(0.5, 0.95, 10)
RECALLS = np.linspace(0, 1, 101)
MOST_COUNTED = 100
"""Largest number of detections per image and class."""


def average_precisions(predictions: Sequence[Detections], labeled: Sequence[Objects]) -> dict[int, Array]:
    """Return the average precision per class at each of ``IOU_LIMITS``, for classes that have labeled objects.

    Args:
        predictions: detections per image.
        labeled: objects per image, in the same order. Crowds do not count as objects to find.

    """
    labeled_classes = [objects.classes[~objects.crowd] for objects in labeled]
    classes = np.unique(np.concatenate(labeled_classes)) if labeled_classes else np.array([], dtype=np.int64)
    return {int(index): _of_class(predictions, labeled, int(index)) for index in classes}


def _of_class(predictions: Sequence[Detections], labeled: Sequence[Objects], index: int) -> Array:
    """Return the average precision of one class, [IoU limits]."""
    scores, right, counted, total = [], [], [], 0
    for detections, objects in zip(predictions, labeled, strict=True):
        mine = detections.take(detections.classes == index)
        mine = mine.take(np.argsort(-mine.scores, kind="stable")[:MOST_COUNTED])
        chosen = objects.classes == index
        boxes, crowd = objects.boxes[chosen], objects.crowd[chosen]
        order = np.argsort(crowd, kind="stable")  # objects before crowds
        matched, ignored = match(mine.boxes, boxes[order], crowd[order])
        scores.append(mine.scores)
        right.append(matched & ~ignored)
        counted.append(~ignored)
        total += int((~crowd).sum())
    order = np.argsort(-np.concatenate(scores), kind="stable")
    hits, valid = np.concatenate(right, axis=1)[:, order], np.concatenate(counted, axis=1)[:, order]
    return np.array([_interpolate(hits[row], valid[row], total) for row in range(len(IOU_LIMITS))])


def match(boxes: Array, labeled: Array, crowd: Array) -> tuple[Array, Array]:
    """Match detections, sorted by descending score, with labeled boxes, objects before crowds.

    Returns:
        Two arrays [IoU limits, detections]: matched, and matched to a crowd, which takes any number of detections.

    """
    pairs = overlaps(boxes, labeled, crowd)
    matched = np.zeros((len(IOU_LIMITS), len(boxes)), dtype=bool)
    ignored = np.zeros_like(matched)
    for row, limit in enumerate(np.minimum(IOU_LIMITS, 1 - 1e-10)):
        free = np.ones(len(labeled), dtype=bool)
        for column in range(len(boxes)):
            able = free & (pairs[column] >= limit)
            objects = able & ~crowd
            able = objects if objects.any() else able
            if not able.any():
                continue
            overlap = np.where(able, pairs[column], -1)
            best = len(overlap) - 1 - int(overlap[::-1].argmax())  # of equal overlaps, COCO takes the last
            matched[row, column] = True
            ignored[row, column] = crowd[best]
            free[best] = crowd[best]
    return matched, ignored


def _interpolate(hits: Array, valid: Array, total: int) -> float:
    """Mean over ``RECALLS`` of the largest precision at this recall or a higher one; 0 at recalls not reached."""
    right, wrong = np.cumsum(hits & valid), np.cumsum(~hits & valid)
    recall = right / total
    precision = right / np.maximum(right + wrong, np.finfo(np.float64).eps)
    envelope = np.maximum.accumulate(precision[::-1])[::-1]
    index = np.searchsorted(recall, RECALLS, side="left")
    reached = index < len(envelope)
    return float(np.where(reached, np.append(envelope, 0.0)[index], 0.0).mean())
