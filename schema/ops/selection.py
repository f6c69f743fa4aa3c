"""Selection by a condition: condition_select, select, masked_select, where."""

from __future__ import annotations

import enum

import numpy as np

from tpuconvert.schema.arithmetic.finite import InfinityUse
from tpuconvert.schema.definition.dtype_rules import IO_SAME
from tpuconvert.schema.definition.extents import broadcast_shapes, may_equal, shapes_of, unknown
from tpuconvert.schema.definition.op import GLOBAL, LOCAL, Case, Op, Operand, Trait, case, on, todo, tpu_op
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.types import F16, F32, I8, I32, U8, Array, DType, Shape, TensorType

_CHOICES = on(bm1682=(F32,), bm1684=(F32, I8, U8), bm1686=(F32, F16, I8, U8))


def _fits(choice: TensorType, shape: Shape) -> bool:
    """Return True if an operand has the shape of the result, or one element."""
    same_rank = choice.rank == len(shape)
    return (same_rank and all(map(may_equal, choice.shape, shape))) or all(extent == 1 for extent in choice.shape)


def _spread(choice: Array, shape: tuple[int, ...]) -> Array:
    return choice.reshape(()) if choice.size == 1 else choice.reshape(shape)


@tpu_op("condition_select")
class ConditionSelect(Op):
    """``y = sel0 if cond > 0 else sel1``, element-wise: where/select. NaN selects sel1.

    Shapes: sel0 and sel1 as cond, or one element if constant.
    """

    infinity = InfinityUse.DEFINED
    inputs = (
        Operand("tensor_cond"),
        *(Operand(name, coeff=True, single=True) for name in ("tensor_sel0", "tensor_sel1")),
    )
    dtypes = _CHOICES
    locality = LOCAL
    traits = Trait.ELEMENTWISE

    def infer(self, cond: TensorType, sel0: TensorType, sel1: TensorType) -> tuple[TensorType]:
        """Shapes: sel0 and sel1 have the shape of cond, or one element."""
        if not (_fits(sel0, cond.shape) and _fits(sel1, cond.shape)):
            raise ShapeError(
                f"{self.name} needs choices with the shape of the condition or one element, "
                f"got {shapes_of((cond, sel0, sel1))}"
            )
        return (TensorType(sel0.dtype, cond.shape),)

    def reference(self, cond: Array, sel0: Array, sel1: Array) -> tuple[Array]:
        """Return the selected elements."""
        return (np.where(cond > 0, _spread(sel0, cond.shape), _spread(sel1, cond.shape)),)


class SelectType(enum.IntEnum):
    """Comparison operation of ``select``."""

    GREATER_THAN = 0
    GREATER_EQUAL = 1
    UNKNOWN_SELECT_OP = 2


@tpu_op("select")
class Select(Op):
    """``y = c if a > b else d``, element-wise, or with ``a >= b``.

    Shapes: a and b broadcast; c and d have the shape of the result, or one element if constant.
    """

    select_type: SelectType

    infinity = InfinityUse.DEFINED
    inputs = (
        *(Operand(name, coeff=True) for name in ("tensor_a", "tensor_b")),
        *(Operand(name, coeff=True, single=True) for name in ("tensor_c", "tensor_d")),
    )
    one_constant_of = ("tensor_a", "tensor_b")
    dtypes = _CHOICES
    locality = LOCAL
    traits = Trait.ELEMENTWISE

    def __post_init__(self) -> None:
        object.__setattr__(self, "select_type", SelectType(self.select_type))
        if self.select_type is SelectType.UNKNOWN_SELECT_OP:
            raise ValueError("select: select_type UNKNOWN_SELECT_OP is reserved")

    def infer(self, a: TensorType, b: TensorType, c: TensorType, d: TensorType) -> tuple[TensorType]:
        """Shapes: c and d have the shape of a and b after broadcasting, or one element."""
        shape = broadcast_shapes(self.name, a, b)
        if not (_fits(c, shape) and _fits(d, shape)):
            raise ShapeError(
                f"{self.name} needs choices with the shape of the compared tensors or one element, "
                f"got {shapes_of((a, b, c, d))}"
            )
        return (TensorType(c.dtype, shape),)

    def reference(self, a: Array, b: Array, c: Array, d: Array) -> tuple[Array]:
        """Return the selected elements."""
        holds: Array = a > b if self.select_type is SelectType.GREATER_THAN else a >= b
        return (np.where(holds, _spread(c, holds.shape), _spread(d, holds.shape)),)


def _mask_case(*dtypes: DType) -> Case:
    return case({"tensor_i": dtypes, "mask": dtypes, "tensor_o": dtypes}, IO_SAME)


@tpu_op("masked_select")
class MaskedSelect(Op):
    """The elements of x whose mask is not 0, in row-major order. NaN is not 0.

    Shapes: the mask has extent 1 on some leading axes and the extents of x on the others; y has one axis, whose
    extent depends on the data.
    """

    infinity = InfinityUse.DEFINED
    inputs = (Operand("tensor_i"), Operand("mask"))
    outputs = (Operand("tensor_o", ranks=(1,)),)
    dtypes = on(bm1682=(F32,), bm1684=(_mask_case(F32, I32),), bm1686=todo(_mask_case(F32, I32, F16)))
    locality = GLOBAL

    def infer(self, x: TensorType, mask: TensorType) -> tuple[TensorType]:
        """Shapes: only leading axes of the mask are broadcast."""
        leading = next((axis for axis, extent in enumerate(mask.shape) if extent != 1), mask.rank)
        if mask.rank != x.rank or not all(map(may_equal, mask.shape[leading:], x.shape[leading:])):
            raise ShapeError(f"{self.name} cannot expand the mask along leading axes only: {shapes_of((x, mask))}")
        return (TensorType(x.dtype, (unknown(self.name),)),)

    def reference(self, x: Array, mask: Array) -> tuple[Array]:
        """Return the elements whose mask is not 0."""
        return (x[np.broadcast_to(mask != 0, x.shape)],)


_WHERE = case({"tensor_i": (F32,), "tensor_o": (I32,)})


@tpu_op("where")
class Where(Op):
    """Coordinates of the elements of x that are not 0, in row-major order: one row per element.

    Shapes: y [number of these elements, rank of x]; the number depends on the data.
    """

    infinity = InfinityUse.DEFINED
    inputs = (Operand("tensor_i"),)
    decides_by = ("tensor_i",)
    outputs = (Operand("tensor_o", ranks=(2,)),)
    dtypes = on(_WHERE, bm1686=todo(_WHERE))
    locality = GLOBAL

    def infer(self, x: TensorType) -> tuple[TensorType]:
        """Shapes: y has one column per axis of x."""
        return (TensorType(I32, (unknown(self.name), x.rank)),)

    def reference(self, x: Array) -> tuple[Array]:
        """Return one row of coordinates per element."""
        return (np.argwhere(x != 0).astype(np.int32),)
