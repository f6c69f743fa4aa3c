"""Rounding of floats to integral floats: ceil, floor, round."""

from __future__ import annotations

import numpy as np

from tpuconvert.schema.definition.op import LOCAL, Trait, UnaryOp, on, tpu_op
from tpuconvert.schema.ops.activation import round_float
from tpuconvert.schema.types import F32, Array


class Rounding(UnaryOp):
    """Base of element-wise rounding operators on FLOAT32."""

    decides_by = ("tensor_i",)
    decides_elements = True
    dtypes = on(F32, bm1682=None)
    locality = LOCAL
    traits = Trait.LUT


@tpu_op("ceil")
class Ceil(Rounding):
    """``y = ceil(x)``: round every element up to an integer."""

    def reference(self, x: Array) -> tuple[Array]:
        """The result is -0 for -1 < x < 0, as in IEEE 754."""
        return (np.ceil(x),)


@tpu_op("floor")
class Floor(Rounding):
    """``y = floor(x)``: round every element down to an integer."""

    def reference(self, x: Array) -> tuple[Array]:
        """Exact for every x."""
        return (np.floor(x),)


@tpu_op("round")
class Round(Rounding):
    """``y = sign(x) * floor(|x| + 1/2)``: round to the nearest integer; ties round away from zero.

    ONNX Round differs: it rounds ties to even.
    """

    def reference(self, x: Array) -> tuple[Array]:
        """A result of 0 is never -0."""
        return (round_float(x),)
