"""Sine and cosine."""

from __future__ import annotations

import numpy as np

from tpuconvert.schema.arithmetic.elementwise import in_binary64
from tpuconvert.schema.definition.op import LOCAL, Trait, UnaryOp, on, tpu_op
from tpuconvert.schema.types import F32, Array


class Trigonometric(UnaryOp):
    """Base of element-wise operators that are evaluated in binary64 and rounded once.

    Units: radians.
    """

    dtypes = on(F32)
    locality = LOCAL
    traits = Trait.LUT


@tpu_op("sin")
class Sin(Trigonometric):
    """``y = sin(x)``, element-wise."""

    def reference(self, x: Array) -> tuple[Array]:
        """An infinite x gives NaN."""
        return (in_binary64(np.sin, x),)


@tpu_op("cos")
class Cos(Trigonometric):
    """``y = cos(x)``, element-wise."""

    def reference(self, x: Array) -> tuple[Array]:
        """An infinite x gives NaN."""
        return (in_binary64(np.cos, x),)
