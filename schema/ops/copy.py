"""Copies: the operator that copies a tensor, and the one that makes a constant an ordinary tensor."""

from __future__ import annotations

from tpuconvert.schema.op import GLOBAL, Op, Operand, Trait, on, tpu_op
from tpuconvert.schema.types import F16, F32, I8, I16, I32, U8, U16, Array, TensorType


class Identity(Op):
    """The result is the operand, bit for bit."""

    locality = GLOBAL

    def infer(self, x: TensorType) -> tuple[TensorType]:
        """Shapes: any; the result has the same."""
        return (x,)

    def reference(self, x: Array) -> tuple[Array]:
        """A new array: a caller may overwrite it."""
        return (x.copy(),)


@tpu_op("copy")
class Copy(Identity):
    """y = x, bit for bit."""

    inputs = (Operand("tensor_i"),)
    dtypes = on(F32, bm1684=(F32, I32, I8, U8, I16, U16), bm1686=(F32, F16, I32, I8, U8, I16, U16))
    traits = Trait.UNARY | Trait.REARRANGES
    rewrite_weight = 1


@tpu_op("constdata")
class Constdata(Identity):
    """A constant as an ordinary read-only tensor, for operands that do not take constants. Free at run time.

    The operator set lists the data as a parameter; in the graph they are those of the constant that it reads.
    """

    inputs = (Operand("data", coeff=True),)
    outputs = (Operand("tensor"),)
    dtypes = on(F32, I32, I8, U8, I16, U16, bm1682=(F32,))
    traits = Trait.FREE
