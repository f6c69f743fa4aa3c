"""Concatenation, splitting and interleaving along an axis: concat, split, interleave."""

from __future__ import annotations

import numpy as np

from tpuconvert.schema.definition.extents import (
    exact_div,
    may_equal,
    merge,
    merge_shapes,
    normalize_axis,
    plus,
    shapes_of,
    times,
    with_extent,
)
from tpuconvert.schema.definition.op import GLOBAL, Op, Operand, Trait, limited_local, on, todo, tpu_op
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.types import (
    F16,
    F32,
    I8,
    I32,
    NUMBERS,
    NUMBERS_F16,
    U8,
    Array,
    Chip,
    Dim,
    TensorType,
    format_shape,
)


def _is_local(op: Concat, ins: tuple[TensorType, ...], outs: tuple[TensorType, ...], chip: Chip) -> bool:
    axis = op.axis % ins[0].rank
    return axis != 1 and not (chip is Chip.BM1684 and axis == 0 and ins[0].dtype.bits in (8, 16))


@tpu_op("concat")
class Concat(Op):
    """Concatenate the operands along ``axis``.

    Shapes: operands have equal extents except on ``axis``, where the extent of y is their sum.
    """

    axis: int

    inputs = (Operand("tensor_i", variadic=True),)
    dtypes = on(bm1682=(F32,), bm1684=NUMBERS, bm1686=todo(*NUMBERS_F16))
    locality = limited_local(_is_local, "any axis but 1; on BM1684 axis 0 of 8 and 16 bit data is global too")
    traits = Trait.MOVES_INTEGERS | Trait.ALONG_AXES

    def infer(self, *xs: TensorType) -> tuple[TensorType]:
        """Shapes: at least one operand; equal ranks; the extents on ``axis`` are added."""
        if not xs:
            raise ShapeError(f"{self.name} needs at least one operand")
        first, axis = xs[0], normalize_axis(self.name, self.axis, xs[0])
        shape = first.shape
        for x in xs[1:]:
            others = [k for k in range(first.rank) if k != axis]
            if x.rank != first.rank or not all(may_equal(shape[k], x.shape[k]) for k in others):
                raise ShapeError(f"{self.name}: axis {axis} cannot join {shapes_of(xs)}")
            shape = tuple(merge(a, b) for a, b in zip(shape, x.shape, strict=True))
        return (TensorType(first.dtype, with_extent(shape, axis, plus(*(x.shape[axis] for x in xs)))),)

    def reference(self, *xs: Array) -> tuple[Array]:
        """Concatenate in the order of the operands."""
        return (np.concatenate(xs, axis=self.axis),)


@tpu_op("split")
class Split(Op):
    """Split x along ``axis`` into ``num`` consecutive parts: the inverse of concat.

    Shapes: part i has extent ``size[i]``, or extent / ``num`` if ``size`` is empty.
    """

    axis: int
    num: int
    size: tuple[int, ...] = ()

    inputs = (Operand("tensor_i"),)
    outputs = (Operand("tensor_o", variadic=True),)
    dtypes = on(bm1682=(F32,), bm1684=NUMBERS, bm1686=NUMBERS_F16)
    locality = GLOBAL
    traits = Trait.MOVES_INTEGERS | Trait.ALONG_AXES

    def __post_init__(self) -> None:
        if self.num < 1 or (self.size and len(self.size) != self.num) or any(extent < 0 for extent in self.size):
            raise ValueError(f"split: sizes {self.size} for {self.num} parts")

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        """Shapes: the sizes must add up to the extent of ``axis``, or it must be divisible by ``num``."""
        axis = normalize_axis(self.name, self.axis, x)
        extent = x.shape[axis]
        sizes: tuple[Dim, ...] = self.size
        if not sizes:
            if isinstance(extent, int) and extent % self.num:
                raise ShapeError(f"{self.name}: axis {axis} of {format_shape(x.shape)} has no {self.num} equal parts")
            sizes = (exact_div(extent, self.num),) * self.num
        elif isinstance(extent, int) and sum(self.size) != extent:
            raise ShapeError(f"{self.name}: sizes {self.size} do not add up to axis {axis} of {format_shape(x.shape)}")
        return tuple(TensorType(x.dtype, with_extent(x.shape, axis, size)) for size in sizes)

    def reference(self, x: Array) -> tuple[Array, ...]:
        """Return the parts in ascending order of indices."""
        sizes = self.size or (x.shape[self.axis] // self.num,) * self.num
        parts = np.split(x, np.cumsum(sizes)[:-1].tolist(), axis=self.axis)
        return tuple(np.ascontiguousarray(part) for part in parts)


@tpu_op("interleave")
class Interleave(Op):
    """Interleave x0 and x1 along ``axis``, in chunks of ``step`` slices.

    Shapes: x0 and x1 are equal; the extent on ``axis`` doubles.
    """

    axis: int
    step: int

    inputs = (Operand("tensor_i0"), Operand("tensor_i1"))
    dtypes = on(bm1682=(F32,), bm1684=(F32, I32, I8, U8), bm1686=todo(F32, F16, I32, I8, U8))
    locality = GLOBAL
    traits = Trait.MOVES_DATA

    def __post_init__(self) -> None:
        if self.step < 1:
            raise ValueError(f"interleave: step is {self.step}")

    def infer(self, x0: TensorType, x1: TensorType) -> tuple[TensorType]:
        """Shapes: ``step`` divides the extent on ``axis``."""
        shape = merge_shapes(self.name, x0, x1)
        axis = normalize_axis(self.name, self.axis, x0)
        extent = shape[axis]
        if isinstance(extent, int) and extent % self.step:
            raise ShapeError(f"{self.name}: chunks of {self.step} do not fill axis {axis} of {shapes_of((x0, x1))}")
        return (TensorType(x0.dtype, with_extent(shape, axis, times(2, extent))),)

    def reference(self, x0: Array, x1: Array) -> tuple[Array]:
        """Each chunk of x0 precedes the same chunk of x1."""
        axis = self.axis % x0.ndim
        chunked = (*x0.shape[:axis], x0.shape[axis] // self.step, self.step, *x0.shape[axis + 1 :])
        both = np.stack((x0.reshape(chunked), x1.reshape(chunked)), axis=axis + 1)
        return (both.reshape(*x0.shape[:axis], 2 * x0.shape[axis], *x0.shape[axis + 1 :]),)
