"""Copies: the operator that copies a tensor, and the one that makes a constant an ordinary tensor."""

from __future__ import annotations

from tpuconvert.schema.op import GLOBAL, Operand, Trait, UnaryOp, on, tpu_op
from tpuconvert.schema.types import F32, NUMBERS, NUMBERS_F16, Array


class Identity(UnaryOp):
    """The result is the operand, bit for bit."""

    locality = GLOBAL

    def reference(self, x: Array) -> tuple[Array]:
        """A new array: a caller may overwrite it."""
        return (x.copy(),)


@tpu_op("copy")
class Copy(Identity):
    """y = x, bit for bit."""

    dtypes = on(F32, bm1684=NUMBERS, bm1686=NUMBERS_F16)
    traits = Trait.UNARY | Trait.REARRANGES
    rewrite_weight = 1


@tpu_op("constdata")
class Constdata(Identity):
    """A constant as an ordinary read-only tensor, for operands that do not take constants. Free at run time.

    The operator set lists the data as a parameter; in the graph they are those of the constant that it reads.
    """

    inputs = (Operand("data", coeff=True),)
    outputs = (Operand("tensor"),)
    dtypes = on(*NUMBERS, bm1682=(F32,))
    traits = Trait.FREE
