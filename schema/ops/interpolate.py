"""interpolate: resize the two spatial axes."""

from __future__ import annotations

import enum
import math

import numpy as np

from tpuconvert.schema.arithmetic.fixed_point import rhaz
from tpuconvert.schema.definition.extents import scaled_floor, times
from tpuconvert.schema.definition.op import GLOBAL, ChipTable, Op, Operand, on, same, tpu_op
from tpuconvert.schema.definition.shape_checks import check_ranks
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.types import F16, F32, Array, Dim, TensorType


class PlatForm(enum.IntEnum):
    """Framework whose coordinate convention is used. CAFFE and PYTORCH are reserved: no chip accepts them."""

    CAFFE = 0
    TENSORFLOW = 1
    PYTORCH = 2
    OPENCV = 3


class InterpolateMode(enum.IntEnum):
    """Interpolation method between pixels."""

    NEAREST = 0
    BILINEAR = 1


_RELEASED = (PlatForm.TENSORFLOW, PlatForm.OPENCV)


def _dtype_table() -> ChipTable:
    cases = [
        same(dtype, when=lambda op: op.platform in _RELEASED, when_text="platform is TENSORFLOW or OPENCV")
        for dtype in (F32, F16)
    ]
    return on(bm1682=None, bm1684=None, bm1686=tuple(cases))


@tpu_op("interpolate", kw_only=True)
class Interpolate(Op):
    """Resize: result index o samples x at the position s(o) on both axes, with the nearest pixel or bilinearly.

    Coordinates and weights are computed in binary32.

    Half-pixel resizes of ONNX and TFLite are TENSORFLOW with ``half_pixel_centers``, corner-aligned ones (Caffe Interp
    too) with ``align_corners``, asymmetric ones with neither.

    Shapes: x [N, C, H, W], y [N, C, *size], or floor(extent * scale_factor) when ``size`` is empty.
    Source: docs/inside/semantics.md, section 16.
    """

    size: tuple[int, ...] = ()
    scale_factor: tuple[float, ...] = ()
    platform: PlatForm
    method: InterpolateMode
    align_corners: bool = False
    half_pixel_centers: bool = False

    inputs = (Operand("tensor_i", (4,), "NCHW"),)
    outputs = (Operand("tensor_o", (4,), "NCHW"),)
    dtypes = _dtype_table()
    locality = GLOBAL

    def __post_init__(self) -> None:
        object.__setattr__(self, "platform", PlatForm(self.platform))
        object.__setattr__(self, "method", InterpolateMode(self.method))
        if self.align_corners and self.half_pixel_centers:
            raise ValueError("interpolate: align_corners and half_pixel_centers exclude each other")
        if self.platform == PlatForm.OPENCV and (
            self.method != InterpolateMode.BILINEAR or self.align_corners or self.half_pixel_centers
        ):
            raise ValueError("interpolate: platform OPENCV is BILINEAR without flags")
        parameters = self.size or self.scale_factor
        if len(parameters) != 2 or not all(math.isfinite(item) and item > 0 for item in parameters):
            raise ValueError(f"interpolate: size or scale_factor needs two positive numbers, found {self}")

    def infer(self, x: TensorType) -> tuple[TensorType]:
        check_ranks(self, x)
        if self.size:
            height, width = self.size
            return (TensorType(x.dtype, (*x.shape[:2], height, width)),)
        extents = tuple(
            _scale_extent(extent, factor) for extent, factor in zip(x.shape[2:], self.scale_factor, strict=True)
        )
        if 0 in extents:
            raise ShapeError(f"interpolate: factors {self.scale_factor} leave nothing of {x}")
        return (TensorType(x.dtype, (*x.shape[:2], *extents)),)

    def reference(self, x: Array) -> tuple[Array]:
        height, width = self.infer(TensorType(F32, x.shape))[0].static_shape[2:]
        if self.method == InterpolateMode.NEAREST:
            rows, columns = self.nearest(x.shape[2], height), self.nearest(x.shape[3], width)
            return (np.take(np.take(x, rows, axis=2), columns, axis=3),)
        wide = x.astype(np.float32, copy=False)
        left, right, across = self.neighbours(x.shape[3], width)
        first = np.take(wide, left, axis=3)
        with np.errstate(all="ignore"):
            lines = first + (np.take(wide, right, axis=3) - first) * across
            above, below, down = self.neighbours(x.shape[2], height)
            top = np.take(lines, above, axis=2)
            result: Array = top + (np.take(lines, below, axis=2) - top) * down[:, None]
            return (result.astype(x.dtype, copy=False),)

    def nearest(self, extent: int, out: int) -> Array:
        """Index in x of each index of the result, with method NEAREST."""
        coordinates = self._coordinates(extent, out)
        rounds = self.platform == PlatForm.TENSORFLOW and self.align_corners
        index = rhaz(coordinates) if rounds else np.floor(coordinates)
        return np.clip(index, 0, extent - 1).astype(np.int64)

    def neighbours(self, extent: int, out: int) -> tuple[Array, Array, Array]:
        """Return the lower neighbor, the upper neighbor and the weight of the latter for every result index."""
        coordinates = self._coordinates(extent, out)
        floor = np.floor(coordinates)
        low = np.clip(floor, 0, extent - 1).astype(np.int64)
        high = np.minimum(np.ceil(coordinates), extent - 1).astype(np.int64)
        return low, high, coordinates - floor

    def _coordinates(self, extent: int, out: int) -> Array:
        """Position in x of every index of the result, in float32, rounded after each operation."""
        one, half = np.float32(1), np.float32(0.5)
        source, result = np.float32(extent), np.float32(out)
        index = np.arange(out, dtype=np.float32)
        corners = (source - one) / (result - one) if out > 1 else np.float32(0)
        match self.platform:
            case PlatForm.OPENCV:
                return (index + half) * (source / result) - half
            case PlatForm.CAFFE:
                return index * corners
            case PlatForm.PYTORCH:
                if self.method == InterpolateMode.NEAREST:
                    return index * (source / result)
                if self.align_corners:
                    return index * corners
                inside: Array = np.maximum((index + half) * (source / result) - half, np.float32(0))
                return inside
        ratio = corners if self.align_corners and out > 1 else source / result
        if not self.half_pixel_centers:
            return index * ratio
        centre = (index + half) * ratio
        return centre if self.method == InterpolateMode.NEAREST else centre - half


def _scale_extent(extent: Dim, factor: float) -> Dim:
    if isinstance(extent, int):
        return math.floor(extent * factor)
    return times(extent, int(factor)) if float(factor).is_integer() else scaled_floor(extent, factor)
