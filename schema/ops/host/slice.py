"""host_slice: a slice with computed bounds, on the host."""

from __future__ import annotations

import numpy as np

from tpuconvert.schema.definition.extents import normalize_axis, unknown, with_extent
from tpuconvert.schema.definition.op import Op, Operand, OpKind, case, on, tpu_op
from tpuconvert.schema.errors import ShapeError, UsageError
from tpuconvert.schema.types import I32, NUMBERS_F16, Array, TensorType, format_shape


def clamped_range(start: int, end: int, step: int, extent: int) -> range:
    """Elements of an axis that a slice of ONNX takes: negative bounds count from the end; then bounds are clamped."""
    start, end = (bound + extent if bound < 0 else bound for bound in (start, end))
    first, last = (0, extent) if step > 0 else (-1, extent - 1)
    return range(min(max(start, 0), last), min(max(end, first), last), step)


@tpu_op("host_slice", OpKind.HOST)
class HostSlice(Op):
    """y = x[start:end:step] along ``axis``. Negative bounds count from the end, and bounds are clamped.

    This is a slice of NumPy, except that a negative step begins at the first element if start is before it.

    With ``is_exact``, bounds outside of 0..extent are an error.

    Shapes: start and end have one element; the extent of y on ``axis`` depends on data.
    Errors: UsageError for bounds that ``is_exact`` excludes.
    Source: ONNX Slice-13.
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
        taken = clamped_range(first, last, self.step, extent)
        return (np.ascontiguousarray(x.take(taken, axis)),)
