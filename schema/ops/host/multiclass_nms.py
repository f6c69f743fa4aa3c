"""host_multiclass_nms: non-maximum suppression per image and class, with the selected boxes, on the host."""

from __future__ import annotations

import numpy as np

from tpuconvert.schema.arithmetic.finite import InfinityUse
from tpuconvert.schema.definition.extents import may_equal, shapes_of, unknown
from tpuconvert.schema.definition.op import Op, Operand, OpKind, case, on, tpu_op
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.ops.nms import select_boxes
from tpuconvert.schema.types import F32, I32, Array, Scalar, TensorType


@tpu_op("host_multiclass_nms", OpKind.HOST)
class HostMulticlassNms(Op):
    """Boxes that nms_v2 selects for each image and class, in the order of images, classes and selection.

    A box is selected if its score is above ``score_threshold`` and its overlap with each better selected box of the
    class is at most ``iou_threshold``; at most ``max_output_size`` boxes per image and class. With ``centered``, boxes
    are (x, y, width, height) and become (x - width / 2, y - height / 2, x + width / 2, y + height / 2) first.

    Results: corners, scores, classes and images of the selected boxes.

    Shapes: boxes [N, B, 4] with two opposite corners in the same order of axes; scores [N, C, B]; corners [K, 4];
    selected scores, classes and images [K].
    """

    iou_threshold: Scalar
    score_threshold: Scalar
    max_output_size: int
    centered: bool = False

    infinity = InfinityUse.DEFINED
    inputs = (Operand("boxes", ranks=(3,)), Operand("scores", ranks=(3,)))
    outputs = (
        Operand("corners", ranks=(2,)),
        Operand("selected_scores", ranks=(1,)),
        Operand("classes", ranks=(1,)),
        Operand("images", ranks=(1,)),
    )
    decides_by = ("boxes", "scores")
    has_row_set = True
    dtypes = on(
        case(
            {
                "boxes": (F32,),
                "scores": (F32,),
                "corners": (F32,),
                "selected_scores": (F32,),
                "classes": (I32,),
                "images": (I32,),
            }
        )
    )

    def __post_init__(self) -> None:
        if self.max_output_size < 1:
            raise ValueError(f"{self.name}: max_output_size is {self.max_output_size}")

    def infer(self, boxes: TensorType, scores: TensorType) -> tuple[TensorType, TensorType, TensorType, TensorType]:
        """Shapes: the number K of selected boxes depends on the data."""
        fits = may_equal(boxes.shape[0], scores.shape[0]) and may_equal(boxes.shape[1], scores.shape[2])
        if not fits or not may_equal(boxes.shape[2], 4):
            raise ShapeError(
                f"{self.name} needs boxes [N, B, 4] and scores [N, C, B], got {shapes_of((boxes, scores))}"
            )
        count = unknown(self.name)
        return (
            TensorType(F32, (count, 4)),
            TensorType(F32, (count,)),
            TensorType(I32, (count,)),
            TensorType(I32, (count,)),
        )

    def reference(self, boxes: Array, scores: Array) -> tuple[Array, Array, Array, Array]:
        """Centers are converted in binary32, by a product with 0.5 and a sum."""
        if self.centered:
            half = boxes[..., 2:] * np.float32(0.5)
            boxes = np.concatenate([boxes[..., :2] - half, boxes[..., :2] + half], axis=-1)
        corners, values, classes, images = [], [], [], []
        for image, (own, rows) in enumerate(zip(boxes, scores, strict=True)):
            for label, row in enumerate(rows):
                chosen = select_boxes(own, row, self.iou_threshold, self.score_threshold, self.max_output_size)
                corners.append(own[chosen])
                values.append(row[chosen])
                classes.append(np.full(len(chosen), label, np.int32))
                images.append(np.full(len(chosen), image, np.int32))
        if not corners:
            return np.empty((0, 4), np.float32), np.empty(0, np.float32), np.empty(0, np.int32), np.empty(0, np.int32)
        selected: tuple[Array, Array, Array, Array] = (
            np.concatenate(corners),
            np.concatenate(values),
            np.concatenate(classes),
            np.concatenate(images),
        )
        return selected
