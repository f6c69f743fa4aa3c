"""Shifts with a selectable rounding mode: arithmetic_shift by a scalar, arithmetic_pc_shift by a vector, per channel.

A positive amount shifts left and saturates, a negative amount shifts right and rounds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np

from tpuconvert.schema.arithmetic.fixed_point import RoundingMode, Shift, round_shift, saturate, shift_left_exact
from tpuconvert.schema.definition.dtype_rules import IO_SAME_SIGN, SHIFT_NOT_WIDER
from tpuconvert.schema.definition.extents import may_equal, normalize_axis
from tpuconvert.schema.definition.op import LOCAL, Op, Operand, Trait, UnaryOp, case, on_bm1686, op_base, tpu_op
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.types import I8, I16, I32, U8, U16, U32, Array, DType, TensorType

__all__ = ["ArithmeticPcShift", "ArithmeticShift", "RoundingMode"]

_DATA = (I32, U32, I16, U16, I8, U8)


def shift_saturating(x: Array, amount: Shift, mode: RoundingMode, out: DType) -> Array:
    """Compute ``x * 2^amount`` for any amount, rounded by ``mode`` if negative, and saturate to ``out``."""
    amount = np.asarray(amount, dtype=np.int64)
    result = round_shift(x, np.maximum(-amount, 0), mode)
    for step in (
        np.clip(amount, 0, 31),
        np.clip(amount - 31, 0, 31),
    ):  # 62 bits suffice: everything except 0 saturates at less
        if step.any():
            result = shift_left_exact(result, step)
    return saturate(result, out)


def check_rounding(op: Op, mode: RoundingMode) -> RoundingMode:
    """Convert the mode to an enumeration member.

    Raises:
        ValueError: it is UNKNOWN or not a mode.
    """
    if RoundingMode(mode) is RoundingMode.UNKNOWN:
        raise ValueError(f"{op.name}: rounding_mode ROUNDING_UNKNOWN is reserved")
    return RoundingMode(mode)


class RoundingShift(UnaryOp):
    """Base of the shifts with a rounding mode. ``out_dtype`` None means the type of x."""

    unfinished = True
    locality = LOCAL
    rounding_mode: RoundingMode
    shift_by: ClassVar[Callable[..., Array]]

    def __post_init__(self) -> None:
        object.__setattr__(self, "rounding_mode", check_rounding(self, self.rounding_mode))

    def apply_shift(self, x: Array, amount: Shift) -> tuple[Array]:
        """Shift x by a scalar amount, or by an array of amounts that broadcasts."""
        return (self.shift_by(x, amount, self.rounding_mode, self.result_dtype(DType.of(x.dtype))),)


@op_base
class ShiftByOne(RoundingShift):
    """Base of the shifts by a scalar."""

    shift: int
    rounding_mode: RoundingMode
    out_dtype: DType | None = None

    traits = Trait.ELEMENTWISE

    def __post_init__(self) -> None:
        super().__post_init__()
        if not -64 <= self.shift <= 31:
            raise ValueError(f"{self.name}: shift must be in -64..31, found {self.shift}")

    def reference(self, x: Array) -> tuple[Array]:
        return self.apply_shift(x, self.shift)


@op_base
class ShiftPerChannel(RoundingShift):
    """Base of the shifts by a vector, which has one amount per index of an axis."""

    rounding_mode: RoundingMode
    shift_axis: int = 1
    out_dtype: DType | None = None

    inputs = (Operand("tensor_i"), Operand("tensor_shift", (1,), coeff=True))

    def infer(self, x: TensorType, amount: TensorType) -> tuple[TensorType]:  # type: ignore[override]  # two operands
        axis = normalize_axis(self.name, self.shift_axis, x)
        if amount.rank != 1 or not may_equal(amount.shape[0], x.shape[axis]):
            raise ShapeError(f"{self.name}: one amount per index of axis {axis}, got {x} and {amount}")
        return super().infer(x)

    def reference(self, x: Array, amount: Array) -> tuple[Array]:
        shape = [1] * x.ndim
        shape[self.shift_axis] = -1
        return self.apply_shift(x, amount.reshape(shape))


@tpu_op("arithmetic_shift")
class ArithmeticShift(ShiftByOne):
    """``y = x * 2^shift``: shift by a scalar, rounded by ``rounding_mode``, saturated.

    Shapes: x [...], y the same. Both are signed or both unsigned; widths may differ.
    Units: ``shift`` in bits, positive to the left; -64 to 31.

    ``out_dtype`` None means the type of x.
    """

    dtypes = on_bm1686(case({"tensor_i": _DATA, "tensor_o": _DATA}, IO_SAME_SIGN, compute="EXACT_INT"))
    shift_by = staticmethod(shift_saturating)


@tpu_op("arithmetic_pc_shift")
class ArithmeticPcShift(ShiftPerChannel):
    """``y = x * 2^s``: shift by a vector, per channel, rounded by ``rounding_mode``, saturated.

    Shapes: x [...], s [extent of ``shift_axis``], y as x. Both x and y are signed or both unsigned; s is not wider than
    x.

    ``out_dtype`` None means the type of x.
    """

    dtypes = on_bm1686(
        case(
            {"tensor_i": _DATA, "tensor_shift": (I32, I16, I8), "tensor_o": _DATA},
            IO_SAME_SIGN,
            SHIFT_NOT_WIDER,
            compute="EXACT_INT",
        )
    )
    shift_by = staticmethod(shift_saturating)
