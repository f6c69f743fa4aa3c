"""detection_output: the last step of an SSD detector, from raw predictions to a list of boxes."""

from __future__ import annotations

import enum
import math

import numpy as np

from tpuconvert.schema.arithmetic.finite import InfinityUse
from tpuconvert.schema.definition.op import Op, Operand, OpKind, on, tpu_op
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.types import F32, Array, TensorType, format_shape

COLUMNS = 7
"""Columns of a detection: image, class, score, x1, y1, x2, y2."""


class BoxCode(enum.IntEnum):
    """Encoding of a prediction relative to a prior box, with the values of SSD."""

    CORNER = 1
    CENTER_SIZE = 2
    CORNER_SIZE = 3


@tpu_op("detection_output", OpKind.HOST)
class DetectionOutput(Op):
    """Decode the boxes of each image and class, and keep those with a high score that overlap no better box.

    Rows of y: image, class, score, x1, y1, x2, y2, sorted by image, class and descending score. Unused rows at the end
    are 0, so that their class is the background. Equal scores keep the order of the priors.

    Shapes: loc [N, P * 4] (or P * classes * 4), conf [N, P * classes], prior [1, 1 or 2, P * 4]; trailing axes of
    extent 1 may follow. y [1, 1, N * rows, 7], rows = ``keep_top_k``, or the largest possible number of
    boxes if that is negative.
    Units: coordinates are fractions of the image size, as in the priors.
    Source: SSD's Caffe fork, layer DetectionOutput. Overlaps are computed in binary32.
    """

    num_classes: int
    share_location: bool = True
    background_label_id: int = 0
    nms_threshold: float = 0.3
    nms_top_k: int = -1
    nms_eta: float = 1.0
    code_type: BoxCode = BoxCode.CORNER
    keep_top_k: int = -1
    variance_encoded_in_target: bool = False
    confidence_threshold: float = -math.inf

    infinity = InfinityUse.DEFINED
    inputs = (Operand("loc"), Operand("conf"), Operand("prior", coeff=True))
    decides_by = ("loc", "conf")
    has_row_set = True
    pads_results = True
    dtypes = on(F32)

    def __post_init__(self) -> None:
        object.__setattr__(self, "code_type", BoxCode(self.code_type))
        if self.num_classes < 1 or not self.nms_threshold >= 0 or not 0 < self.nms_eta <= 1:
            raise ValueError(
                f"detection_output: num_classes {self.num_classes}, nms_threshold {self.nms_threshold}, "
                f"nms_eta {self.nms_eta}"
            )
        if self.keep_top_k == 0:
            raise ValueError("detection_output: keep_top_k is 0")

    def infer(self, loc: TensorType, conf: TensorType, prior: TensorType) -> tuple[TensorType]:
        """Shapes: the number of predictions follows from the priors."""
        batch, priors = loc.shape[0], self._priors(prior)
        expected = (priors * 4 * (1 if self.share_location else self.num_classes), priors * self.num_classes)
        counts = tuple(_elements(x) for x in (loc, conf))
        if counts != expected or conf.shape[0] != batch:
            raise ShapeError(
                f"{self.name}: {format_shape(loc.shape)} and {format_shape(conf.shape)} do not fit {priors} priors and "
                f"{self.num_classes} classes: {expected[0]} and {expected[1]} numbers per image"
            )
        if not isinstance(batch, int):
            raise ShapeError(f"{self.name}: the batch size {batch} must be known")
        return (TensorType(F32, (1, 1, batch * self.rows(priors), COLUMNS)),)

    def rows(self, priors: int) -> int:
        """Number of rows of the result per image."""
        if self.keep_top_k > 0:
            return self.keep_top_k
        per_class = priors if self.nms_top_k < 0 else min(priors, self.nms_top_k)
        has_background = 0 <= self.background_label_id < self.num_classes
        return per_class * (self.num_classes - has_background)

    def _priors(self, prior: TensorType) -> int:
        shape = prior.shape
        rows = 1 if self.variance_encoded_in_target else 2
        size = shape[2] if prior.rank >= 3 else None
        if shape[0] != 1 or not isinstance(size, int) or size % 4 or shape[1] not in (rows, 2):
            raise ShapeError(f"{self.name}: priors of shape {format_shape(shape)} instead of [1, {rows}, 4 * P]")
        return size // 4

    def reference(self, loc: Array, conf: Array, prior: Array) -> tuple[Array]:
        """Decode, then select boxes per class, then per image."""
        batch = loc.shape[0]
        boxes = prior[0, 0].reshape(-1, 4).astype(np.float32)
        variances = np.ones_like(boxes) if self.variance_encoded_in_target else prior[0, 1].reshape(-1, 4)
        count = len(boxes)
        loc = loc.reshape(batch, count, -1, 4)
        conf = conf.reshape(batch, count, self.num_classes)
        rows = self.rows(count)
        result = np.zeros((1, 1, batch * rows, COLUMNS), np.float32)
        used = 0
        for image in range(batch):
            decoded = self._decode(loc[image], boxes, variances)
            detections = self._detect(decoded, conf[image])
            result[0, 0, used : used + len(detections), 0] = image
            result[0, 0, used : used + len(detections), 1:] = detections
            used += len(detections)
        return (result,)

    def _decode(self, loc: Array, boxes: Array, variances: Array) -> Array:
        """Return the boxes [priors, 1 or classes, 4], computed in binary64 and rounded once."""
        delta = loc.astype(np.float64) * variances[:, None].astype(np.float64)
        low, high = boxes[:, None, :2].astype(np.float64), boxes[:, None, 2:].astype(np.float64)
        size = high - low
        with np.errstate(over="ignore", invalid="ignore"):
            if self.code_type is BoxCode.CORNER:
                corners = [low + delta[..., :2], high + delta[..., 2:]]
            elif self.code_type is BoxCode.CORNER_SIZE:
                corners = [low + delta[..., :2] * size, high + delta[..., 2:] * size]
            else:
                centre = (low + high) / 2 + delta[..., :2] * size
                half = np.exp(delta[..., 2:]) * size / 2
                corners = [centre - half, centre + half]
            decoded: Array = np.concatenate(corners, axis=-1).astype(np.float32)
        return decoded

    def _detect(self, decoded: Array, conf: Array) -> Array:
        """Return the rows (class, score, box) of one image."""
        chosen: list[tuple[float, int, int]] = []
        for label in range(self.num_classes):
            if label == self.background_label_id:
                continue
            column = decoded[:, 0 if self.share_location else label]
            selected = self._suppress(column, conf[:, label])
            chosen.extend((float(conf[index, label]), label, index) for index in selected)
        if 0 < self.keep_top_k < len(chosen):
            chosen = sorted(chosen, key=lambda item: -item[0])[: self.keep_top_k]
            chosen.sort(key=lambda item: item[1])  # stable: scores stay descending within each class
        rows = np.empty((len(chosen), COLUMNS - 1), np.float32)
        for row, (score, label, index) in enumerate(chosen):
            rows[row, 0], rows[row, 1] = label, score
            rows[row, 2:] = decoded[index, 0 if self.share_location else label]
        return rows

    def _suppress(self, boxes: Array, scores: Array) -> list[int]:
        """Return the indices of the selected boxes of one class, in descending order of scores."""
        order = np.flatnonzero(scores > np.float32(self.confidence_threshold))
        order = order[np.argsort(-scores[order], kind="stable")]
        if self.nms_top_k >= 0:
            order = order[: self.nms_top_k]
        areas = _areas(boxes)
        threshold = np.float32(self.nms_threshold)
        selected: list[int] = []
        for index in order:
            if selected and np.any(_overlaps(boxes[index], areas[index], boxes[selected], areas[selected]) > threshold):
                continue
            selected.append(int(index))
            if self.nms_eta < 1 and threshold > np.float32(0.5):
                threshold = threshold * np.float32(self.nms_eta)
        return selected


def _elements(x: TensorType) -> int:
    """Number of elements per image."""
    count = 1
    for extent in x.shape[1:]:
        if not isinstance(extent, int):
            raise ShapeError(f"detection_output: {format_shape(x.shape)} must be known")
        count *= extent
    return count


def _areas(boxes: Array) -> Array:
    """Areas of boxes, 0 for a box whose corners are in the wrong order."""
    size = boxes[:, 2:] - boxes[:, :2]
    area: Array = np.where((size < 0).any(axis=1), np.float32(0), size[:, 0] * size[:, 1])
    return area


def _overlaps(box: Array, area: Array, others: Array, areas: Array) -> Array:
    """Intersection over union of one box with each of the others; 0 if they do not intersect."""
    low, high = np.maximum(box[:2], others[:, :2]), np.minimum(box[2:], others[:, 2:])
    size = high - low
    common = size[:, 0] * size[:, 1]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = common / (area + areas - common)
    overlap: Array = np.where((size > 0).all(axis=1), ratio, np.float32(0))
    return overlap
