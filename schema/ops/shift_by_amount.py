"""Shifts of every element: arith_lshift, arith_rshift, round_rshift, by a tensor of amounts or (with s) by one amount.

The arithmetic shifts drop bits on the left and round down on the right; a negative amount turns the direction round.
"""

from __future__ import annotations

import numpy as np

from tpuconvert.schema.dtype_rules import IO_SAME, IO_SAME_SIGN
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.extents import broadcast_shapes, may_equal, shapes_of
from tpuconvert.schema.fixed_point import rrs, saturate, shift_wrapping
from tpuconvert.schema.op import LOCAL, Op, Operand, Trait, case, on, todo, tpu_op
from tpuconvert.schema.types import I8, I16, I32, U8, U16, Array, DType, Scalar, TensorType

_WIDE = (I32, I16, U16)
_HALF = (I16, U16)
_SMALL = (I8, U8, I16, U16)


class ShiftByTensor(Op):
    """Base of the shifts with one amount per element."""

    inputs = (Operand("tensor_i"), Operand("tensor_num", coeff=True))
    locality = LOCAL
    traits = Trait.ELEMENTWISE

    def infer(self, x: TensorType, num: TensorType) -> tuple[TensorType]:
        """Shapes: only the amounts are expanded along axes of extent 1."""
        shape = broadcast_shapes(self.name, x, num)
        if not all(map(may_equal, shape, x.shape)):
            raise ShapeError(f"{self.name} expands only the amounts, got {shapes_of((x, num))}")
        return (TensorType(self.result_dtype(x.dtype), x.shape),)

    def result_dtype(self, first: DType) -> DType:
        """Data type of the result: that of the operand, unless a definition has ``out_dtype``."""
        return first


_ARITH_CASES = (
    case({"tensor_i": (I32,), "tensor_num": (I32,), "tensor_o": (I32,)}, IO_SAME, compute="EXACT_INT"),
    case({"tensor_i": _HALF, "tensor_num": (I16,), "tensor_o": _HALF}, IO_SAME, compute="EXACT_INT"),
)
_ARITH = on(bm1682=None, bm1684=_ARITH_CASES, bm1686=todo(*_ARITH_CASES))


@tpu_op("arith_lshift")
class ArithLshift(ShiftByTensor):
    """``y = x * 2^num`` without the bits beyond the width; ``floor(x / 2^-num)`` for a negative amount."""

    dtypes = _ARITH

    def reference(self, x: Array, num: Array) -> tuple[Array]:
        """Amounts beyond the width follow the same formulas."""
        return (shift_wrapping(x, num.astype(np.int64)),)


@tpu_op("arith_rshift")
class ArithRshift(ShiftByTensor):
    """``y = floor(x / 2^num)``; for a negative amount ``x * 2^-num`` without the bits beyond the width."""

    dtypes = _ARITH

    def reference(self, x: Array, num: Array) -> tuple[Array]:
        """Amounts beyond the width follow the same formulas."""
        return (shift_wrapping(x, -num.astype(np.int64)),)


_ROUND = case({"tensor_i": _HALF, "tensor_num": (I16,), "tensor_o": _SMALL}, IO_SAME_SIGN, compute="INT32")


@tpu_op("round_rshift")
class RoundRshift(ShiftByTensor):
    """``y = sat(floor(x / 2^num + 1/2))``: a right shift whose ties round up; x for an amount of at most 0."""

    out_dtype: DType | None = None

    dtypes = on(bm1682=None, bm1684=(_ROUND,), bm1686=todo(_ROUND))

    def reference(self, x: Array, num: Array) -> tuple[Array]:
        """Ties round up."""
        return (saturate(rrs(x, num), self.result_dtype(DType.of(x.dtype))),)

    def result_dtype(self, first: DType) -> DType:
        """``out_dtype``, or the type of the operand."""
        return first if self.out_dtype is None else self.out_dtype


class ShiftByScalar(Op):
    """One amount for all elements."""

    inputs = (Operand("tensor_i"),)
    locality = LOCAL
    traits = Trait.ELEMENTWISE

    scalar_num: Scalar

    def infer(self, x: TensorType) -> tuple[TensorType]:
        """Shapes: any; the result has the same."""
        return (TensorType(self.result_dtype(x.dtype), x.shape),)

    def result_dtype(self, first: DType) -> DType:
        """Data type of the result: that of the operand, unless a definition has ``out_dtype``."""
        return first

    @property
    def amount(self) -> Array:
        """The amount, wide enough for its negative."""
        return np.asarray(self.scalar_num.value, dtype=np.int64)


_ARITHS_CASE = case({"tensor_i": _WIDE, "scalar_num": _WIDE, "tensor_o": _WIDE}, IO_SAME, compute="EXACT_INT")
_ARITHS = on(bm1682=None, bm1684=(_ARITHS_CASE,), bm1686=todo(_ARITHS_CASE))


@tpu_op("arith_lshifts")
class ArithLshifts(ShiftByScalar):
    """``y = x * 2^num`` without the bits beyond the width; ``floor(x / 2^-num)`` for a negative amount."""

    scalar_num: Scalar

    dtypes = _ARITHS

    def reference(self, x: Array) -> tuple[Array]:
        """Amounts beyond the width follow the same formulas."""
        return (shift_wrapping(x, self.amount),)


@tpu_op("arith_rshifts")
class ArithRshifts(ShiftByScalar):
    """``y = floor(x / 2^num)``; for a negative amount ``x * 2^-num`` without the bits beyond the width."""

    scalar_num: Scalar

    dtypes = _ARITHS

    def reference(self, x: Array) -> tuple[Array]:
        """Amounts beyond the width follow the same formulas."""
        return (shift_wrapping(x, -self.amount),)


_ROUNDS = case({"tensor_i": _HALF, "scalar_num": (I16, I32), "tensor_o": _SMALL}, IO_SAME_SIGN, compute="INT32")


@tpu_op("round_rshifts")
class RoundRshifts(ShiftByScalar):
    """``y = sat(floor(x / 2^num + 1/2))``: a right shift whose ties round up; x for an amount of at most 0."""

    scalar_num: Scalar
    out_dtype: DType | None = None

    dtypes = on(bm1682=None, bm1684=(_ROUNDS,), bm1686=todo(_ROUNDS))

    def reference(self, x: Array) -> tuple[Array]:
        """Ties round up."""
        return (saturate(rrs(x, self.amount), self.result_dtype(DType.of(x.dtype))),)

    def result_dtype(self, first: DType) -> DType:
        """``out_dtype``, or the type of the operand."""
        return first if self.out_dtype is None else self.out_dtype
