"""Rounding of floating point to floating point: ceil, floor, round."""

from __future__ import annotations

import numpy as np

from tpuconvert.schema.op import LOCAL, Trait, UnaryOp, on, tpu_op
from tpuconvert.schema.ops.activation import round_float
from tpuconvert.schema.types import F32, Array


class Rounding(UnaryOp):
    """Element by element, FLOAT32 to FLOAT32."""

    decides_by = ("tensor_i",)
    decides_elements = True
    dtypes = on(F32, bm1682=None)
    locality = LOCAL
    traits = Trait.LUT


@tpu_op("ceil")
class Ceil(Rounding):
    """``y = ceil(x)``: round every element up to an integer."""

    def reference(self, x: Array) -> tuple[Array]:
        """Results between -1 and 0 are negative zeros, as IEEE has it."""
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

    ONNX Round is another operator: its ties round to even.
    """

    def reference(self, x: Array) -> tuple[Array]:
        """Zeros are positive."""
        return (round_float(x),)
