"""host_expand: broadcast a tensor with data-dependent extents to a known shape, on the host."""

from __future__ import annotations

import numpy as np

from tpuconvert.schema.definition.extents import may_equal
from tpuconvert.schema.definition.op import Op, Operand, OpKind, case, on, tpu_op
from tpuconvert.schema.errors import ShapeError, UsageError
from tpuconvert.schema.types import NUMBERS_F16, Array, TensorType, format_shape


@tpu_op("host_expand", OpKind.HOST)
class HostExpand(Op):
    """Broadcast x to ``shape``: every extent of x is 1 or equals the extent in the shape.

    Shapes: x has the rank of ``shape``, y has this shape.
    Errors: UsageError if an extent that depends on data is another one.
    """

    shape: tuple[int, ...]

    inputs = (Operand("tensor_i", coeff=True),)
    dtypes = on(case({"tensor_i": NUMBERS_F16, "tensor_o": NUMBERS_F16}))

    def infer(self, x: TensorType) -> tuple[TensorType]:
        """Shapes: see the class."""
        pairs = zip(x.shape, self.shape, strict=False)
        if x.rank != len(self.shape) or not all(have == 1 or may_equal(have, want) for have, want in pairs):
            raise ShapeError(f"{self.name}: {x} does not broadcast to {format_shape(self.shape)}")
        return (TensorType(x.dtype, self.shape),)

    def reference(self, x: Array) -> tuple[Array]:
        """Return a new array."""
        try:
            return (np.ascontiguousarray(np.broadcast_to(x, self.shape)),)
        except ValueError as error:
            message = f"{self.name}: {format_shape(x.shape)} does not broadcast to {format_shape(self.shape)}"
            raise UsageError(message) from error
