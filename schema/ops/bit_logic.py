"""Bitwise logic: bit_and, bit_or, bit_xor of two tensors; with an s at the end of a tensor and a number."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import ClassVar

import numpy as np

from tpuconvert.schema.extents import merge_shapes
from tpuconvert.schema.op import LOCAL, Op, Operand, Trait, on, todo, tpu_op
from tpuconvert.schema.types import I8, I16, I32, U8, U16, Array, Scalar, TensorType


class Logic(enum.Enum):
    """The three operations."""

    AND = "and"
    OR = "or"
    XOR = "xor"


LOGIC: dict[Logic, Callable[[Array, Array], Array]] = {
    Logic.AND: np.bitwise_and,
    Logic.OR: np.bitwise_or,
    Logic.XOR: np.bitwise_xor,
}

_INTEGERS = (I32, I8, U8, I16, U16)
_DTYPES = on(bm1682=None, bm1684=_INTEGERS, bm1686=todo(*_INTEGERS))


class TensorLogic(Op):
    """The two's complement patterns of two tensors, element by element."""

    inputs = (Operand("tensor_i0"), Operand("tensor_i1"))
    dtypes = _DTYPES
    locality = LOCAL
    traits = Trait.ELEMENTWISE | Trait.COMMUTATIVE
    logic: ClassVar[Logic]

    def infer(self, x0: TensorType, x1: TensorType) -> tuple[TensorType]:
        """Shapes: x0 and x1 are equal."""
        return (TensorType(x0.dtype, merge_shapes(self.name, x0, x1)),)

    def reference(self, x0: Array, x1: Array) -> tuple[Array]:
        """Bit by bit."""
        return (LOGIC[self.logic](x0, x1),)


@tpu_op("bit_and")
class BitAnd(TensorLogic):
    """``y = x0 & x1``: bitwise AND."""

    logic = Logic.AND


@tpu_op("bit_or")
class BitOr(TensorLogic):
    """``y = x0 | x1``: bitwise OR."""

    logic = Logic.OR


@tpu_op("bit_xor")
class BitXor(TensorLogic):
    """``y = x0 ^ x1``: bitwise XOR."""

    logic = Logic.XOR


class ScalarLogic(Op):
    """The two's complement patterns of every element and of one number."""

    inputs = (Operand("tensor_i"),)
    dtypes = _DTYPES
    locality = LOCAL
    traits = Trait.ELEMENTWISE
    logic: ClassVar[Logic]

    scalar_i: Scalar

    def infer(self, x: TensorType) -> tuple[TensorType]:
        """Shapes: any; the result has the same."""
        return (x,)

    def reference(self, x: Array) -> tuple[Array]:
        """Bit by bit."""
        return (LOGIC[self.logic](x, self.scalar_i.array),)


@tpu_op("bit_ands")
class BitAnds(ScalarLogic):
    """``y = x & scalar``: bitwise AND with a number."""

    scalar_i: Scalar

    logic = Logic.AND


@tpu_op("bit_ors")
class BitOrs(ScalarLogic):
    """``y = x | scalar``: bitwise OR with a number."""

    scalar_i: Scalar

    logic = Logic.OR


@tpu_op("bit_xors")
class BitXors(ScalarLogic):
    """``y = x ^ scalar``: bitwise XOR with a number."""

    scalar_i: Scalar

    logic = Logic.XOR
