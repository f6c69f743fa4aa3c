"""Pooling over regions of interest on the host: roi_align with bilinear samples, roi_max_pool over whole pixels."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

import numpy as np

from tpuconvert.schema.definition.extents import may_equal, shapes_of
from tpuconvert.schema.definition.op import Op, Operand, OpKind, case, on, tpu_op
from tpuconvert.schema.errors import ShapeError, UsageError
from tpuconvert.schema.types import F32, I32, Array, TensorType


class RegionMode(enum.IntEnum):
    """Reduction of the samples of a cell."""

    AVERAGE = 0
    MAXIMUM = 1


def _check_image(op: Op, indices: Array, count: int) -> None:
    outside = indices[(indices < 0) | (indices >= count)]
    if outside.size:
        raise UsageError(f"{op.name}: image {outside[0]} of a batch of {count}")


@dataclass(frozen=True)
class _Taps:
    """Samples along one axis: indices of two pixels each, their weights (0 outside of the image), samples per cell."""

    low: Array
    high: Array
    low_weight: Array
    high_weight: Array
    per_cell: int


_MOST_SAMPLES = 1 << 10  # per cell and axis; exporters write 0 to 4
_FAR = 1e15  # coordinates of corners
_MOST_OF_AXIS = 1 << 20  # pixels, and samples, along one axis of a region
_MOST_OF_REGION = 1 << 24  # samples per channel, 16 per pixel of a region of 1,024 x 1,024 pixels


@tpu_op("roi_align", OpKind.HOST, kw_only=True)
class RoiAlign(Op):
    """Divide every region into cells; y is the mean or the maximum of bilinear samples in each cell.

    MAXIMUM is the largest weighted pixel of all samples, not the largest sample, as ONNX defines it.

    Shapes: x [N, C, H, W], rois [R, 4] as (x1, y1, x2, y2), images [R]; y [R, C, output_height, output_width].
    Units: rois times ``spatial_scale`` are pixels; with ``half_pixel`` pixel centers are at .5. ``sampling_ratio`` is
    the number of samples per cell and axis; 0 means the size of a cell in pixels, rounded up. Evaluated in binary64.
    Errors: UsageError if an image index is out of range, or a region has too many samples.
    Source: ONNX RoiAlign-16.
    """

    output_height: int = 1
    output_width: int = 1
    sampling_ratio: int = 0
    spatial_scale: float = 1.0
    mode: RegionMode = RegionMode.AVERAGE
    half_pixel: bool = True

    inputs = (Operand("tensor_i", (4,)), Operand("rois", (2,), coeff=True), Operand("images", (1,), coeff=True))
    dtypes = on(case({"tensor_i": (F32,), "rois": (F32,), "images": (I32,), "tensor_o": (F32,)}))

    def __post_init__(self) -> None:
        object.__setattr__(self, "mode", RegionMode(self.mode))
        if min(self.output_height, self.output_width) < 1 or not 0 <= self.sampling_ratio <= _MOST_SAMPLES:
            raise ValueError(
                f"roi_align: output {self.output_height} x {self.output_width}, sampling_ratio {self.sampling_ratio}"
            )

    def infer(self, x: TensorType, rois: TensorType, images: TensorType) -> tuple[TensorType]:
        """Shapes: rois has four columns and as many rows as images."""
        if not (may_equal(rois.shape[1], 4) and may_equal(rois.shape[0], images.shape[0])):
            raise ShapeError(f"{self.name} needs rois [R, 4] and images [R], got {shapes_of((rois, images))}")
        return (TensorType(x.dtype, (rois.shape[0], x.shape[1], self.output_height, self.output_width)),)

    def reference(self, x: Array, rois: Array, images: Array) -> tuple[Array]:
        """Compute region by region."""
        _check_image(self, images, len(x))
        result = np.zeros((len(rois), x.shape[1], self.output_height, self.output_width), np.float32)
        shift = 0.5 if self.half_pixel else 0.0
        corners = rois.astype(np.float64) * self.spatial_scale - shift
        self._check_pixels(rois.astype(np.float64))
        for number, (x1, y1, x2, y2) in enumerate(corners):
            image = x[images[number]].astype(np.float64)
            rows = self._taps(y1, y2, self.output_height, image.shape[1])
            columns = self._taps(x1, x2, self.output_width, image.shape[2])
            if rows.low.size * columns.low.size > _MOST_OF_REGION:
                raise self._too_large(max(x2 - x1, y2 - y1))
            result[number] = self._pool(image, rows, columns)
        return (result,)

    def _check_pixels(self, rois: Array) -> None:
        sizes = (rois[:, 2:] - rois[:, :2]) * self.spatial_scale
        is_small = (sizes < _MOST_OF_AXIS) & (np.abs(rois[:, 2:]) < _FAR) & (np.abs(rois[:, :2]) < _FAR)
        if not is_small.all():
            raise self._too_large(sizes[~is_small][0])

    def _too_large(self, pixels: float) -> UsageError:
        return UsageError(f"{self.name}: a region of {pixels:g} pixels has too many samples")

    def _taps(self, start: float, end: float, cells: int, extent: int) -> _Taps:
        size = end - start if self.half_pixel else max(end - start, 1.0)
        per_cell = self.sampling_ratio or max(math.ceil(size / cells), 0)
        if per_cell > _MOST_OF_AXIS // cells:
            raise self._too_large(size)
        steps = (np.arange(per_cell) + 0.5) / max(per_cell, 1)
        coordinates = (start + (np.arange(cells)[:, None] + steps) * (size / cells)).reshape(-1)
        counts = (coordinates >= -1) & (coordinates <= extent)
        coordinates = np.clip(coordinates, 0, extent - 1)
        low = np.floor(coordinates).astype(np.int64)
        part = coordinates - low
        return _Taps(low, np.minimum(low + 1, extent - 1), (1 - part) * counts, part * counts, per_cell)

    def _pool(self, image: Array, rows: _Taps, columns: _Taps) -> Array:
        """Reduce the samples of every cell. Shape of the result: [C, output_height, output_width]."""
        parts = [
            image[:, row][:, :, column] * row_weight[:, None] * column_weight
            for row, row_weight in ((rows.low, rows.low_weight), (rows.high, rows.high_weight))
            for column, column_weight in ((columns.low, columns.low_weight), (columns.high, columns.high_weight))
        ]
        samples = np.maximum.reduce(parts) if self.mode is RegionMode.MAXIMUM else sum(parts)
        cells = (self.output_height, rows.per_cell, self.output_width, columns.per_cell)
        grouped = np.asarray(samples).reshape(len(image), *cells)
        if 0 in cells:
            return np.zeros((len(image), self.output_height, self.output_width))
        pooled: Array = grouped.max(axis=(2, 4)) if self.mode is RegionMode.MAXIMUM else grouped.mean(axis=(2, 4))
        return pooled


@tpu_op("roi_max_pool", OpKind.HOST, kw_only=True)
class RoiMaxPool(Op):
    """Divide every region, rounded to pixels, into cells; y is the largest pixel of each cell, 0 if it has none.

    Shapes: x [N, C, H, W], rois [R, 5] as (image, x1, y1, x2, y2), inclusive corners; y [R, C, height, width].
    Units: rois times ``spatial_scale`` are pixels; ties round away from zero. A region has at least one pixel.
    Errors: UsageError if an image index is out of range.
    Source: Girshick, Fast R-CNN; ONNX MaxRoiPool-1.
    """

    output_height: int = 1
    output_width: int = 1
    spatial_scale: float = 1.0

    inputs = (Operand("tensor_i", (4,)), Operand("rois", (2,), coeff=True))
    dtypes = on(F32)

    def __post_init__(self) -> None:
        if min(self.output_height, self.output_width) < 1 or not math.isfinite(self.spatial_scale):
            raise ValueError(
                f"roi_max_pool: output {self.output_height} x {self.output_width}, spatial_scale {self.spatial_scale}"
            )

    def infer(self, x: TensorType, rois: TensorType) -> tuple[TensorType]:
        """Shapes: rois has five columns."""
        if not may_equal(rois.shape[1], 5):
            raise ShapeError(f"{self.name} needs rois [R, 5], got {shapes_of((rois,))}")
        return (TensorType(x.dtype, (rois.shape[0], x.shape[1], self.output_height, self.output_width)),)

    def reference(self, x: Array, rois: Array) -> tuple[Array]:
        """Compute cell by cell."""
        images = np.where(np.abs(rois[:, 0]) < _FAR, rois[:, 0], -1).astype(np.int64)  # NaN is not an image index
        _check_image(self, images, len(x))
        result = np.zeros((len(rois), x.shape[1], self.output_height, self.output_width), np.float32)
        scaled = rois[:, 1:].astype(np.float32) * np.float32(self.spatial_scale)
        rounded = np.sign(scaled) * np.floor(np.abs(scaled) + np.float32(0.5))
        # What lies farther is outside of every image; NaN is, too.
        corners = np.clip(np.nan_to_num(rounded, nan=-_FAR), -_FAR, _FAR).astype(np.int64)
        for number, (x1, y1, x2, y2) in enumerate(corners.tolist()):
            image = x[images[number]]
            rows = _cells(y1, y2, self.output_height, image.shape[1])
            columns = _cells(x1, x2, self.output_width, image.shape[2])
            for row, column in np.ndindex(self.output_height, self.output_width):
                cell = image[:, rows[row], columns[column]]
                if cell.size:
                    result[number, :, row, column] = cell.max(axis=(1, 2))
        return (result,)


def _cells(first: int, last: int, count: int, extent: int) -> list[slice]:
    """Return the pixels of every cell along one axis. Cells overlap if ``count`` does not divide the size."""
    size = np.float32(max(last - first + 1, 1)) / np.float32(count)
    starts = [int(np.clip(first + math.floor(k * size), 0, extent)) for k in range(count)]
    ends = [int(np.clip(first + math.ceil((k + 1) * size), 0, extent)) for k in range(count)]
    return [slice(start, end) for start, end in zip(starts, ends, strict=True)]
