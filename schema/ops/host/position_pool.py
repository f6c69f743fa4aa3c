"""roi_position_pool: position-sensitive average pooling over regions of interest, on the host."""

from __future__ import annotations

import math

import numpy as np

from tpuconvert.schema.definition.extents import may_equal, shapes_of
from tpuconvert.schema.definition.op import Op, Operand, OpKind, on, tpu_op
from tpuconvert.schema.errors import ShapeError, UsageError
from tpuconvert.schema.types import F32, Array, TensorType

_SMALLEST_SIDE = 0.1
"""Smallest width and height of a region, in pixels."""


@tpu_op("roi_position_pool", OpKind.HOST, kw_only=True)
class RoiPositionPool(Op):
    """Divide every region into group_size x group_size cells; y is the mean of each cell's pixels, 0 if it has none.

    Cell (i, j) of result channel c reads channel (c * group_size + i) * group_size + j of x.

    Shapes: x [N, output_dim * group_size^2, H, W], rois [R, 5] as (image, x1, y1, x2, y2), inclusive corners;
    y [R, output_dim, group_size, group_size].
    Units: rois are rounded (ties away from zero), then multiplied by ``spatial_scale``, which gives pixels.
    Errors: UsageError if an image index is out of range.
    Source: Dai et al., R-FCN; its Caffe layer PSROIPooling.
    """

    output_dim: int
    group_size: int
    spatial_scale: float

    inputs = (Operand("tensor_i", (4,)), Operand("rois", (2,), coeff=True))
    dtypes = on(F32)

    def __post_init__(self) -> None:
        if min(self.output_dim, self.group_size) < 1 or not self.spatial_scale > 0:
            raise ValueError(f"roi_position_pool: a size below 1, or a scale of 0 or less, in {self}")

    def infer(self, x: TensorType, rois: TensorType) -> tuple[TensorType]:
        """Shapes: rois has five columns, x has one channel per cell and result channel."""
        channels = self.output_dim * self.group_size**2
        if not (may_equal(rois.shape[1], 5) and may_equal(x.shape[1], channels)):
            raise ShapeError(f"{self.name} needs x [N, {channels}, H, W] and rois [R, 5], got {shapes_of((x, rois))}")
        return (TensorType(x.dtype, (rois.shape[0], self.output_dim, self.group_size, self.group_size)),)

    def reference(self, x: Array, rois: Array) -> tuple[Array]:
        """Compute corners in binary32 and means in binary64."""
        images = rois[:, 0].astype(np.int64)
        outside = images[(images < 0) | (images >= len(x))]
        if outside.size:
            raise UsageError(f"{self.name}: image {outside[0]} of a batch of {len(x)}")
        size = self.group_size
        result = np.zeros((len(rois), self.output_dim, size, size), np.float32)
        low, high = self._corners(rois[:, 1:3]), self._corners(rois[:, 3:5] + np.float32(1))
        for number, image in enumerate(images):
            columns = self._cells(low[number, 0], high[number, 0], x.shape[3])
            rows = self._cells(low[number, 1], high[number, 1], x.shape[2])
            planes = x[image].reshape(self.output_dim, size, size, *x.shape[2:])
            for row, column in np.ndindex(size, size):
                cell = planes[:, row, column, rows[row], columns[column]]
                if cell.size:
                    result[number, :, row, column] = cell.mean(axis=(1, 2), dtype=np.float64)
        return (result,)

    def _corners(self, corners: Array) -> Array:
        wide = corners.astype(np.float32)
        rounded = np.sign(wide) * np.floor(np.abs(wide) + np.float32(0.5))
        scaled: Array = rounded * np.float32(self.spatial_scale)
        return scaled

    def _cells(self, first: float, last: float, extent: int) -> list[slice]:
        """Pixels of every cell along one axis. Adjacent cells share the pixel that their common edge crosses."""
        start = np.float32(first)
        side = np.maximum(np.float32(last) - start, np.float32(_SMALLEST_SIDE)) / np.float32(self.group_size)
        edges = [start + np.float32(k) * side for k in range(self.group_size + 1)]
        starts = [min(max(math.floor(edge), 0), extent) for edge in edges[:-1]]
        ends = [min(max(math.ceil(edge), 0), extent) for edge in edges[1:]]
        return [slice(start, end) for start, end in zip(starts, ends, strict=True)]
