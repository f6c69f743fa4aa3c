"""Creation of tensors from shapes and scalars: number_like, sequence_gen, shape_fetch."""

from __future__ import annotations

import math

import numpy as np

from tpuconvert.schema.arithmetic.finite import InfinityUse
from tpuconvert.schema.definition.dtype_rules import SCALAR_SAME_OUT
from tpuconvert.schema.definition.extents import unknown
from tpuconvert.schema.definition.op import GLOBAL, Case, Op, Operand, Trait, case, on, todo, tpu_op
from tpuconvert.schema.errors import ShapeError, UsageError
from tpuconvert.schema.types import (
    F32,
    I32,
    MAX_RANK,
    NUMBERS,
    NUMBERS_F16,
    Array,
    DType,
    Scalar,
    TensorType,
    format_shape,
)


def _fill_case(*dtypes: DType) -> tuple[Case]:
    return (case({"tensor_like": dtypes, "scalar_i": dtypes, "tensor_o": dtypes}, SCALAR_SAME_OUT),)


@tpu_op("number_like")
class NumberLike(Op):
    """y = a tensor whose elements are all scalar_i, in the data type of the scalar.

    Shapes: y as x, whose elements are not used.
    """

    scalar_i: Scalar

    infinity = InfinityUse.DEFINED
    inputs = (Operand("tensor_like"),)
    dtypes = on(*_fill_case(*NUMBERS), bm1682=_fill_case(F32))
    locality = GLOBAL
    traits = Trait.SHAPE_ONLY

    def infer(self, x: TensorType) -> tuple[TensorType]:
        """Shapes: the operand may have any shape, and the result has the same shape."""
        return (TensorType(self.scalar_i.dtype, x.shape),)

    def reference(self, x: Array) -> tuple[Array]:
        """Return a new array."""
        return (np.full(x.shape, self.scalar_i.array),)


_SEQUENCE = case({"shape_tensor": (I32,), "tensor_o": (F32, I32)})


@tpu_op("sequence_gen")
class SequenceGen(Op):
    """y = 0, 1, 2, ... in row-major order. The values of the operand are the shape of y.

    ``out_dtype`` is INT32 or FLOAT32; None means the type of the operand.

    Shapes: shape_tensor [rank of y]; the extents of y are its values.
    """

    out_dtype: DType | None = None

    inputs = (Operand("shape_tensor", ranks=(1,), coeff=True),)
    dtypes = on(_SEQUENCE, bm1682=None, bm1686=todo(_SEQUENCE))
    locality = GLOBAL

    def infer(self, shape_tensor: TensorType) -> tuple[TensorType]:
        """Shapes: the number of elements of shape_tensor is the rank of y."""
        (rank,) = shape_tensor.shape
        if not isinstance(rank, int) or not 1 <= rank <= MAX_RANK:
            raise ShapeError(
                f"{self.name}: shape_tensor {format_shape(shape_tensor.shape)} must hold 1 to {MAX_RANK} extents"
            )
        shape = tuple(unknown(self.name, axis) for axis in range(rank))
        return (TensorType(self.result_dtype(shape_tensor.dtype), shape),)

    def reference(self, shape_tensor: Array) -> tuple[Array]:
        """FLOAT32 elements above 2^24 are rounded."""
        shape: list[int] = shape_tensor.tolist()
        if any(extent < 0 for extent in shape):
            raise UsageError(f"{self.name}: the shape {shape} has a negative extent")
        count = np.arange(math.prod(shape)).astype(self.result_dtype(DType.of(shape_tensor.dtype)).numpy)
        return (count.reshape(shape),)


def _fetch_case(*dtypes: DType) -> tuple[Case]:
    return (case({"tensor_i": dtypes, "tensor_o": (I32,)}),)


@tpu_op("shape_fetch")
class ShapeFetch(Op):
    """Extents of x on the axes ``begin_axis``, ``begin_axis + step``, ... below ``end_axis``.

    Shapes: y has one axis. Negative axes count from the end; ``end_axis`` may be the rank.
    """

    begin_axis: int = 0
    end_axis: int = 1
    step: int = 1

    inputs = (Operand("tensor_i"),)
    outputs = (Operand("tensor_o", ranks=(1,)),)
    dtypes = on(bm1682=_fetch_case(F32), bm1684=_fetch_case(*NUMBERS), bm1686=_fetch_case(*NUMBERS_F16))
    locality = GLOBAL
    traits = Trait.SHAPE_ONLY

    def __post_init__(self) -> None:
        if self.step < 1:
            raise ValueError(f"shape_fetch: step is {self.step}")

    def infer(self, x: TensorType) -> tuple[TensorType]:
        """Shapes: y has at least one element."""
        return (TensorType(I32, (len(self._axes(x.shape, x.rank)),)),)

    def reference(self, x: Array) -> tuple[Array]:
        """Return the extents of the array."""
        return (np.array([x.shape[axis] for axis in self._axes(x.shape, x.ndim)], dtype=np.int32),)

    def _axes(self, shape: tuple[int | str, ...], rank: int) -> range:
        begin = self.begin_axis + rank if self.begin_axis < 0 else self.begin_axis
        end = self.end_axis + rank if self.end_axis < 0 else self.end_axis
        if not 0 <= begin < end <= rank:
            raise ShapeError(f"{self.name}: {format_shape(shape)} has no axes {self.begin_axis} up to {self.end_axis}")
        return range(begin, end, self.step)
