"""Sine and cosine."""

from __future__ import annotations

import numpy as np

from tpuconvert.schema.elementwise import in_binary64
from tpuconvert.schema.op import LOCAL, Op, Operand, Trait, on, tpu_op
from tpuconvert.schema.types import F32, Array, TensorType


class Trigonometric(Op):
    """Element by element, evaluated in binary64 and rounded once.

    Units: radians.
    """

    inputs = (Operand("tensor_i"),)
    dtypes = on(F32)
    locality = LOCAL
    traits = Trait.LUT

    def infer(self, x: TensorType) -> tuple[TensorType]:
        """Shapes: any; the result has the same."""
        return (x,)


@tpu_op("sin")
class Sin(Trigonometric):
    """``y = sin(x)``, element-wise."""

    def reference(self, x: Array) -> tuple[Array]:
        """Infinities give NaN."""
        return (in_binary64(np.sin, x),)


@tpu_op("cos")
class Cos(Trigonometric):
    """``y = cos(x)``, element-wise."""

    def reference(self, x: Array) -> tuple[Array]:
        """Infinities give NaN."""
        return (in_binary64(np.cos, x),)
