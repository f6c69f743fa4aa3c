"""pool: two-dimensional max or average pooling."""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence

import numpy as np

from tpuconvert.schema.arithmetic.fixed_point import saturate
from tpuconvert.schema.arithmetic.pooling import Span, divide_half_away, window_counts, window_max, window_sum
from tpuconvert.schema.definition.extents import ceil_div, plus
from tpuconvert.schema.definition.op import LOCAL, Extents, Op, Operand, Trait, on, tpu_op
from tpuconvert.schema.definition.shape_checks import check_ranks, window_extent
from tpuconvert.schema.types import F16, F32, I8, U8, Array, Dim, DType, TensorType


class PoolType(enum.IntEnum):
    """Reduction of a window. UNKNOWN is reserved."""

    MAX = 0
    AVE = 1
    UNKNOWN = 2


@tpu_op("pool", kw_only=True)
class Pool(Op):
    """Maximum or average of every window.

    The window of result (i, j) starts at row i*stride_h - pad_h and is clipped to the padded image. An average divides
    by the number of elements of the clipped window, including padding (``is_ave_count_zero_pad``), or of those inside
    the image. Averages of integers round ties away from zero.

    Shapes: x [N, C, H, W], y [N, C, oh, ow] with
    oh = floor((H + 2*pad_h + pad_h_offset - kernel_h) / stride_h) + 1, or ceil with ``is_ceil_mode``; one less with
    ``ensure_pool_image`` when the last window would start at or beyond the end of leading padding plus image. With
    ``is_global_pooling`` oh = ow = 1, and kernel, strides and pads are ignored; without it the kernel must be given.
    """

    stride_h: int
    stride_w: int
    pad_h: int = 0
    pad_w: int = 0
    pad_h_offset: int = 0
    pad_w_offset: int = 0
    kernel_h: int = 0
    kernel_w: int = 0
    pooling_type: PoolType = PoolType.MAX
    is_global_pooling: bool = False
    is_ceil_mode: bool = False
    is_ave_count_zero_pad: bool = True
    ensure_pool_image: bool = False

    inputs = (Operand("tensor_i", (4,), "NCHW"),)
    outputs = (Operand("tensor_o", (4,), "NCHW"),)
    dtypes = on(bm1682=(F32,), bm1684=(F32, I8, U8), bm1686=(F32, F16, I8, U8))
    locality = LOCAL
    traits = Trait.KEEPS_SIGN

    def __post_init__(self) -> None:
        object.__setattr__(self, "pooling_type", PoolType(self.pooling_type))
        if self.pooling_type is PoolType.UNKNOWN:
            raise ValueError("pool: pooling_type UNKNOWN is reserved")
        if not self.is_global_pooling and min(self.stride_h, self.stride_w, self.kernel_h, self.kernel_w) < 1:
            raise ValueError(f"pool: kernel and strides must be at least 1, found {self}")
        trailing = self.pad_h + self.pad_h_offset, self.pad_w + self.pad_w_offset
        if min(self.pad_h, self.pad_w, *trailing) < 0:
            raise ValueError(f"pool: pads must not be negative, found {self}")

    def count_macs(self, operands: Sequence[Extents], results: Sequence[Extents]) -> int:
        """One MAC per element of every window."""
        return (
            math.prod(operands[0]) if self.is_global_pooling else math.prod(results[0]) * self.kernel_h * self.kernel_w
        )

    def infer(self, x: TensorType) -> tuple[TensorType]:
        check_ranks(self, x)
        n, c, h, w = x.shape
        if self.is_global_pooling:
            return (TensorType(x.dtype, (n, c, 1, 1)),)
        down = self._extent(x, h, self.pad_h, self.pad_h_offset, self.kernel_h, self.stride_h)
        along = self._extent(x, w, self.pad_w, self.pad_w_offset, self.kernel_w, self.stride_w)
        return (TensorType(x.dtype, (n, c, down, along)),)

    def _extent(self, x: TensorType, extent: Dim, pad: int, offset: int, kernel: int, stride: int) -> Dim:
        count = window_extent(self, extent, 2 * pad + offset, kernel, stride, x, ceil=self.is_ceil_mode)
        if self.ensure_pool_image:
            if isinstance(count, int) and isinstance(extent, int):
                return count - 1 if (count - 1) * stride >= extent + pad else count
            if self._may_start_outside(pad + offset, kernel, stride):
                return f"min({count},{ceil_div(plus(extent, pad), stride)})"
        return count

    def _may_start_outside(self, trailing: int, kernel: int, stride: int) -> bool:
        """Return True if there is an extent of the image for which the last window starts after the image.

        The last window starts at most ``trailing - kernel`` elements after the image, in ceil mode ``stride - 1`` more.
        """
        return trailing - kernel + (stride - 1 if self.is_ceil_mode else 0) >= 0

    def _spans(self, shape: Sequence[int]) -> tuple[Span, Span]:
        """Return the windows along H and W of an operand [N, C, H, W]."""
        height, width = shape[2:]
        if self.is_global_pooling:
            return Span(height, 1, height, 1, 0), Span(width, 1, width, 1, 0)
        rows, columns = self.infer(TensorType(DType.FLOAT32, tuple(shape)))[0].static_shape[2:]
        return (
            Span(height, rows, self.kernel_h, self.stride_h, self.pad_h),
            Span(width, columns, self.kernel_w, self.stride_w, self.pad_w),
        )

    def element_counts(self, shape: Sequence[int]) -> Array:
        """Return the divisors of an average of an operand [N, C, H, W]: [oh, ow]."""
        after = (0, 0) if self.is_global_pooling else (self.pad_h + self.pad_h_offset, self.pad_w + self.pad_w_offset)
        return window_counts(*self._spans(shape), after, with_padding=self.is_ave_count_zero_pad)

    def reference(self, x: Array) -> tuple[Array]:
        dtype = DType.of(x.dtype)
        spans = self._spans(x.shape)
        if self.pooling_type == PoolType.MAX:
            return (window_max(x, *spans),)
        total, count = window_sum(x, *spans), self.element_counts(x.shape)
        if dtype.is_float:
            with np.errstate(all="ignore"):
                total /= np.maximum(count, 1)
                return (total.astype(x.dtype),)
        return (saturate(divide_half_away(total, count), dtype),)
