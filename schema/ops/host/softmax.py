"""Softmax on the host along the middle of three axes, for binary32 and for BFLOAT16."""

from __future__ import annotations

from tpuconvert.schema.arithmetic.bfloat16 import narrow, widen
from tpuconvert.schema.definition.op import Op, OpKind, on, op_base, tpu_op
from tpuconvert.schema.ops.host.flat_tensors import check_extents, check_size, flat
from tpuconvert.schema.ops.softmax import Softmax
from tpuconvert.schema.types import F32, U16, Array, TensorType


@op_base
class FlatSoftmax(Op):
    """Base of the two operators."""

    inputs = (flat("src"),)
    outputs = (flat("dst"),)

    outer: int
    count: int
    inner: int

    def __post_init__(self) -> None:
        check_extents(self, outer=self.outer, count=self.count, inner=self.inner)

    def infer(self, x: TensorType) -> tuple[TensorType]:
        """Shapes: the size of x is the product of the three extents."""
        check_size(self, "src", x, self.outer * self.count * self.inner)
        return (x,)

    def probabilities(self, x: Array) -> Array:
        """Apply the TPU operator along the middle axis."""
        return Softmax(1).reference(x.reshape(self.outer, self.count, self.inner))[0].reshape(-1)


@tpu_op("softmax_32f", OpKind.HOST, kw_only=True)
class Softmax32f(FlatSoftmax):
    """y = exp(x - max(x)) / sum(exp(x - max(x))) along ``count``.

    Shapes: x [outer * count * inner], y the same.
    """

    dtypes = on(F32)

    def reference(self, x: Array) -> tuple[Array]:
        return (self.probabilities(x),)


@tpu_op("softmax_16b", OpKind.HOST, kw_only=True)
class Softmax16b(FlatSoftmax):
    """softmax_32f of BFLOAT16 words (UINT16). The result is rounded to BFLOAT16, ties to even.

    Shapes: x [outer * count * inner], y the same.
    """

    dtypes = on(U16)

    def reference(self, x: Array) -> tuple[Array]:
        return (narrow(self.probabilities(widen(x))),)
