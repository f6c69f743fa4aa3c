"""Atomic dequantization: tpu_bdc_int_dequant and tpu_bdc_fp32_dequant, and ``pc`` forms with per-channel parameters.

dequant_int_to_fp32 computes the same as tpu_bdc_fp32_dequant, but its offset may exceed the range of x.
"""

from __future__ import annotations

import numpy as np

from tpuconvert.schema.arithmetic.fixed_point import RoundingMode, Shift, rescale_one_rounding, saturate
from tpuconvert.schema.arithmetic.rescaling import dequantize
from tpuconvert.schema.definition.op import LOCAL, Arrays, Op, OpKind, Types, tpu_op
from tpuconvert.schema.ops.atomic.operands import (
    RESULT,
    SOURCE,
    check_atomic,
    check_offset,
    check_per_channel,
    check_range,
    per_channel_operand,
)
from tpuconvert.schema.ops.atomic.requant import (
    HIGHEST_SHIFT,
    LOWEST_SHIFT,
    bdc_dtypes,
    check_multiplier_shift,
    per_channel,
)
from tpuconvert.schema.ops.shifts.arithmetic_shift import check_rounding
from tpuconvert.schema.types import F32, I8, I16, I32, U8, U16, Array, DType, TensorType

_SOURCES = (I16, U16, I8, U8)
_INTEGERS = (I32, I16, U16)


class Dequantization(Op):
    """Base of the four operators, which checks the rounding mode."""

    outputs = (RESULT,)
    locality = LOCAL

    rounding_mode: RoundingMode

    def __post_init__(self) -> None:
        object.__setattr__(self, "rounding_mode", check_rounding(self, self.rounding_mode))


def _rescale(x: Array, offset: int | Array, multiplier: int | Array, shift: Shift, mode: RoundingMode) -> Array:
    """Compute ``(x - offset) * multiplier * 2^shift``. The product is exact: 17 bits times 32 bits fit into INT64."""
    return rescale_one_rounding(x.astype(np.int64) - offset, multiplier, shift, mode)


@tpu_op("tpu_bdc_int_dequant", OpKind.ATOMIC, kw_only=True)
class TpuBdcIntDequant(Dequantization):
    """``y = sat((x - offset) * multiplier * 2^shift)``, rounded once by ``rounding_mode``.

    Shapes: x [N, C, H, W], y the same.
    Units: a positive shift is to the left; -64 to 31. The offset is INT16 for a signed x, UINT16 for an unsigned one.
    ``out_dtype`` None means INT32.
    """

    offset: int
    multiplier: int
    shift: int
    rounding_mode: RoundingMode
    out_dtype: DType | None = None

    inputs = (SOURCE,)
    dtypes = bdc_dtypes(src=_SOURCES, dst=_INTEGERS)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_multiplier_shift(self, self.multiplier, self.shift)

    def infer(self, x: TensorType) -> tuple[TensorType]:
        check_atomic(self, x)
        check_offset(self, self.offset, I16, U16, x.dtype)
        return (TensorType(self.out_dtype or I32, x.shape),)

    def reference(self, x: Array) -> tuple[Array]:
        rescaled = _rescale(x, self.offset, self.multiplier, self.shift, self.rounding_mode)
        return (saturate(rescaled, self.out_dtype or I32),)


@tpu_op("tpu_bdc_int_pc_dequant", OpKind.ATOMIC, kw_only=True)
class TpuBdcIntPcDequant(Dequantization):
    """tpu_bdc_int_dequant with per-channel parameters.

    Shapes: x [N, C, H, W], quant [1, C, 1, 3] with offset, multiplier and shift (requantization has another order),
    y as x.
    Units: as tpu_bdc_int_dequant. An offset or shift out of range is an error when the model runs, or at conversion if
    quant is constant.
    ``out_dtype`` None means INT32.
    """

    rounding_mode: RoundingMode
    out_dtype: DType | None = None

    inputs = (SOURCE, per_channel_operand("quant"))
    dtypes = bdc_dtypes(src=_SOURCES, dst=_INTEGERS, quant=(I32,))

    def infer(self, x: TensorType, quant: TensorType) -> tuple[TensorType]:
        check_atomic(self, x)
        check_per_channel(self, x, quant, 3)
        return (TensorType(self.out_dtype or I32, x.shape),)

    def check_values(self, types: Types, arrays: Arrays) -> None:
        """Check the ranges of offsets and shifts."""
        (x, _), (_, quant) = types, arrays
        if x is not None and quant is not None:
            offsets = I16 if x.dtype.is_signed else U16
            check_range(self, "offset", quant[..., 0], offsets.min, offsets.max)
            check_range(self, "shift", quant[..., 2], LOWEST_SHIFT, HIGHEST_SHIFT)

    def reference(self, x: Array, quant: Array) -> tuple[Array]:
        offset, multiplier, shift = (per_channel(quant, column).astype(np.int64) for column in range(3))
        rescaled = _rescale(x, offset, multiplier, shift, self.rounding_mode)
        return (saturate(rescaled, self.out_dtype or I32),)


@tpu_op("tpu_bdc_fp32_dequant", OpKind.ATOMIC, kw_only=True)
class TpuBdcFp32Dequant(Dequantization):
    """``y = (x - offset) * scale`` in float32. The difference is exact: ``rounding_mode`` has no effect.

    Shapes: x [N, C, H, W], y the same.
    Units: the offset has the data type of x.
    """

    offset: int
    scale: float
    rounding_mode: RoundingMode

    inputs = (SOURCE,)
    dtypes = bdc_dtypes(src=_SOURCES, dst=(F32,))

    def infer(self, x: TensorType) -> tuple[TensorType]:
        check_atomic(self, x)
        check_offset(self, self.offset, x.dtype, x.dtype, x.dtype)
        return (TensorType(F32, x.shape),)

    def reference(self, x: Array) -> tuple[Array]:
        offset, scale = np.asarray(self.offset, np.int64), np.asarray(self.scale, np.float32)
        return (dequantize(x, offset, scale),)


@tpu_op("tpu_bdc_fp32_pc_dequant", OpKind.ATOMIC, kw_only=True)
class TpuBdcFp32PcDequant(Dequantization):
    """tpu_bdc_fp32_dequant with per-channel parameters.

    Shapes: x [N, C, H, W], quant_offset and quant_scale [1, C, 1, 1], y as x. On the chip the two are interleaved.
    """

    rounding_mode: RoundingMode

    inputs = (SOURCE, per_channel_operand("quant_offset"), per_channel_operand("quant_scale"))
    dtypes = bdc_dtypes(src=_SOURCES, dst=(F32,), quant_offset=(I32,), quant_scale=(F32,))

    def infer(self, x: TensorType, quant_offset: TensorType, quant_scale: TensorType) -> tuple[TensorType]:
        check_atomic(self, x)
        check_per_channel(self, x, quant_offset, 1)
        check_per_channel(self, x, quant_scale, 1)
        return (TensorType(F32, x.shape),)

    def check_values(self, types: Types, arrays: Arrays) -> None:
        """Check the range of offsets."""
        (x, *_), (_, offset, _) = types, arrays
        if x is not None and offset is not None:
            check_range(self, "offset", offset, x.dtype.min, x.dtype.max)

    def reference(self, x: Array, quant_offset: Array, quant_scale: Array) -> tuple[Array]:
        offset, scale = per_channel(quant_offset, 0).astype(np.int64), per_channel(quant_scale, 0)
        return (dequantize(x, offset, scale),)
