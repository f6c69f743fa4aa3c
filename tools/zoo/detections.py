"""Detections of a quantized model: the share of the source's boxes that it finds."""

from collections.abc import Mapping

import numpy as np

from tools.zoo.files import Array

MIN_OVERLAP = 0.5
"""Smallest intersection over union of two boxes that count as the same detection, as in COCO's AP50."""

NAMES = {"boxes", "labels"}
"""Outputs of a detector that selects its boxes: their number depends on the image."""


class Kept:
    """Number of boxes of the source, and of those that a model finds, over all samples."""

    def __init__(self) -> None:
        self.wanted = self.found = 0

    def add(self, expected: Mapping[str, Array], actual: Mapping[str, Array]) -> None:
        """Add the detections of one image. A box matches at most one box of the source, with the same label."""
        overlaps = overlap(expected["boxes"], actual["boxes"])
        overlaps[expected["labels"][:, None] != actual["labels"][None, :]] = 0.0
        self.wanted += len(overlaps)
        for row in overlaps:
            best = int(row.argmax()) if row.size else 0
            if row.size and row[best] >= MIN_OVERLAP:
                self.found += 1
                overlaps[:, best] = 0.0

    @property
    def share(self) -> float | None:
        """Share of the source's boxes that were found; None if there are none."""
        return self.found / self.wanted if self.wanted else None


def overlap(first: Array, second: Array) -> Array:
    """Return intersection over union for all pairs of boxes ``x0, y0, x1, y1``: [boxes of first, boxes of second]."""
    a, b = first.astype(np.float64)[:, None], second.astype(np.float64)[None]
    sides = np.minimum(a[..., 2:], b[..., 2:]) - np.maximum(a[..., :2], b[..., :2])
    shared = np.maximum(sides, 0.0).prod(-1)
    areas = [(boxes[..., 2:] - boxes[..., :2]).prod(-1) for boxes in (a, b)]
    union = areas[0] + areas[1] - shared
    return np.asarray(np.divide(shared, union, out=np.zeros_like(shared), where=union > 0))
