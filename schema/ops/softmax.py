"""softmax: exponentials normalized to a sum of 1 along an axis."""

from __future__ import annotations

import numpy as np

from tpuconvert.schema.arithmetic.finite import InfinityUse
from tpuconvert.schema.definition.extents import normalize_axis
from tpuconvert.schema.definition.op import LOCAL, Op, Operand, Trait, on, tpu_op
from tpuconvert.schema.types import F32, Array, TensorType


@tpu_op("softmax")
class Softmax(Op):
    """``y = exp(x - max(x)) / sum(exp(x - max(x)))`` along ``axis``, in float64, rounded once.

    Shapes: x [...], y the same. A negative axis counts from the end.
    """

    axis: int

    infinity = InfinityUse.DEFINED
    inputs = (Operand("tensor_i"),)
    dtypes = on(F32, bm1682=None)
    locality = LOCAL
    traits = Trait.ALONG_AXES

    def is_non_negative(self) -> bool:
        """Softmax gives probabilities, which are not negative."""
        return True

    def infer(self, x: TensorType) -> tuple[TensorType]:
        normalize_axis(self.name, self.axis, x)
        return (x,)

    def reference(self, x: Array) -> tuple[Array]:
        with np.errstate(all="ignore"):
            powers = np.exp(x.astype(np.float64) - x.max(axis=self.axis, keepdims=True))
            powers /= powers.sum(axis=self.axis, keepdims=True)
            return (powers.astype(x.dtype),)
