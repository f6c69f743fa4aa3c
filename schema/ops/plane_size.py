"""Operators that read height and width from a tensor: hw_avg divides by the area, hw_mul scales the area."""

from __future__ import annotations

import enum

import numpy as np

from tpuconvert.schema.arithmetic.fixed_point import RoundingMode, rhaz, round_float, saturate
from tpuconvert.schema.definition.dtype_rules import IO_SAME
from tpuconvert.schema.definition.extents import may_equal
from tpuconvert.schema.definition.op import LOCAL, Op, Operand, case, on_bm1686, tpu_op
from tpuconvert.schema.definition.shape_checks import check_ranks, format_types
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.types import F32, I32, U32, Array, DType, Scalar, TensorType


def plane_size(hw: Array) -> np.float32:
    """Product of two 32-bit extents, computed exactly and rounded once to binary32."""
    wide = hw.astype(np.int64 if hw.dtype.kind == "i" else np.uint64)
    return np.float32(wide[0] * wide[1])


def _check_pair(op: Op, hw: TensorType, *types: TensorType) -> None:
    if not may_equal(hw.shape[0], 2):
        raise ShapeError(f"{op.name}: the extents must be [2]: H and W, got {format_types(types)}")


class HwAvgMode(enum.IntEnum):
    """Rounding of the quotient."""

    FLOAT = 0
    INT_HALF_UP = 1
    INT_HALF_AWAY = 2


@tpu_op("hw_avg")
class HwAvg(Op):
    """Division: y = x / (hw[0] * hw[1]) in binary32. Integer modes then round to an integer and saturate.

    Shapes: x [N, C, H, W], hw [2], y as x. y has the type of x in the integer modes, FLOAT32 otherwise.
    """

    mode: HwAvgMode

    inputs = (Operand("tensor_i", (4,), "NCHW"), Operand("tensor_hw", (1,), coeff=True))
    outputs = (Operand("tensor_o", (4,), "NCHW"),)
    dtypes = on_bm1686(
        case(
            {"tensor_i": (I32, U32), "tensor_hw": (I32,), "tensor_o": (F32,)},
            when=lambda op: op.mode is HwAvgMode.FLOAT,
            when_text="mode == 0",
            compute="FLOAT32",
        ),
        case(
            {"tensor_i": (I32, U32), "tensor_hw": (I32,), "tensor_o": (I32, U32)},
            IO_SAME,
            when=lambda op: op.mode is not HwAvgMode.FLOAT,
            when_text="mode is 1 or 2",
            compute="FLOAT32",
        ),
    )
    locality = LOCAL

    def __post_init__(self) -> None:
        object.__setattr__(self, "mode", HwAvgMode(self.mode))

    def infer(self, x: TensorType, hw: TensorType) -> tuple[TensorType]:
        check_ranks(self, x, hw)
        _check_pair(self, hw, x, hw)
        return (TensorType(F32 if self.mode is HwAvgMode.FLOAT else x.dtype, x.shape),)

    def reference(self, x: Array, hw: Array) -> tuple[Array]:
        with np.errstate(all="ignore"):
            quotient = x.astype(np.float32) / plane_size(hw)
        if self.mode is HwAvgMode.FLOAT:
            return (quotient,)
        is_half_up = self.mode is HwAvgMode.INT_HALF_UP
        rounded = round_float(quotient, RoundingMode.HALF_UP) if is_half_up else rhaz(quotient)
        # 0 / 0 is NaN, which gives 0 as in every conversion from float to integer.
        return (saturate(np.where(np.isnan(rounded), 0.0, rounded), DType.of(x.dtype)),)


@tpu_op("hw_mul")
class HwMul(Op):
    """Scaled area: y = (x[0] * x[1]) * scale. The exact product x[0] * x[1] is rounded to binary32 first.

    Shapes: x [2], y [1]. ``scale`` is FLOAT32.
    """

    scale: Scalar

    inputs = (Operand("tensor_i", (1,)),)
    outputs = (Operand("tensor_o", (1,)),)
    dtypes = on_bm1686(case({"tensor_i": (I32, U32), "tensor_o": (F32,)}, compute="FLOAT32"))
    locality = LOCAL

    def __post_init__(self) -> None:
        if self.scale.dtype is not F32:
            raise ValueError(f"hw_mul: scale must be FLOAT32, found {self.scale}")

    def infer(self, x: TensorType) -> tuple[TensorType]:
        check_ranks(self, x)
        _check_pair(self, x, x)
        return (TensorType(F32, (1,)),)

    def reference(self, x: Array) -> tuple[Array]:
        with np.errstate(all="ignore"):
            product: Array = plane_size(x) * self.scale.array
        return (np.asarray(product, np.float32).reshape(1),)
