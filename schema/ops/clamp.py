"""clamp: limit every element to an interval."""

from __future__ import annotations

import numpy as np

from tpuconvert.schema.arithmetic.elementwise import maximum, minimum, through_binary32
from tpuconvert.schema.arithmetic.finite import InfinityUse
from tpuconvert.schema.definition.op import LOCAL, Trait, UnaryOp, on, same, tpu_op
from tpuconvert.schema.types import F32, I32, SMALL, Array, Scalar

_WITH_FIXED_POINT = (same(F32), same(I32, compute="FLOAT32"), same(*SMALL))


@tpu_op("clamp")
class Clamp(UnaryOp):
    """``y = min(max(x, min), max)``, element-wise. INT32 is computed in float32 on every chip."""

    min: Scalar
    max: Scalar

    infinity = InfinityUse.DEFINED
    dtypes = on(*_WITH_FIXED_POINT, bm1682=(same(F32), same(I32, compute="FLOAT32")))
    locality = LOCAL
    traits = Trait.LUT

    def __post_init__(self) -> None:
        if not self.min.value <= self.max.value:
            raise ValueError(f"clamp: min {self.min.value} is above max {self.max.value}")

    def clamp_range(self) -> tuple[float, float]:
        """The parameters ``min`` and ``max``."""
        return self.min.value, self.max.value

    def reference(self, x: Array) -> tuple[Array]:
        """NaN propagates."""
        if x.dtype == np.int32:
            return (through_binary32(self._clamp(x.astype(np.float32))),)
        return (self._clamp(x),)

    def _clamp(self, x: Array) -> Array:
        low, high = self.min.array.astype(x.dtype), self.max.array.astype(x.dtype)
        return minimum(maximum(x, low), high)
