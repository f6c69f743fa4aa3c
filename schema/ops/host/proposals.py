"""proposals: the region proposals of a two-stage detector, computed on the host."""

from __future__ import annotations

import math

import numpy as np

from tpuconvert.schema.definition.extents import may_equal, shapes_of
from tpuconvert.schema.definition.op import Op, Operand, OpKind, on, tpu_op
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.types import F32, Array, TensorType

_REGION = 5


@tpu_op("proposals", OpKind.HOST, kw_only=True)
class Proposals(Op):
    """Decode a box from every anchor at every position, and select the best boxes that overlap no better box.

    Boxes are clipped to the image. A box with a side below ``min_size`` has the score 0. Unused rows at the end are 0.
    Equal scores keep the order of positions (rows, columns, anchors).

    Shapes: A is the number of anchors, one per ratio and scale. scores [1, 2 * A, H, W], of which the last A channels
    are for objects; deltas [1, 4 * A, H, W]; info [1, K] or [K] with K >= 3: height and width of the image, and a
    factor for ``min_size``. Results: regions [post_nms_topn, 5] as (image, x1, y1, x2, y2) with inclusive corners, and
    their scores [post_nms_topn].
    Units: pixels of the image. Evaluated in binary64, overlaps in binary32.
    Source: Ren et al., Faster R-CNN; the Caffe layer Proposal of its C++ ports.
    """

    feat_stride: float = 16.0
    base_size: float = 16.0
    min_size: float = 16.0
    ratios: tuple[float, ...] = (0.5, 1.0, 2.0)
    scales: tuple[float, ...] = (8.0, 16.0, 32.0)
    pre_nms_topn: int = 6000
    post_nms_topn: int = 300
    nms_threshold: float = 0.7

    inputs = (Operand("scores", (4,)), Operand("deltas", (4,)), Operand("info", (1, 2), coeff=True))
    decides_by = ("scores", "deltas")
    has_row_set = True
    outputs = (Operand("regions", (2,)), Operand("region_scores", (1,)))
    dtypes = on(F32)

    def __post_init__(self) -> None:
        if not (self.ratios and self.scales and min(*self.ratios, *self.scales, self.feat_stride, self.base_size) > 0):
            raise ValueError(f"proposals: stride, size, ratios and scales must be positive, found {self}")
        if min(self.pre_nms_topn, self.post_nms_topn) < 1:
            raise ValueError(f"proposals: pre_nms_topn {self.pre_nms_topn}, post_nms_topn {self.post_nms_topn}")

    @property
    def anchor_count(self) -> int:
        """Number of anchors per position."""
        return len(self.ratios) * len(self.scales)

    def infer(self, scores: TensorType, deltas: TensorType, info: TensorType) -> tuple[TensorType, TensorType]:
        """Shapes: the batch size is 1; there are two scores and four deltas per anchor."""
        count = self.anchor_count
        fits = (
            may_equal(scores.shape[0], 1)
            and may_equal(scores.shape[1], 2 * count)
            and may_equal(deltas.shape[1], 4 * count)
            and all(map(may_equal, scores.shape[2:], deltas.shape[2:]))
        )
        if not fits:
            raise ShapeError(
                f"{self.name} needs scores [1, {2 * count}, H, W] and deltas [1, {4 * count}, H, W], "
                f"got {shapes_of((scores, deltas, info))}"
            )
        return TensorType(F32, (self.post_nms_topn, _REGION)), TensorType(F32, (self.post_nms_topn,))

    def reference(self, scores: Array, deltas: Array, info: Array) -> tuple[Array, Array]:
        """Decode the boxes, sort them by score, and suppress overlapping ones."""
        height, width, scale = (float(number) for number in info.reshape(-1)[:3])
        boxes = self._boxes(deltas[0].astype(np.float64), height, width)
        foreground = scores[0, self.anchor_count :].transpose(1, 2, 0).reshape(-1).astype(np.float32)
        sides = boxes[:, 2:] - boxes[:, :2] + 1
        foreground = np.where((sides >= self.min_size * scale).all(axis=1), foreground, np.float32(0))
        order = np.argsort(-foreground, kind="stable")[: self.pre_nms_topn]
        corners = boxes.astype(np.float32)
        selected = self._suppress(corners, order)
        regions = np.zeros((self.post_nms_topn, _REGION), np.float32)
        chosen = np.zeros(self.post_nms_topn, np.float32)
        regions[: len(selected), 1:], chosen[: len(selected)] = corners[selected], foreground[selected]
        return regions, chosen

    def anchors(self) -> Array:
        """Return the corners [A, 4] of the anchors at the first position, ordered by ratio, then by scale."""
        centre = (self.base_size - 1) / 2
        rows = []
        for ratio in self.ratios:
            width = math.floor(math.sqrt(self.base_size**2 / ratio) + 0.5)
            height = math.floor(width * ratio + 0.5)
            for scale in self.scales:
                half_width, half_height = (width * scale - 1) / 2, (height * scale - 1) / 2
                rows.append((centre - half_width, centre - half_height, centre + half_width, centre + half_height))
        return np.array(rows)

    def _boxes(self, deltas: Array, height: float, width: float) -> Array:
        """Return the corners [H * W * A, 4] of all boxes, clipped to the image."""
        rows, columns = deltas.shape[1:]
        moves = deltas.reshape(self.anchor_count, 4, rows, columns).transpose(2, 3, 0, 1).reshape(-1, 4)
        y, x = np.meshgrid(np.arange(rows), np.arange(columns), indexing="ij")
        shifts = np.stack((x, y, x, y), axis=-1)[:, :, None] * self.feat_stride
        anchors = (shifts + self.anchors()).reshape(-1, 4)
        size = anchors[:, 2:] - anchors[:, :2] + 1
        with np.errstate(over="ignore", invalid="ignore"):
            centre = anchors[:, :2] + size / 2 + moves[:, :2] * size
            half = np.exp(moves[:, 2:]) * size / 2
            corners = np.concatenate((centre - half, centre + half), axis=1)
        boxes: Array = np.clip(corners, 0, np.array((width - 1, height - 1) * 2))
        return boxes

    def _suppress(self, boxes: Array, order: Array) -> list[int]:
        """Return the indices of at most ``post_nms_topn`` selected boxes. Corners are inclusive: add 1 to sides."""
        areas = (boxes[:, 2] - boxes[:, 0] + 1) * (boxes[:, 3] - boxes[:, 1] + 1)
        selected: list[int] = []
        while order.size and len(selected) < self.post_nms_topn:
            best, order = int(order[0]), order[1:]
            selected.append(best)
            low, high = np.maximum(boxes[best, :2], boxes[order, :2]), np.minimum(boxes[best, 2:], boxes[order, 2:])
            sides = np.maximum(high - low + 1, np.float32(0))
            shared = sides[:, 0] * sides[:, 1]
            overlap = shared / (areas[best] + areas[order] - shared)
            order = order[overlap <= np.float32(self.nms_threshold)]
        return selected
