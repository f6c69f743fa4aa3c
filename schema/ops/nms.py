"""Greedy non-maximum suppression: nms, and nms_v2 with a score filter and an output limit."""

from __future__ import annotations

import numpy as np

from tpuconvert.schema.arithmetic.finite import InfinityUse
from tpuconvert.schema.definition.extents import may_equal, shapes_of, unknown
from tpuconvert.schema.definition.op import GLOBAL, Case, Op, Operand, Support, case, on, tpu_op
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.ops.ordering import falling_order
from tpuconvert.schema.types import F32, I32, Array, Scalar, TensorType

_CASE: Case = case({"boxes": (F32,), "scores": (F32,), "tensor_o": (I32,)})
_INFERRED = Support((_CASE,), inferred=True)


def _iou(boxes: Array, areas: Array, one: int, others: Array) -> Array:
    """Intersection over union of one box with others, in binary32; 0 if one of the boxes has no area."""
    top_left = np.maximum(boxes[one, :2], boxes[others, :2])
    bottom_right = np.minimum(boxes[one, 2:], boxes[others, 2:])
    extents = np.maximum(bottom_right - top_left, np.float32(0))
    shared = extents[:, 0] * extents[:, 1]
    union = areas[one] + areas[others] - shared
    result: Array = np.where((areas[one] <= 0) | (areas[others] <= 0), np.float32(0), shared / union)
    return result


def _suppress(boxes: Array, candidates: Array, limit: Scalar, max_boxes: int) -> Array:
    """Return the indices of the selected boxes, in the order of selection."""
    corners = boxes.astype(np.float32, copy=False)
    first, second = corners[:, :2], corners[:, 2:]
    ordered = np.concatenate((np.minimum(first, second), np.maximum(first, second)), axis=1)
    selected: list[int] = []
    with np.errstate(all="ignore"):
        areas = (ordered[:, 2] - ordered[:, 0]) * (ordered[:, 3] - ordered[:, 1])
        while candidates.size and len(selected) < max_boxes:
            best, candidates = int(candidates[0]), candidates[1:]
            selected.append(best)
            candidates = candidates[_iou(ordered, areas, best, candidates) <= np.float32(limit.value)]
    return np.array(selected, dtype=np.int32)


def select_boxes(boxes: Array, scores: Array, overlap: Scalar, least: Scalar, max_boxes: int) -> Array:
    """Return the indices of the boxes that nms_v2 selects.

    Args:
        boxes: float32 [N, 4], two opposite corners.
        scores: float32 [N].
        overlap: largest overlap with a better selected box.
        least: scores of selected boxes are above it.
        max_boxes: largest number of selected boxes.

    """
    candidates = np.flatnonzero(scores > np.float32(least.value))
    order = candidates[falling_order(scores[candidates])]
    return _suppress(boxes, order, overlap, max_boxes)


class Suppression(Op):
    """Base of non-maximum suppression.

    Boxes are visited in descending order of scores. A box is selected if its overlap with each selected box is at most
    the threshold.
    """

    infinity = InfinityUse.DEFINED
    inputs = (Operand("boxes", ranks=(2,)), Operand("scores", ranks=(1,)))
    decides_by = ("boxes", "scores")
    outputs = (Operand("tensor_o", ranks=(1,)),)
    pads_results = True
    dtypes = on(bm1682=_INFERRED, bm1684=_INFERRED, bm1686=_INFERRED)
    locality = GLOBAL

    def infer(self, boxes: TensorType, scores: TensorType) -> tuple[TensorType]:
        """Shapes: boxes [N, 4] and scores [N]; the number of selected boxes depends on the data."""
        if not (may_equal(boxes.shape[1], 4) and may_equal(boxes.shape[0], scores.shape[0])):
            raise ShapeError(f"{self.name} needs boxes [N, 4] and scores [N], got {shapes_of((boxes, scores))}")
        return (TensorType(I32, (unknown(self.name),)),)


@tpu_op("nms")
class Nms(Suppression):
    """Indices of the selected boxes: the IoU of each with every better selected box is at most ``threshold``.

    Boxes with equal scores are visited in ascending order of indices, whether ``stable`` is set or not.

    Shapes: boxes [N, 4] as (y1, x1, y2, x2), corners in any order; scores [N].
    """

    threshold: Scalar
    stable: bool = False

    def reference(self, boxes: Array, scores: Array) -> tuple[Array]:
        """Return the indices in the order of selection."""
        return (_suppress(boxes, falling_order(scores), self.threshold, len(scores)),)


@tpu_op("nms_v2")
class NmsV2(Suppression):
    """As nms, for the boxes whose score is above ``score_threshold``; selects at most ``max_output_size`` boxes.

    Shapes: boxes [N, 4] as (y1, x1, y2, x2), corners in any order; scores [N].
    """

    iou_threshold: Scalar
    score_threshold: Scalar
    max_output_size: int
    stable: bool = False

    unfinished = True

    def __post_init__(self) -> None:
        if self.max_output_size < 0:
            raise ValueError(f"nms_v2: max_output_size is {self.max_output_size}")

    def reference(self, boxes: Array, scores: Array) -> tuple[Array]:
        """Return the indices in the order of selection."""
        return (select_boxes(boxes, scores, self.iou_threshold, self.score_threshold, self.max_output_size),)
