"""Bitwise logic: bit_and, bit_or, bit_xor of two tensors; with an s at the end of a tensor and a number."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from tpuconvert.schema.definition.extents import merge_shapes
from tpuconvert.schema.definition.op import LOCAL, Op, Operand, Trait, UnaryOp, on, op_base, todo, tpu_op
from tpuconvert.schema.types import I8, I16, I32, U8, U16, Array, Scalar, TensorType

_INTEGERS = (I32, I8, U8, I16, U16)
_DTYPES = on(bm1682=None, bm1684=_INTEGERS, bm1686=todo(*_INTEGERS))


class TensorLogic(Op):
    """Base of element-wise bitwise operators on two tensors, in two's complement."""

    inputs = (Operand("tensor_i0"), Operand("tensor_i1"))
    dtypes = _DTYPES
    locality = LOCAL
    traits = Trait.ELEMENTWISE | Trait.COMMUTATIVE
    logic: ClassVar[np.ufunc]

    def infer(self, x0: TensorType, x1: TensorType) -> tuple[TensorType]:
        """Shapes: x0 and x1 are equal."""
        return (TensorType(x0.dtype, merge_shapes(self.name, x0, x1)),)

    def reference(self, x0: Array, x1: Array) -> tuple[Array]:
        return (self.logic(x0, x1),)


@tpu_op("bit_and")
class BitAnd(TensorLogic):
    """``y = x0 & x1``: bitwise AND."""

    logic = np.bitwise_and


@tpu_op("bit_or")
class BitOr(TensorLogic):
    """``y = x0 | x1``: bitwise OR."""

    logic = np.bitwise_or


@tpu_op("bit_xor")
class BitXor(TensorLogic):
    """``y = x0 ^ x1``: bitwise XOR."""

    logic = np.bitwise_xor


@op_base
class ScalarLogic(UnaryOp):
    """Base of element-wise bitwise operators on a tensor and a scalar, in two's complement."""

    dtypes = _DTYPES
    locality = LOCAL
    traits = Trait.ELEMENTWISE
    logic: ClassVar[np.ufunc]

    scalar_i: Scalar

    def reference(self, x: Array) -> tuple[Array]:
        return (self.logic(x, self.scalar_i.array),)


@tpu_op("bit_ands")
class BitAnds(ScalarLogic):
    """``y = x & scalar``: bitwise AND with a scalar."""

    logic = np.bitwise_and


@tpu_op("bit_ors")
class BitOrs(ScalarLogic):
    """``y = x | scalar``: bitwise OR with a scalar."""

    logic = np.bitwise_or


@tpu_op("bit_xors")
class BitXors(ScalarLogic):
    """``y = x ^ scalar``: bitwise XOR with a scalar."""

    logic = np.bitwise_xor
