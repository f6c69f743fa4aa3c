"""Atomic requantization: tpu_bdc_int_requant and tpu_bdc_fp32_requant, and ``pc`` forms with per-channel parameters.

requant_int32 in mode 2 computes the same as tpu_bdc_int_requant, requant_fp32_to_int in mode 1 the same as
tpu_bdc_fp32_requant with ties rounded away from zero.
"""

from __future__ import annotations

import numpy as np

from tpuconvert.schema.arithmetic.fixed_point import RoundingMode, rescale_one_rounding, saturate
from tpuconvert.schema.arithmetic.rescaling import requantize
from tpuconvert.schema.definition.op import LOCAL, Arrays, ChipTable, Op, OpKind, Support, Types, case, on, tpu_op
from tpuconvert.schema.ops.atomic.operands import (
    RESULT,
    SOURCE,
    check_atomic,
    check_offset,
    check_per_channel,
    check_range,
    per_channel_operand,
)
from tpuconvert.schema.ops.shifts.arithmetic_shift import check_rounding
from tpuconvert.schema.types import F32, I8, I16, I32, U8, U16, Array, DType, TensorType

SOURCES = (I32, I16, U16)
RESULTS = (I16, U16, I8, U8)


def bdc_dtypes(**operands: tuple[DType, ...]) -> ChipTable:
    """Declare support on BM1686, which is inferred because the vendor's documentation does not name the chip."""
    return on(bm1682=None, bm1684=None, bm1686=Support((case(operands),), inferred=True))


class Requantization(Op):
    """Base of the four operators, which have a parameter for the result type. ``out_dtype`` None means INT8."""

    outputs = (RESULT,)
    locality = LOCAL

    out_dtype: DType | None

    def __post_init__(self) -> None:
        for name in ("rounding_mode", "dst_rounding_mode", "src_rounding_mode"):
            if hasattr(self, name):
                object.__setattr__(self, name, check_rounding(self, getattr(self, name)))

    @property
    def out(self) -> DType:
        """Data type of the result."""
        return self.result_dtype(I8)


def check_multiplier_shift(op: Op, multiplier: int, shift: int) -> None:
    """Check the range of a multiplier and a shift.

    Raises:
        ValueError: one of them is out of range.
    """
    if not I32.holds(multiplier) or not LOWEST_SHIFT <= shift <= HIGHEST_SHIFT:
        raise ValueError(f"{op.name}: multiplier is INT32 and shift -64..31, found {multiplier} and {shift}")


LOWEST_SHIFT, HIGHEST_SHIFT = -64, 31


def per_channel(quant: Array, column: int) -> Array:
    """Return one column of the per-channel parameters in a shape that broadcasts along axis 1 of NCHW."""
    return quant[0, :, 0, column].reshape(-1, 1, 1)


@tpu_op("tpu_bdc_int_requant", OpKind.ATOMIC, kw_only=True)
class TpuBdcIntRequant(Requantization):
    """``y = sat(round(x * multiplier * 2^shift) + offset)``, rounded by ``rounding_mode``.

    Shapes: x [N, C, H, W], y the same.
    Units: a positive shift is to the left; -64 to 31. The offset is INT16 for a signed y, UINT16 for an unsigned one.
    """

    multiplier: int
    shift: int
    offset: int
    rounding_mode: RoundingMode
    out_dtype: DType | None = None

    inputs = (SOURCE,)
    dtypes = bdc_dtypes(src=SOURCES, dst=RESULTS)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_multiplier_shift(self, self.multiplier, self.shift)

    def infer(self, x: TensorType) -> tuple[TensorType]:
        check_atomic(self, x)
        check_offset(self, self.offset, I16, U16, self.out)
        return (TensorType(self.out, x.shape),)

    def reference(self, x: Array) -> tuple[Array]:
        rescaled = rescale_one_rounding(x, self.multiplier, self.shift, self.rounding_mode)
        return (saturate(rescaled + self.offset, self.out),)


@tpu_op("tpu_bdc_int_pc_requant", OpKind.ATOMIC, kw_only=True)
class TpuBdcIntPcRequant(Requantization):
    """tpu_bdc_int_requant with per-channel parameters.

    Shapes: x [N, C, H, W], quant [1, C, 1, 3] with multiplier, shift and offset, y as x.
    Units: as tpu_bdc_int_requant. A shift or offset out of range is an error when the model runs, or at conversion if
    quant is constant.
    """

    rounding_mode: RoundingMode
    out_dtype: DType | None = None

    inputs = (SOURCE, per_channel_operand("quant"))
    dtypes = bdc_dtypes(src=SOURCES, dst=RESULTS, quant=(I32,))

    def infer(self, x: TensorType, quant: TensorType) -> tuple[TensorType]:
        check_atomic(self, x)
        check_per_channel(self, x, quant, 3)
        return (TensorType(self.out, x.shape),)

    def check_values(self, types: Types, arrays: Arrays) -> None:
        """Check the ranges of shifts and offsets."""
        quant = arrays[1]
        if quant is not None:
            offsets = I16 if self.out.is_signed else U16
            check_range(self, "shift", quant[..., 1], LOWEST_SHIFT, HIGHEST_SHIFT)
            check_range(self, "offset", quant[..., 2], offsets.min, offsets.max)

    def reference(self, x: Array, quant: Array) -> tuple[Array]:
        multiplier, shift, offset = (per_channel(quant, column).astype(np.int64) for column in range(3))
        rescaled = rescale_one_rounding(x, multiplier, shift, self.rounding_mode)
        return (saturate(rescaled + offset, self.out),)


@tpu_op("tpu_bdc_fp32_requant", OpKind.ATOMIC, kw_only=True)
class TpuBdcFp32Requant(Requantization):
    """``y = sat(round(x * scale + offset))`` in float32, rounded after the multiplication and the addition.

    Shapes: x [N, C, H, W], y the same.
    Units: ``src_rounding_mode`` rounds INT32 of more than 24 bits to binary32, ``dst_rounding_mode`` the result.
    """

    scale: float
    offset: float
    dst_rounding_mode: RoundingMode
    src_rounding_mode: RoundingMode
    out_dtype: DType | None = None

    inputs = (SOURCE,)
    dtypes = bdc_dtypes(src=SOURCES, dst=RESULTS)

    def infer(self, x: TensorType) -> tuple[TensorType]:
        check_atomic(self, x)
        return (TensorType(self.out, x.shape),)

    def reference(self, x: Array) -> tuple[Array]:
        scale, offset = np.asarray(self.scale, np.float32), np.asarray(self.offset, np.float32)
        modes = {"to_integer": self.dst_rounding_mode, "to_float": self.src_rounding_mode}
        return (requantize(x, scale, offset, self.out, **modes),)


@tpu_op("tpu_bdc_fp32_pc_requant", OpKind.ATOMIC, kw_only=True)
class TpuBdcFp32PcRequant(Requantization):
    """tpu_bdc_fp32_requant with per-channel parameters.

    Shapes: x [N, C, H, W], quant [1, C, 1, 2] with scale and offset, y as x.
    """

    dst_rounding_mode: RoundingMode
    src_rounding_mode: RoundingMode
    out_dtype: DType | None = None

    inputs = (SOURCE, per_channel_operand("quant"))
    dtypes = bdc_dtypes(src=SOURCES, dst=RESULTS, quant=(F32,))

    def infer(self, x: TensorType, quant: TensorType) -> tuple[TensorType]:
        check_atomic(self, x)
        check_per_channel(self, x, quant, 2)
        return (TensorType(self.out, x.shape),)

    def reference(self, x: Array, quant: Array) -> tuple[Array]:
        scale, offset = per_channel(quant, 0), per_channel(quant, 1)
        modes = {"to_integer": self.dst_rounding_mode, "to_float": self.src_rounding_mode}
        return (requantize(x, scale, offset, self.out, **modes),)
