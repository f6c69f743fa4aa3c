"""Strided slices: extract, and extract_v2 with limits computed at run time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tpuconvert.schema.definition.dtype_rules import IO_SAME
from tpuconvert.schema.definition.extents import check_length, may_equal, shapes_of, unknown
from tpuconvert.schema.definition.op import GLOBAL, Case, Op, Operand, Trait, case, limited_local, on, tpu_op
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.types import F32, I32, NUMBERS, NUMBERS_F16, Array, Chip, Dim, DType, TensorType


def _check(op: str, x: TensorType, start: Sequence[int], end: Sequence[int], stride: Sequence[int]) -> None:
    for name, values in (("start", start), ("end", end), ("stride", stride)):
        check_length(op, name, values, x.rank, x)
    for axis, extent in enumerate(x.shape):
        first, limit, step = start[axis], end[axis], stride[axis]
        if not (0 <= first < limit and step >= 1) or (isinstance(extent, int) and limit > extent):
            raise ShapeError(
                f"{op}: axis {axis} of {x} cannot be sliced from {first} to {limit} in steps of {step}; "
                f"start {list(start)}, end {list(end)}, stride {list(stride)}"
            )


def _slice(x: Array, start: Sequence[int], end: Sequence[int], stride: Sequence[int]) -> Array:
    return np.ascontiguousarray(x[tuple(map(slice, start, end, stride))])


def _is_local(op: Extract, ins: tuple[TensorType, ...], outs: tuple[TensorType, ...], chip: Chip) -> bool:
    shape = ins[0].shape
    return len(shape) >= 2 and op.start[1] == 0 and op.end[1] == shape[1] and op.stride[1] == 1


@tpu_op("extract")
class Extract(Op):
    """y[i] = x[start + i * stride] on every axis: the slice from ``start`` to ``end`` (exclusive) with a stride.

    Shapes: ceil((end - start) / stride). 0 <= start < end <= extent, stride >= 1.
    """

    start: tuple[int, ...]
    end: tuple[int, ...]
    stride: tuple[int, ...]

    inputs = (Operand("tensor_i"),)
    dtypes = on(bm1682=(F32,), bm1684=NUMBERS, bm1686=NUMBERS_F16)
    locality = limited_local(_is_local, "local only when axis 1 is taken whole")
    traits = Trait.VIEWS | Trait.ALONG_AXES
    rewrite_weight = 2

    def infer(self, x: TensorType) -> tuple[TensorType]:
        """Shapes: every axis needs a start, an end and a stride within it."""
        _check(self.name, x, self.start, self.end, self.stride)
        limits = zip(self.start, self.end, self.stride, strict=True)
        return (TensorType(x.dtype, tuple(-(-(end - start) // stride) for start, end, stride in limits)),)

    def reference(self, x: Array) -> tuple[Array]:
        """Return a copy of the slice."""
        return (_slice(x, self.start, self.end, self.stride),)


def _with_limits(*dtypes: DType) -> tuple[Case]:
    limits = dict.fromkeys(("start", "end", "stride"), (I32,))
    return (case({"tensor_i": dtypes, "tensor_o": dtypes, **limits}, IO_SAME),)


@tpu_op("extract_v2")
class ExtractV2(Op):
    """As extract, with start, end and stride computed at run time.

    Shapes: start, end and stride [rank of x]; the extents of y depend on their values.
    """

    inputs = (
        Operand("tensor_i"),
        Operand("start", ranks=(1,), coeff=True),
        Operand("end", ranks=(1,), coeff=True),
        Operand("stride", ranks=(1,), coeff=True),
    )
    dtypes = on(bm1682=_with_limits(F32), bm1684=_with_limits(*NUMBERS), bm1686=_with_limits(*NUMBERS_F16))
    locality = GLOBAL
    traits = Trait.MOVES_DATA

    def infer(self, x: TensorType, start: TensorType, end: TensorType, stride: TensorType) -> tuple[TensorType]:
        """Shapes: start, end and stride have one element per axis of x."""
        for limit in (start, end, stride):
            if not may_equal(limit.shape[0], x.rank):
                raise ShapeError(f"{self.name} needs one value per axis, got {shapes_of((x, start, end, stride))}")
        shape: tuple[Dim, ...] = tuple(unknown(self.name, axis) for axis in range(x.rank))
        return (TensorType(x.dtype, shape),)

    def reference(self, x: Array, start: Array, end: Array, stride: Array) -> tuple[Array]:
        """Return a copy of the slice. Limits outside of x raise ShapeError."""
        limits = (start.tolist(), end.tolist(), stride.tolist())
        _check(self.name, TensorType(DType.of(x.dtype), x.shape), *limits)
        return (_slice(x, *limits),)
