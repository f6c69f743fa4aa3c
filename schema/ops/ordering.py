"""Sorting and selection along an axis: arg, topk, sort, argsort.

Equal values have ascending indices in ascending and descending order, and NaN is larger than every number. On the chips
the order of equal values is unspecified.
"""

from __future__ import annotations

import enum
from dataclasses import replace

import numpy as np

from tpuconvert.schema.arithmetic.finite import InfinityUse
from tpuconvert.schema.definition.extents import normalize_axis, with_extent
from tpuconvert.schema.definition.op import GLOBAL, Case, Op, Operand, case, limited_local, on, same, tpu_op
from tpuconvert.schema.errors import ShapeError, UsageError
from tpuconvert.schema.types import F32, I8, I32, U8, Array, Chip, DType, TensorType, format_shape


def _unless_stable(case_: Case) -> tuple[Case]:
    """BM1684 has no stable sort."""
    return (replace(case_, when=lambda op: not op.stable, when_text="stable is false"),)


class ArgMethod(enum.IntEnum):
    """Element to find: the largest or the smallest."""

    max = 0
    min = 1


def _order(x: Array, axis: int, descending: bool) -> Array:
    """Return the indices that sort ``x`` along ``axis``; equal values have ascending indices."""
    if not descending:
        return np.argsort(x, axis=axis, kind="stable")
    # Reverse x, sort ascending and reverse the result, so that equal values have ascending indices.
    backwards = np.argsort(np.flip(x, axis), axis=axis, kind="stable")
    order: Array = x.shape[axis] - 1 - np.flip(backwards, axis)
    return order


def falling_order(scores: Array) -> Array:
    """Return the indices that sort 1-D scores in descending order."""
    return _order(scores, 0, descending=True)


def _is_local(op: Arg, ins: tuple[TensorType, ...], outs: tuple[TensorType, ...], chip: Chip) -> bool:
    return op.axis % ins[0].rank > 1


_ARG = (
    case({"tensor_i": (F32,), "tensor_o": (I32, F32)}),
    case({"tensor_i": (I8, U8), "tensor_o": (I32,)}),
)


@tpu_op("arg")
class Arg(Op):
    """Index of the first largest or smallest element along ``axis``; the index of the first NaN, if any.

    ``out_dtype`` is INT32, or FLOAT32 for indices as floats, the only type of BM1682.

    Shapes: ``axis`` has extent 1 in y.
    """

    axis: int
    method: ArgMethod = ArgMethod.max
    out_dtype: DType = I32

    infinity = InfinityUse.DEFINED
    inputs = (Operand("tensor_i"),)
    decides_by = ("tensor_i",)
    decides_elements = True
    dtypes = on(*_ARG, bm1682=(same(F32),))
    locality = limited_local(_is_local, "local when axis, counted from the front, is above 1")

    def __post_init__(self) -> None:
        object.__setattr__(self, "method", ArgMethod(self.method))

    def infer(self, x: TensorType) -> tuple[TensorType]:
        """Shapes: ``axis`` must not be empty."""
        axis = normalize_axis(self.name, self.axis, x)
        if x.shape[axis] == 0:
            raise ShapeError(f"{self.name}: axis {axis} of {format_shape(x.shape)} is empty")
        return (TensorType(self.out_dtype, with_extent(x.shape, axis, 1)),)

    def reference(self, x: Array) -> tuple[Array]:
        """Return the index of the first largest or smallest element."""
        find = np.argmax if self.method is ArgMethod.max else np.argmin
        return (find(x, axis=self.axis, keepdims=True).astype(self.out_dtype.numpy),)


@tpu_op("topk")
class Topk(Op):
    """The ``k`` largest elements along ``axis``, descending, or the ``k`` smallest, ascending, and their indices.

    ``index_dtype`` is INT32, or FLOAT32 on BM1682.

    Shapes: ``axis`` has extent k in both results.
    """

    k: int = 1
    axis: int = 0
    descending: bool = True
    index_dtype: DType = I32

    infinity = InfinityUse.DEFINED
    inputs = (Operand("tensor_i"),)
    decides_by = ("tensor_i",)
    outputs = (Operand("tensor_val"), Operand("tensor_idx"))
    dtypes = on(case({"tensor_i": (F32,), "tensor_val": (F32,), "tensor_idx": (I32,)}), bm1682=(same(F32),))
    locality = GLOBAL

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ValueError(f"topk: k is {self.k}")

    def infer(self, x: TensorType) -> tuple[TensorType, TensorType]:
        """Shapes: ``axis`` has at least k elements."""
        axis = normalize_axis(self.name, self.axis, x)
        extent = x.shape[axis]
        if isinstance(extent, int) and self.k > extent:
            raise ShapeError(f"{self.name}: axis {axis} of {format_shape(x.shape)} has no {self.k} elements")
        shape = with_extent(x.shape, axis, self.k)
        return TensorType(x.dtype, shape), TensorType(self.index_dtype, shape)

    def reference(self, x: Array) -> tuple[Array, Array]:
        """Return sorted values and their indices."""
        if self.k > x.shape[self.axis]:  # a symbolic extent
            raise UsageError(f"{self.name}: axis {self.axis} of {format_shape(x.shape)} has no {self.k} elements")
        first = [slice(None)] * x.ndim
        first[self.axis] = slice(self.k)
        order = _order(x, self.axis, self.descending)[tuple(first)]
        return np.take_along_axis(x, order, self.axis), order.astype(self.index_dtype.numpy)


_SORT = case({"tensor_i": (F32,), "index_o": (I32,), "tensor_o": (F32,)})
_ARGSORT = case({"tensor_i": (F32,), "index_o": (I32, F32)})


@tpu_op("sort")
class Sort(Op):
    """Sort the elements along ``dim``: the first result contains their indices, the second the sorted elements.

    ``stable`` has no effect on these results: equal values always have ascending indices. BM1684 requires false.
    ``index_dtype`` is INT32, or FLOAT32 on BM1682.

    Shapes: both results as x.
    """

    dim: int = -1
    stable: bool = False
    descending: bool = False
    index_dtype: DType = I32

    infinity = InfinityUse.DEFINED
    inputs = (Operand("tensor_i"),)
    decides_by = ("tensor_i",)
    outputs = (Operand("index_o"), Operand("tensor_o"))
    dtypes = on(_SORT, bm1682=(same(F32),), bm1684=_unless_stable(_SORT))
    locality = GLOBAL

    def infer(self, x: TensorType) -> tuple[TensorType, TensorType]:
        """Shapes: x must have the axis ``dim``."""
        normalize_axis(self.name, self.dim, x)
        return TensorType(self.index_dtype, x.shape), x

    def reference(self, x: Array) -> tuple[Array, Array]:
        """Return indices and sorted values."""
        order = _order(x, self.dim, self.descending)
        return order.astype(self.index_dtype.numpy), np.take_along_axis(x, order, self.dim)


@tpu_op("argsort")
class Argsort(Op):
    """Indices that sort x along ``dim`` in ascending or descending order.

    ``stable`` has no effect on the result: equal values always have ascending indices. BM1684 requires false.
    ``out_dtype`` is INT32, or FLOAT32 for indices as floats, the only type of BM1682.

    Shapes: as x.
    """

    dim: int = -1
    stable: bool = False
    descending: bool = False
    out_dtype: DType = I32

    infinity = InfinityUse.DEFINED
    inputs = (Operand("tensor_i"),)
    decides_by = ("tensor_i",)
    outputs = (Operand("index_o"),)
    dtypes = on(_ARGSORT, bm1682=(same(F32),), bm1684=_unless_stable(_ARGSORT))
    locality = GLOBAL

    def infer(self, x: TensorType) -> tuple[TensorType]:
        """Shapes: x must have the axis ``dim``."""
        normalize_axis(self.name, self.dim, x)
        return (TensorType(self.out_dtype, x.shape),)

    def reference(self, x: Array) -> tuple[Array]:
        """Return the sorted indices."""
        return (_order(x, self.dim, self.descending).astype(self.out_dtype.numpy),)
