"""pool3d_int: three-dimensional integer pooling with optional rescale, and the indices of maxima."""

from __future__ import annotations

import numpy as np

from tpuconvert.schema.arithmetic.pooling import Span, first_maxima, window_counts, window_sum
from tpuconvert.schema.definition.op import Operand, tpu_op
from tpuconvert.schema.ops.pool_int import IntegerPooling, OutCeilMode, PoolQuantMode
from tpuconvert.schema.types import Array, DType, TensorType


@tpu_op("pool3d_int", kw_only=True)
class Pool3dInt(IntegerPooling):
    """Average or maximum of every window, over its elements inside the volume, without padding.

    Average pooling has one result. Maximum pooling has two: y, and the index (t*H + h)*W + w of the first maximum of
    every window in its channel, INT32.

    Shapes: x [N, C, T, H, W], y [N, C, ot, oh, ow] with ot = floor((T + pad_t_0 + pad_t_1 - kernel_t) / stride_t) + 1,
    or ceil with ``out_ceil_mode``; oh and ow alike.
    Errors: ShapeError if a window has no element inside the volume.
    """

    stride_t: int
    stride_h: int
    stride_w: int
    pad_t_0: int = 0
    pad_t_1: int = 0
    pad_h_0: int = 0
    pad_h_1: int = 0
    pad_w_0: int = 0
    pad_w_1: int = 0
    kernel_t: int
    kernel_h: int
    kernel_w: int
    is_avg_pooling: bool
    out_ceil_mode: OutCeilMode = OutCeilMode.floor
    quant_mode: PoolQuantMode = PoolQuantMode.DIVIDE
    scale: int = 1
    rshift: int = 0

    inputs = (Operand("tensor_i", (5,), "NCTHW"),)
    outputs = (Operand("tensor_o", (5,), "NCTHW"), Operand("tensor_mask", (5,), "NCTHW", optional=True))

    @property
    def _kernel(self) -> tuple[int, int, int]:
        return self.kernel_t, self.kernel_h, self.kernel_w

    @property
    def _strides(self) -> tuple[int, int, int]:
        return self.stride_t, self.stride_h, self.stride_w

    @property
    def _pads(self) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int]]:
        return (self.pad_t_0, self.pad_t_1), (self.pad_h_0, self.pad_h_1), (self.pad_w_0, self.pad_w_1)

    def reference(self, x: Array) -> tuple[Array, ...]:
        """Pool within planes first. Then pool along t, where the results of a plane are flattened to one axis."""
        dtype = DType.of(x.dtype)
        n, c, _, height, width = x.shape
        shape = self.infer(TensorType(dtype, x.shape))[0].static_shape
        axes = zip(x.shape[2:], shape[2:], self._kernel, self._strides, self._pads, strict=True)
        along_t, down, along = (Span(size, count, kernel, step, pads[0]) for size, count, kernel, step, pads in axes)
        size = shape[3] * shape[4]
        line = Span(size, size, 1, 1, 0)
        planes = x.reshape(n, -1, height, width)
        if self.is_avg_pooling:
            lines = window_sum(planes, down, along).reshape(n, c, -1, size)
            counts = along_t.elements()[:, None, None] * window_counts(down, along)
            return (self.average(window_sum(lines, along_t, line).reshape(shape), counts, dtype),)
        largest, places = first_maxima(planes.astype(np.int32), down, along)
        largest, first = first_maxima(largest.reshape(n, c, -1, size), along_t, line)
        t = first // size
        inside = np.take_along_axis(places.reshape(n, c, -1, size), t, axis=2)
        mask = t * (height * width) + inside
        return largest.reshape(shape).astype(x.dtype), mask.reshape(shape).astype(np.int32)
