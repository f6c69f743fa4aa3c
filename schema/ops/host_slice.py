"""host_slice: a slice with computed bounds, on the host."""

from __future__ import annotations

import numpy as np

from tpuconvert.schema.errors import ShapeError, UsageError
from tpuconvert.schema.extents import normalize_axis, unknown, with_extent
from tpuconvert.schema.op import Op, Operand, OpKind, case, on, tpu_op
from tpuconvert.schema.types import I32, NUMBERS_F16, Array, TensorType, format_shape


@tpu_op("host_slice", OpKind.HOST)
class HostSlice(Op):
    """y = x[start:end:step] along ``axis``, with the rules of NumPy: bounds may be negative, and are clamped.

    With ``is_exact``, bounds outside of 0..extent are an error.

    Shapes: start and end have one element; the extent of y on ``axis`` depends on data.
    Errors: UsageError for bounds that ``is_exact`` excludes.
    """

    axis: int
    step: int = 1
    is_exact: bool = False

    inputs = (Operand("tensor_i", coeff=True), Operand("start", coeff=True), Operand("end", coeff=True))
    dtypes = on(case({"tensor_i": NUMBERS_F16, "start": (I32,), "end": (I32,), "tensor_o": NUMBERS_F16}))
    decides_by = ("start", "end")

    def __post_init__(self) -> None:
        if self.step == 0:
            raise ValueError("host_slice: step is 0")

    def infer(self, x: TensorType, start: TensorType, end: TensorType) -> tuple[TensorType]:
        """Shapes: the bounds have one element."""
        axis = normalize_axis(self.name, self.axis, x)
        for bound in (start, end):
            if bound.shape != (1,):
                raise ShapeError(f"{self.name}: a bound has the shape {format_shape(bound.shape)}, expected [1]")
        return (TensorType(x.dtype, with_extent(x.shape, axis, unknown(self.name, axis))),)

    def reference(self, x: Array, start: Array, end: Array) -> tuple[Array]:
        """Slice one axis."""
        axis = self.axis % x.ndim
        first, last = int(start[0]), int(end[0])
        extent = x.shape[axis]
        if self.is_exact and not 0 <= first <= last <= extent:
            raise UsageError(f"{self.name}: elements {first} to {last} of axis {axis} with {extent} elements")
        stop = None if self.step < 0 and last < -extent else last
        return (np.ascontiguousarray(x[(slice(None),) * axis + (slice(first, stop, self.step),)]),)
