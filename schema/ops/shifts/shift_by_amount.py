"""Element-wise shifts: arith_lshift, arith_rshift and round_rshift by a tensor, and forms ending in s by a scalar.

Arithmetic left shifts drop high bits, arithmetic right shifts round down. A negative amount reverses the direction.
"""

from __future__ import annotations

import numpy as np

from tpuconvert.schema.arithmetic.fixed_point import rrs, saturate, shift_wrapping
from tpuconvert.schema.definition.dtype_rules import IO_SAME, IO_SAME_SIGN
from tpuconvert.schema.definition.extents import broadcast_shapes, may_equal, shapes_of
from tpuconvert.schema.definition.op import LOCAL, Op, Operand, Trait, UnaryOp, case, on, op_base, todo, tpu_op
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.types import I16, I32, SMALL, U16, Array, DType, Scalar, TensorType

_WIDE = (I32, I16, U16)
_HALF = (I16, U16)


class ShiftByTensor(Op):
    """Base of the shifts with one amount per element."""

    inputs = (Operand("tensor_i"), Operand("tensor_num", coeff=True))
    locality = LOCAL
    traits = Trait.ELEMENTWISE

    def infer(self, x: TensorType, num: TensorType) -> tuple[TensorType]:
        """Shapes: only the amounts are broadcast, along axes of extent 1."""
        shape = broadcast_shapes(self.name, x, num)
        if not all(map(may_equal, shape, x.shape)):
            raise ShapeError(f"{self.name} expands only the amounts, got {shapes_of((x, num))}")
        return (TensorType(self.result_dtype(x.dtype), x.shape),)


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
        """The formulas are also valid for amounts beyond the width."""
        return (shift_wrapping(x, num.astype(np.int64)),)


@tpu_op("arith_rshift")
class ArithRshift(ShiftByTensor):
    """``y = floor(x / 2^num)``; for a negative amount ``x * 2^-num`` without the bits beyond the width."""

    dtypes = _ARITH

    def reference(self, x: Array, num: Array) -> tuple[Array]:
        """The formulas are also valid for amounts beyond the width."""
        return (shift_wrapping(x, -num.astype(np.int64)),)


_ROUND = case({"tensor_i": _HALF, "tensor_num": (I16,), "tensor_o": SMALL}, IO_SAME_SIGN, compute="INT32")


@tpu_op("round_rshift")
class RoundRshift(ShiftByTensor):
    """``y = sat(floor(x / 2^num + 1/2))``: a right shift whose ties round up; x for an amount of at most 0."""

    out_dtype: DType | None = None

    dtypes = on(bm1682=None, bm1684=(_ROUND,), bm1686=todo(_ROUND))

    def reference(self, x: Array, num: Array) -> tuple[Array]:
        return (saturate(rrs(x, num), self.result_dtype(DType.of(x.dtype))),)


@op_base
class ShiftByScalar(UnaryOp):
    """Base of the shifts by a scalar."""

    locality = LOCAL
    traits = Trait.ELEMENTWISE

    scalar_num: Scalar

    @property
    def amount(self) -> Array:
        """The amount as INT64, so that its negation cannot overflow."""
        return np.asarray(self.scalar_num.value, dtype=np.int64)


_ARITHS_CASE = case({"tensor_i": _WIDE, "scalar_num": _WIDE, "tensor_o": _WIDE}, IO_SAME, compute="EXACT_INT")
_ARITHS = on(bm1682=None, bm1684=(_ARITHS_CASE,), bm1686=todo(_ARITHS_CASE))


@tpu_op("arith_lshifts")
class ArithLshifts(ShiftByScalar):
    """``y = x * 2^num`` without the bits beyond the width; ``floor(x / 2^-num)`` for a negative amount."""

    dtypes = _ARITHS

    def reference(self, x: Array) -> tuple[Array]:
        """The formulas are also valid for amounts beyond the width."""
        return (shift_wrapping(x, self.amount),)


@tpu_op("arith_rshifts")
class ArithRshifts(ShiftByScalar):
    """``y = floor(x / 2^num)``; for a negative amount ``x * 2^-num`` without the bits beyond the width."""

    dtypes = _ARITHS

    def reference(self, x: Array) -> tuple[Array]:
        """The formulas are also valid for amounts beyond the width."""
        return (shift_wrapping(x, -self.amount),)


_ROUNDS = case({"tensor_i": _HALF, "scalar_num": (I16, I32), "tensor_o": SMALL}, IO_SAME_SIGN, compute="INT32")


@tpu_op("round_rshifts")
class RoundRshifts(ShiftByScalar):
    """``y = sat(floor(x / 2^num + 1/2))``: a right shift whose ties round up; x for an amount of at most 0."""

    out_dtype: DType | None = None

    dtypes = on(bm1682=None, bm1684=(_ROUNDS,), bm1686=todo(_ROUNDS))

    def reference(self, x: Array) -> tuple[Array]:
        return (saturate(rrs(x, self.amount), self.result_dtype(DType.of(x.dtype))),)
