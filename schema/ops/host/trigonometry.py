"""inverse_trigonometry: arcsine, arccosine and arctangent on the host."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from tpuconvert.schema.arithmetic.elementwise import in_binary64
from tpuconvert.schema.definition.op import OpKind, UnaryOp, on, tpu_op
from tpuconvert.schema.types import F32, Array


class InverseFunction(enum.IntEnum):
    """Trigonometric function to invert."""

    ACOS = 0
    ASIN = 1
    ATAN = 2


_FUNCTIONS: Mapping[InverseFunction, Callable[[Array], Array]] = MappingProxyType(
    {InverseFunction.ACOS: np.arccos, InverseFunction.ASIN: np.arcsin, InverseFunction.ATAN: np.arctan}
)


@tpu_op("inverse_trigonometry", OpKind.HOST)
class InverseTrigonometry(UnaryOp):
    """y = asin(x), acos(x) or atan(x), element-wise, in radians; NaN outside of the domain.

    Evaluated in binary64 and rounded once.

    Shapes: x [...], y the same.
    Source: ONNX Acos-7, Asin-7, Atan-7. The TPU operator set has no such function.
    """

    function: InverseFunction

    dtypes = on(F32)

    def __post_init__(self) -> None:
        object.__setattr__(self, "function", InverseFunction(self.function))

    def reference(self, x: Array) -> tuple[Array]:
        """Compute the principal value."""
        return (in_binary64(_FUNCTIONS[self.function], x),)
