"""pool_int: two-dimensional integer pooling with optional rescale, and the indices of maxima."""

from __future__ import annotations

import abc
import enum
import math
from collections.abc import Sequence

import numpy as np

from tpuconvert.schema.arithmetic.fixed_point import rrs, saturate
from tpuconvert.schema.arithmetic.pooling import Span, divide_half_away, first_maxima, window_counts, window_sum
from tpuconvert.schema.definition.dtype_rules import POOL_INT_SAME
from tpuconvert.schema.definition.op import LOCAL, Extents, Op, Operand, case, on_bm1686, tpu_op
from tpuconvert.schema.definition.shape_checks import check_ranks, window_extent
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.types import I8, I16, I32, U8, Array, Dim, DType, TensorType

_DATA = (I8, U8, I16)


class OutCeilMode(enum.IntEnum):
    """Rounding of the number of windows along an axis."""

    floor = 0
    ceil = 1


class PoolQuantMode(enum.IntEnum):
    """Method of averaging: exact division, ties away from zero; or multiplier and right shift, ties up."""

    DIVIDE = 1
    MULTIPLIER_SHIFT = 2


class IntegerPooling(Op, abc.ABC):
    """Base of pool_int and pool3d_int, for any number of axes."""

    is_avg_pooling: bool
    out_ceil_mode: OutCeilMode
    quant_mode: PoolQuantMode
    scale: int
    rshift: int

    dtypes = on_bm1686(
        case({"tensor_i": _DATA, "tensor_o": _DATA, "tensor_mask": (I32,)}, POOL_INT_SAME, compute="EXACT_INT")
    )
    locality = LOCAL

    @property
    @abc.abstractmethod
    def _kernel(self) -> tuple[int, ...]:
        """Extents of a window."""

    @property
    @abc.abstractmethod
    def _strides(self) -> tuple[int, ...]:
        """Positions from one window to the next, per axis."""

    @property
    @abc.abstractmethod
    def _pads(self) -> tuple[tuple[int, int], ...]:
        """Padding before and after the image, per axis."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "out_ceil_mode", OutCeilMode(self.out_ceil_mode))
        object.__setattr__(self, "quant_mode", PoolQuantMode(self.quant_mode))
        if min(*self._kernel, *self._strides) < 1:
            raise ValueError(f"{self.name}: kernel and strides must be at least 1, found {self}")
        if min(map(min, self._pads)) < 0:
            raise ValueError(f"{self.name}: pads must not be negative, found {self}")
        if not (I32.holds(self.scale) and 0 <= self.rshift <= 63):
            raise ValueError(f"{self.name}: scale is INT32 and rshift 0..63, found {self}")

    def count_macs(self, operands: Sequence[Extents], results: Sequence[Extents]) -> int:
        """One MAC per element of every window."""
        return math.prod(results[0]) * math.prod(self._kernel)

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        check_ranks(self, x)
        axes = zip(x.shape[2:], self._pads, self._kernel, self._strides, strict=True)
        y = TensorType(x.dtype, (*x.shape[:2], *(self.count(x, *axis) for axis in axes)))
        return (y,) if self.is_avg_pooling else (y, TensorType(I32, y.shape))

    def count(self, x: TensorType, extent: Dim, pads: tuple[int, int], kernel: int, stride: int) -> Dim:
        """Number of windows along one axis.

        Raises:
            ShapeError: no window fits, or a window has no element inside the image.
        """
        is_ceil = self.out_ceil_mode is OutCeilMode.ceil
        count = window_extent(self, extent, sum(pads), kernel, stride, x, ceil=is_ceil)
        if isinstance(count, int) and isinstance(extent, int):
            # The first window if it is all padding, else the first one that begins after the image.
            outside = 0 if kernel <= pads[0] else -(-(extent + pads[0]) // stride)
            if outside < count:
                raise ShapeError(f"{self}: window {outside} holds no element of the image, got {x}")
        return count

    def average(self, total: Array, counts: Array, dtype: DType) -> Array:
        """Convert exact sums to averages, rounded and saturated."""
        if self.quant_mode is PoolQuantMode.DIVIDE:
            return saturate(divide_half_away(total, counts), dtype)
        # |total| < 2^31 for windows of up to 2^16 elements: the product fits into INT64.
        return saturate(rrs(total * self.scale, self.rshift), dtype)


@tpu_op("pool_int", kw_only=True)
class PoolInt(IntegerPooling):
    """Average or maximum of every window, over its elements inside the image, without padding.

    Average pooling has one result. Maximum pooling has two: y, and the index h*W + w of the first maximum of every
    window in its plane, INT32.

    Shapes: x [N, C, H, W], y [N, C, oh, ow] with oh = floor((H + pad_h_t + pad_h_b - kernel_h) / stride_h) + 1, or ceil
    with ``out_ceil_mode``.
    Errors: ShapeError if a window has no element inside the image.
    """

    stride_h: int
    stride_w: int
    pad_h_t: int = 0
    pad_h_b: int = 0
    pad_w_l: int = 0
    pad_w_r: int = 0
    kernel_h: int
    kernel_w: int
    is_avg_pooling: bool
    out_ceil_mode: OutCeilMode = OutCeilMode.floor
    quant_mode: PoolQuantMode = PoolQuantMode.DIVIDE
    scale: int = 1
    rshift: int = 0

    inputs = (Operand("tensor_i", (4,), "NCHW"),)
    outputs = (Operand("tensor_o", (4,), "NCHW"), Operand("tensor_mask", (4,), "NCHW", optional=True))

    @property
    def _kernel(self) -> tuple[int, int]:
        return self.kernel_h, self.kernel_w

    @property
    def _strides(self) -> tuple[int, int]:
        return self.stride_h, self.stride_w

    @property
    def _pads(self) -> tuple[tuple[int, int], tuple[int, int]]:
        return (self.pad_h_t, self.pad_h_b), (self.pad_w_l, self.pad_w_r)

    def reference(self, x: Array) -> tuple[Array, ...]:
        dtype = DType.of(x.dtype)
        oh, ow = self.infer(TensorType(dtype, x.shape))[0].static_shape[2:]
        down = Span(x.shape[2], oh, self.kernel_h, self.stride_h, self.pad_h_t)
        along = Span(x.shape[3], ow, self.kernel_w, self.stride_w, self.pad_w_l)
        if not self.is_avg_pooling:
            largest, places = first_maxima(x.astype(np.int32), down, along)
            return largest.astype(x.dtype), places
        return (self.average(window_sum(x, down, along), window_counts(down, along), dtype),)
