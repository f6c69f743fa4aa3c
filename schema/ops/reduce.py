"""Reduction over a list of axes: mean, sum, maximum, minimum or product."""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence

import numpy as np

from tpuconvert.schema.arithmetic.fixed_point import saturate
from tpuconvert.schema.definition.extents import normalize_axes
from tpuconvert.schema.definition.op import Extents, Op, Operand, Trait, limited_local, on, tpu_op
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.types import F16, F32, I8, U8, Array, Dim, DType, TensorType


class ReduceMethodType(enum.IntEnum):
    """Reduction operations."""

    REDUCE_MEAN = 0
    REDUCE_SUM = 1
    REDUCE_MAX = 2
    REDUCE_MIN = 3
    REDUCE_PROD = 4


@tpu_op("reduce")
class Reduce(Op):
    """Reduce x along the listed axes: mean, sum, maximum, minimum or product.

    Floating point is accumulated in binary64 and rounded once. Integers are accumulated exactly and saturated; ties of
    a mean round away from zero. The maximum of no elements is the lowest number of the type, -infinity for floats; the
    minimum is the highest.

    Shapes: reduced axes become 1, or disappear without ``keep_dims``; reducing every axis then gives [1].
    """

    axis_list: tuple[int, ...]
    method: ReduceMethodType = ReduceMethodType.REDUCE_MEAN
    axis_num: int | None = None
    keep_dims: bool = True

    inputs = (Operand("tensor_i"),)
    dtypes = on(bm1682=(F32,), bm1684=(F32, I8, U8), bm1686=(F32, F16, I8, U8))
    locality = limited_local(lambda op, ins, outs, chip: ins[0].dtype is F32, "may be local only for FLOAT32")
    traits = Trait.KEEPS_SIGN | Trait.ALONG_AXES

    def __post_init__(self) -> None:
        object.__setattr__(self, "method", ReduceMethodType(self.method))
        if self.axis_num is not None and not 0 <= self.axis_num <= len(self.axis_list):
            raise ValueError(f"reduce: axis_num is {self.axis_num}, axis_list has {len(self.axis_list)} entries")

    def count_macs(self, operands: Sequence[Extents], results: Sequence[Extents]) -> int:
        """One MAC per element of the operand."""
        return math.prod(operands[0])

    def infer(self, x: TensorType) -> tuple[TensorType]:
        """Shapes: each axis exists and occurs once. A mean needs at least one element."""
        axes = self._axes(x)
        if self.method is ReduceMethodType.REDUCE_MEAN and any(x.shape[axis] == 0 for axis in axes):
            raise ShapeError(f"{self.name}: {self.method.name} of no elements, axes {self.axis_list} of {x}")
        shape: tuple[Dim, ...] = tuple(1 if axis in axes else extent for axis, extent in enumerate(x.shape))
        if not self.keep_dims:
            shape = tuple(extent for axis, extent in enumerate(x.shape) if axis not in axes) or (1,)
        return (TensorType(x.dtype, shape),)

    def reference(self, x: Array) -> tuple[Array]:
        """Accumulate in float64 or INT64 and round once."""
        dtype = DType.of(x.dtype)
        x_type = TensorType(dtype, x.shape)
        axes, shape = self._axes(x_type), self.infer(x_type)[0].static_shape
        with np.errstate(all="ignore"):
            result = self._of_integers(x, axes) if dtype.is_integer else self._of_floats(x, axes)
            return (result.astype(dtype.numpy).reshape(shape),)

    def _axes(self, x: TensorType) -> tuple[int, ...]:
        return normalize_axes(self.name, self.axis_list[: self.axis_num], x)

    def _of_floats(self, x: Array, axes: tuple[int, ...]) -> Array:
        wide: Array = x.astype(np.float64)
        if self.method is ReduceMethodType.REDUCE_MEAN:
            return np.asarray(wide.sum(axis=axes) / math.prod(x.shape[axis] for axis in axes))
        return self._fold(wide, axes)

    def _of_integers(self, x: Array, axes: tuple[int, ...]) -> Array:
        wide: Array = x.astype(np.int64)
        if self.method is ReduceMethodType.REDUCE_PROD:
            return saturate(_product(wide, axes), DType.of(x.dtype))
        if self.method is ReduceMethodType.REDUCE_MEAN:
            total = np.asarray(wide.sum(axis=axes))
            count = math.prod(x.shape[axis] for axis in axes)
            mean: Array = np.sign(total) * ((2 * np.abs(total) + count) // (2 * count))  # ties away from zero
            return mean
        dtype = DType.of(x.dtype)
        return saturate(self._fold(wide, axes, dtype.min, dtype.max), dtype)

    def _fold(self, wide: Array, axes: tuple[int, ...], lowest: float = -np.inf, highest: float = np.inf) -> Array:
        if self.method is ReduceMethodType.REDUCE_MAX:
            return np.asarray(np.maximum.reduce(wide, axis=axes, initial=lowest))
        if self.method is ReduceMethodType.REDUCE_MIN:
            return np.asarray(np.minimum.reduce(wide, axis=axes, initial=highest))
        fold = np.add if self.method is ReduceMethodType.REDUCE_SUM else np.multiply
        return np.asarray(fold.reduce(wide, axis=axes))


def _product(x: Array, axes: tuple[int, ...]) -> Array:
    """Product of 8-bit integers, clipped to +-2^32, which does not change the result of saturation."""
    other_axes = [axis for axis in range(x.ndim) if axis not in axes]
    factors = x.transpose(*axes, *other_axes).reshape(-1, *(x.shape[axis] for axis in other_axes))
    product = np.ones(factors.shape[1:], dtype=np.int64)
    for factor in factors:
        # Factors are integers, so that the magnitude of a clipped product never decreases, unless it becomes 0.
        product = np.clip(product * factor, -(1 << 32), 1 << 32)
    return product
