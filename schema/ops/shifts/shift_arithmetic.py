"""Multiplication, addition and subtraction of integers, followed by a rounding right shift of the exact result.

The operands of mul_shift, add_shift and sub_shift are two tensors of equal shape; the operands of muls_shift,
adds_shift, subs_shift and rsubs_shift are a tensor and a scalar.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import ClassVar

import numpy as np

from tpuconvert.schema.arithmetic.elementwise import Arithmetic
from tpuconvert.schema.arithmetic.fixed_point import rrs, saturate
from tpuconvert.schema.definition.dtype_rules import ADDSHIFT_SIGN, MULSHIFT_SIGN, OUT_SIGNED
from tpuconvert.schema.definition.extents import merge_shapes
from tpuconvert.schema.definition.op import (
    LOCAL,
    ChipTable,
    Op,
    Operand,
    Rule,
    Trait,
    UnaryOp,
    case,
    on,
    op_base,
    todo,
    tpu_op,
)
from tpuconvert.schema.types import BYTES, I8, I16, SMALL, U8, U16, Array, DType, Scalar, TensorType


def _table(first: str, second: str, seconds: tuple[DType, ...], rule: Rule) -> ChipTable:
    accepted = case({first: SMALL, second: seconds, "tensor_o": SMALL}, rule, compute="INT32")
    return on(bm1682=None, bm1684=(accepted,), bm1686=todo(accepted))


_EXACT: dict[Arithmetic, Callable[[Array, Array], Array]] = {
    Arithmetic.ADD: operator.add,
    Arithmetic.SUB: operator.sub,
    Arithmetic.MUL: operator.mul,
}


class ShiftArithmetic(Op):
    """Base of ``y = sat(rrs(first OP second, shift))``. ``rrs`` is a right shift whose ties round up.

    ``out_dtype`` None means the type of the first operand, or for subtraction the signed type of its width.
    """

    arithmetic: ClassVar[Arithmetic]
    scalar_first: ClassVar[bool] = False
    locality = LOCAL
    traits = Trait.ELEMENTWISE

    shift: int
    out_dtype: DType | None

    def __post_init__(self) -> None:
        if not 0 <= self.shift <= 31:
            raise ValueError(f"{self.name}: shift must be in 0..31, found {self.shift}")

    def result_dtype(self, first: DType) -> DType:
        """Type of the result for a first operand of type ``first``."""
        signed = {U8: I8, U16: I16}.get(first, first)
        return super().result_dtype(signed if self.arithmetic is Arithmetic.SUB else first)

    def compute(self, first: Array, second: Array, out: DType) -> Array:
        """Compute the result. The intermediate is exact in INT64."""
        a, b = (second, first) if self.scalar_first else (first, second)
        exact = _EXACT[self.arithmetic](a.astype(np.int64), b.astype(np.int64))
        return saturate(rrs(exact, self.shift), out)


@op_base
class OfTensors(ShiftArithmetic):
    """Base of operators on two tensors of equal shape, without broadcasting."""

    shift: int
    out_dtype: DType | None = None

    inputs = (Operand("tensor_i0", coeff=True), Operand("tensor_i1", coeff=True))

    def infer(self, a: TensorType, b: TensorType) -> tuple[TensorType]:
        return (TensorType(self.result_dtype(a.dtype), merge_shapes(self.name, a, b)),)

    def reference(self, a: Array, b: Array) -> tuple[Array]:
        return (self.compute(a, b, self.result_dtype(DType.of(a.dtype))),)


@op_base
class OfScalar(ShiftArithmetic, UnaryOp):
    """Base of operators on a tensor and a scalar."""

    scalar: Scalar
    shift: int
    out_dtype: DType | None = None

    def reference(self, x: Array) -> tuple[Array]:
        return (self.compute(x, self.scalar.array, self.result_dtype(DType.of(x.dtype))),)


@tpu_op("mul_shift")
class MulShift(OfTensors):
    """``y = sat(rrs(a * b, shift))``: multiply, then shift right. Shapes: a, b, y equal."""

    arithmetic = Arithmetic.MUL
    dtypes = _table("tensor_i0", "tensor_i1", BYTES, MULSHIFT_SIGN)


@tpu_op("add_shift")
class AddShift(OfTensors):
    """``y = sat(rrs(a + b, shift))``: add, then shift right. Shapes: a, b, y equal."""

    arithmetic = Arithmetic.ADD
    dtypes = _table("tensor_i0", "tensor_i1", SMALL, ADDSHIFT_SIGN)


@tpu_op("sub_shift")
class SubShift(OfTensors):
    """``y = sat(rrs(a - b, shift))``: subtract, then shift right; y is signed. Shapes: a, b, y equal."""

    arithmetic = Arithmetic.SUB
    dtypes = _table("tensor_i0", "tensor_i1", SMALL, OUT_SIGNED)


@tpu_op("muls_shift")
class MulsShift(OfScalar):
    """``y = sat(rrs(x * scalar, shift))``: multiply by a scalar, then shift right. Shapes: y as x."""

    arithmetic = Arithmetic.MUL
    dtypes = _table("tensor_i", "scalar", BYTES, MULSHIFT_SIGN)


@tpu_op("adds_shift")
class AddsShift(OfScalar):
    """``y = sat(rrs(x + scalar, shift))``: add a scalar, then shift right. Shapes: y as x."""

    arithmetic = Arithmetic.ADD
    dtypes = _table("tensor_i", "scalar", SMALL, ADDSHIFT_SIGN)


@tpu_op("subs_shift")
class SubsShift(OfScalar):
    """``y = sat(rrs(x - scalar, shift))``: subtract a scalar, then shift right; y is signed. Shapes: y as x."""

    arithmetic = Arithmetic.SUB
    dtypes = _table("tensor_i", "scalar", SMALL, OUT_SIGNED)


@tpu_op("rsubs_shift")
class RsubsShift(OfScalar):
    """``y = sat(rrs(scalar - x, shift))``: subtract from a scalar, then shift right; y is signed. Shapes: y as x."""

    arithmetic = Arithmetic.SUB
    scalar_first = True
    dtypes = _table("tensor_i", "scalar", SMALL, OUT_SIGNED)
