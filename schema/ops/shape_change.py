"""Operators that change only the shape: reshape, squeeze, expand_dims, reshape_v2."""

from __future__ import annotations

import abc
from collections.abc import Sequence

from tpuconvert.schema.definition.dtype_rules import IO_SAME
from tpuconvert.schema.definition.extents import exact_div, factorize, may_equal, normalize_axes, times, unknown
from tpuconvert.schema.definition.op import GLOBAL, Op, Operand, Trait, case, on, tpu_op
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.graph.graph import static
from tpuconvert.schema.types import (
    F32,
    I32,
    MAX_RANK,
    NUMBERS,
    NUMBERS_F16,
    Array,
    Dim,
    Shape,
    TensorType,
    format_shape,
)


def infer_reshape(op: str, shape: Shape, target: Sequence[int]) -> Shape:
    """Infer the shape after a reshape to ``target``: 0 copies the extent of this axis; one -1 is allowed and inferred.

    Raises:
        ShapeError: the numbers of elements are known to differ.
    """
    asked = f"{op}: {format_shape(shape)} does not fit into {format_shape(target)}"
    if not 1 <= len(target) <= MAX_RANK or list(target).count(-1) > 1 or any(extent < -1 for extent in target):
        raise ShapeError(f"{asked}: 1 to {MAX_RANK} extents, one of them may be -1")
    if any(extent == 0 and axis >= len(shape) for axis, extent in enumerate(target)):
        raise ShapeError(f"{asked}: 0 copies an extent that does not exist")
    result: list[Dim] = [shape[axis] if extent == 0 else extent for axis, extent in enumerate(target)]
    have, have_names = factorize(shape)
    want, want_names = factorize(extent for extent in result if extent != -1)
    if want == 0 and -1 in target:  # the tensor is empty: the other extents determine the inferred one
        copied = {axis for axis, extent in enumerate(target) if extent == 0}
        have, have_names = factorize(extent for axis, extent in enumerate(shape) if axis not in copied)
        want, want_names = factorize(extent for extent in target if extent > 0)
    rest = have_names - want_names
    is_determined = not rest and not want_names - have_names
    if -1 not in target:
        if is_determined and have != want:
            raise ShapeError(asked)
        return tuple(result)
    if want == 0 or (is_determined and have % want):
        raise ShapeError(asked)
    # Cancel the names that occur on both sides, as the names of copied extents do.
    inferred = exact_div(times(have, *rest.elements()), want) if rest else have // want
    result[list(target).index(-1)] = inferred
    return tuple(result)


def reshape_params(shape: Shape, new_shape: Shape) -> tuple[int, ...] | None:
    """Return the parameter of ``reshape`` for a given result shape, which may have symbolic extents.

    A symbolic extent is copied if x has the same extent on this axis; one other symbolic extent is inferred. The result
    is None if a reshape cannot express the shape, or if its result is not known to have this shape.
    """
    target = []
    for axis, extent in enumerate(new_shape):
        is_copied = axis < len(shape) and shape[axis] == extent
        target.append(extent if isinstance(extent, int) else 0 if is_copied else -1)
    if 0 in new_shape or target.count(-1) > 1:
        return None
    try:
        inferred = infer_reshape("reshape", shape, target)
    except ShapeError:
        return None
    return tuple(target) if inferred == new_shape else None


class ShapeChange(Op, abc.ABC):
    """Base of operators that change the shape and keep the elements in row-major order."""

    inputs = (Operand("tensor_i"),)
    dtypes = on(bm1682=(F32,), bm1684=NUMBERS, bm1686=NUMBERS_F16)
    locality = GLOBAL
    traits = Trait.RESHAPES
    rewrite_weight = 2

    @abc.abstractmethod
    def result_shape(self, shape: Shape) -> Shape:
        """Return the shape of the result.

        Raises:
            ShapeError: the operator does not accept the shape of x.
        """

    def infer(self, x: TensorType) -> tuple[TensorType]:
        """Shapes: the parameters determine the shape; the number of elements does not change."""
        return (TensorType(x.dtype, self.result_shape(x.shape)),)

    def reference(self, x: Array) -> tuple[Array]:
        """Return the same elements in the new shape."""
        return (x.reshape(static(self.result_shape(x.shape))),)


@tpu_op("reshape")
class Reshape(ShapeChange):
    """Reshape x.

    Shapes: y has the shape ``reshape_param``, in which 0 copies the extent of x on this axis; one -1 is inferred.
    """

    reshape_param: tuple[int, ...]

    rewrite_weight = 1

    def result_shape(self, shape: Shape) -> Shape:
        """``reshape_param`` with its 0 and -1 replaced by extents."""
        return infer_reshape(self.name, shape, self.reshape_param)


@tpu_op("squeeze")
class Squeeze(ShapeChange):
    """Remove the listed axes, which have extent 1. An empty list removes all axes of extent 1.

    Shapes: if all axes are removed, y is [1].
    """

    axis: tuple[int, ...] = ()

    def result_shape(self, shape: Shape) -> Shape:
        """The extents of the other axes."""
        x = TensorType(F32, shape)
        removed = normalize_axes(self.name, self.axis, x) or [k for k, extent in enumerate(shape) if extent == 1]
        if not all(may_equal(shape[axis], 1) for axis in removed):
            raise ShapeError(f"{self.name}: axes {self.axis} of {format_shape(shape)} do not all have extent 1")
        return tuple(extent for axis, extent in enumerate(shape) if axis not in removed) or (1,)


@tpu_op("expand_dims")
class ExpandDims(ShapeChange):
    """Insert ``ndims`` axes of extent 1 before ``axis``.

    Shapes: ``axis`` is 0..rank; -1 inserts after the last axis.
    """

    axis: int
    ndims: int = 1

    def __post_init__(self) -> None:
        if self.ndims < 0:
            raise ValueError(f"expand_dims: ndims is {self.ndims}")

    def result_shape(self, shape: Shape) -> Shape:
        """The extents of x with the inserted axes."""
        rank = len(shape)
        if not -rank - 1 <= self.axis <= rank or rank + self.ndims > MAX_RANK:
            raise ShapeError(f"{self.name}: cannot insert {self.ndims} axes at {self.axis} into {format_shape(shape)}")
        axis = self.axis % (rank + 1)
        return (*shape[:axis], *(1,) * self.ndims, *shape[axis:])


@tpu_op("reshape_v2")
class ReshapeV2(Op):
    """As reshape, with the target shape computed at run time.

    Shapes: shape_info [rank of y]; the extents of y depend on its values.
    """

    inputs = (Operand("tensor_i"), Operand("shape_info", ranks=(1,), coeff=True))
    dtypes = on(
        bm1682=(case({"tensor_i": (F32,), "shape_info": (I32,), "tensor_o": (F32,)}, IO_SAME),),
        bm1684=(case({"tensor_i": NUMBERS, "shape_info": (I32,), "tensor_o": NUMBERS}, IO_SAME),),
        bm1686=(case({"tensor_i": NUMBERS_F16, "shape_info": (I32,), "tensor_o": NUMBERS_F16}, IO_SAME),),
    )
    locality = GLOBAL
    traits = Trait.MOVES_DATA

    def infer(self, x: TensorType, shape_info: TensorType) -> tuple[TensorType]:
        """Shapes: the number of elements of shape_info is the rank of y."""
        (rank,) = shape_info.shape
        if not isinstance(rank, int) or not 1 <= rank <= MAX_RANK:
            raise ShapeError(
                f"{self.name}: shape_info {format_shape(shape_info.shape)} for {format_shape(x.shape)} must hold "
                f"1 to {MAX_RANK} extents"
            )
        return (TensorType(x.dtype, tuple(unknown(self.name, axis) for axis in range(rank))),)

    def reference(self, x: Array, shape_info: Array) -> tuple[Array]:
        """Return the same elements in the new shape."""
        return (x.reshape(static(infer_reshape(self.name, x.shape, shape_info.tolist()))),)
