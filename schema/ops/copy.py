"""Copies of a tensor, and conversion of a constant to an ordinary tensor."""

from __future__ import annotations

from tpuconvert.schema.definition.op import GLOBAL, Operand, Trait, UnaryOp, on, tpu_op
from tpuconvert.schema.types import F32, NUMBERS, NUMBERS_F16, Array


class Identity(UnaryOp):
    """Base of operators whose result equals the operand, bit for bit."""

    locality = GLOBAL

    def reference(self, x: Array) -> tuple[Array]:
        """Return a new array, because the caller may overwrite it."""
        return (x.copy(),)


@tpu_op("copy")
class Copy(Identity):
    """y = x, bit for bit."""

    dtypes = on(F32, bm1684=NUMBERS, bm1686=NUMBERS_F16)
    traits = Trait.UNARY | Trait.REARRANGES
    rewrite_weight = 1


@tpu_op("constdata")
class Constdata(Identity):
    """Convert a constant to an ordinary read-only tensor, for operators that do not accept constants. Free at run time.

    In the operator set the data are a parameter; in the graph they are the operand, which is a constant.
    """

    inputs = (Operand("data", coeff=True),)
    outputs = (Operand("tensor"),)
    dtypes = on(*NUMBERS, bm1682=(F32,))
    traits = Trait.FREE
