"""global_average_int: average of all pixels of a channel, whose number is symbolic, with a change of scale."""

from __future__ import annotations

import enum

import numpy as np

from tpuconvert.schema.arithmetic.fixed_point import multiplier_shift
from tpuconvert.schema.definition.op import Operand, OpKind, on, tpu_op
from tpuconvert.schema.definition.shape_checks import check_ranks
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.graph.deferred import DeferredOp
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops import formulas as f
from tpuconvert.schema.ops.convolution.conv import Conv, QCalMode
from tpuconvert.schema.ops.convolution.conv_v2 import ConvV2
from tpuconvert.schema.ops.pool_int import PoolInt, PoolQuantMode
from tpuconvert.schema.ops.quantization.requant_int32 import RequantInt32, RequantMode
from tpuconvert.schema.types import I8, I16, U8, DType, ScaleError, TensorType


class AverageForm(enum.IntEnum):
    """Operators that compute an average: pool_int; exact sums and requant_int32; or conv with a float scale."""

    POOL = 0
    SUMS = 1
    SCALED_CONV = 2


@tpu_op("global_average_int", OpKind.COMPOSITE, kw_only=True)
class GlobalAverageInt(DeferredOp):
    """Average of integers over the axes H and W while they are symbolic, as integers of another scale.

    The divisor ``H * W`` is part of the multiplier that changes the scale, so that the result is rounded once.

    Shapes: x [N, C, H, W], y [N, C, 1, 1].
    Units: ``operand_scales`` has one value, or one per channel.
    """

    operand_scales: tuple[float, ...]
    result_scale: float
    operand_zero_point: int = 0
    result_zero_point: int = 0
    form: AverageForm
    out_dtype: DType

    inputs = (Operand("tensor_i", (4,), "NCHW"),)
    dtypes = on(bm1682=None, bm1684=(I8, U8), bm1686=(I8, U8, I16))

    def __post_init__(self) -> None:
        object.__setattr__(self, "form", AverageForm(self.form))
        if min(*self.operand_scales, self.result_scale) <= 0:
            raise ScaleError(f"{self.name}: scales must be positive, found {self}")

    def infer(self, x: TensorType) -> tuple[TensorType]:
        """Shapes: y has one element per channel."""
        check_ranks(self, x)
        if not x.dtype.is_integer:
            raise ShapeError(f"{self.name} takes integers, got {x}")
        return (TensorType(self.out_dtype, (*x.shape[:2], 1, 1)),)

    def expand(self, g: Graph, x: Value) -> tuple[Value]:
        """Expand to one of the forms, with the divisor of these extents."""
        _, channels, height, width = f.extents(self, x)
        if self.form is AverageForm.POOL:
            op = average_pool(max(self.operand_scales) / (self.result_scale * height * width), height, width)
            return (g.add(op, x),)
        ones = g.constant(np.ones((channels, 1, height, width), np.int8), "ones")
        divisor = self.result_scale * (height * width)
        if self.form is AverageForm.SCALED_CONV:
            scale = float(np.float32(max(self.operand_scales) / (self.result_scale * height * width)))
            mode = QCalMode.HighPrecisionSymmetric
            return (g.add(Conv(groups=channels, scale=scale, mode=mode, out_dtype=self.out_dtype), x, ones),)
        total = g.add(ConvV2(izp_val=self.operand_zero_point, groups=channels), x, ones)
        # Multipliers are rounded to the 24 bits of binary32, as the multipliers of all calibrated scales are.
        pairs = [multiplier_shift(float(np.float32(scale / divisor))) for scale in self.operand_scales]
        return (g.add(self._requantize(pairs), total),)

    def _requantize(self, pairs: list[tuple[int, int]]) -> RequantInt32:
        per_channel = len(pairs) > 1
        return RequantInt32(
            is_mul_shift_pc=per_channel,
            multiplier_val=1 if per_channel else pairs[0][0],
            shift_val=0 if per_channel else pairs[0][1] - 31,
            multiplier_vec=tuple(multiplier for multiplier, _ in pairs) if per_channel else (),
            shift_vec=tuple(shift - 31 for _, shift in pairs) if per_channel else (),
            offset_val=self.result_zero_point,
            mode=RequantMode.MULTIPLIER_SHIFT,
            out_dtype=self.out_dtype,
        )


def average_pool(factor: float, height: int, width: int, strides: tuple[int, int] = (1, 1)) -> PoolInt:
    """Average pooling of windows whose sums are multiplied by a factor.

    Raises:
        ValueError: the factor is too large or too small for a 31-bit multiplier and a shift.
    """
    scale, exponent = multiplier_shift(factor)
    return PoolInt(
        stride_h=strides[0],
        stride_w=strides[1],
        kernel_h=height,
        kernel_w=width,
        is_avg_pooling=True,
        quant_mode=PoolQuantMode.MULTIPLIER_SHIFT,
        scale=scale,
        rshift=31 - exponent,
    )
