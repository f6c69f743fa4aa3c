"""Operands of the atomic operations and checks of their shapes and values.

An atomic operation has four axes with extents from 1 to 65535.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tpuconvert.schema.dtype_rules import INPUTS_SAME_WIDTH
from tpuconvert.schema.errors import ShapeError, UsageError
from tpuconvert.schema.extents import may_equal
from tpuconvert.schema.op import ALL_SAME, Op, Operand
from tpuconvert.schema.shape_checks import check_extent, listed
from tpuconvert.schema.types import Array, Dim, DType, Shape, TensorType

LARGEST_EXTENT = 65535
LAYOUT = "NCHW, 64-byte aligned, every extent 1..65535"

SOURCE = Operand("src", (4,), LAYOUT)
RESULT = Operand("dst", (4,), "NCHW, 64-byte aligned")


def per_channel_operand(name: str) -> Operand:
    """Declare an operand with one row of parameters per channel."""
    return Operand(name, (4,), "64-byte aligned", coeff=True)


def check_atomic(op: Op, x: TensorType) -> None:
    """Check rank and extents of a tensor.

    Raises:
        ShapeError: the operation does not accept the shape.
    """
    if x.rank != 4 or any(isinstance(extent, int) and not 1 <= extent <= LARGEST_EXTENT for extent in x.shape):
        raise ShapeError(f"{op.name} takes four axes with extents from 1 to {LARGEST_EXTENT}, got {x}")


def check_per_channel(op: Op, x: TensorType, quant: TensorType, count: int) -> None:
    """Check that parameters are [1, C, 1, count].

    Raises:
        ShapeError: when they are not.
    """
    wanted = (1, x.shape[1], 1, count)
    if quant.rank != 4 or not all(map(may_equal, quant.shape, wanted)):
        raise ShapeError(f"{op.name}: the parameters must be [1, {x.shape[1]}, 1, {count}], got {x} and {quant}")


def check_offset(op: Op, offset: int, narrow: DType, wide: DType, of: DType) -> None:
    """Check that an offset fits ``narrow`` when ``of`` is signed, else ``wide``.

    Raises:
        ShapeError: when it does not.
    """
    limit = narrow if of.is_signed else wide
    if not limit.holds(offset):
        raise ShapeError(f"{op.name}: with {of.value} the offset is {limit.value}, found {offset}")


def check_range(op: Op, name: str, values: Array, low: int, high: int) -> None:
    """Check a parameter that is given per channel.

    Raises:
        UsageError: a value is outside of low..high; the message contains the first one.
    """
    wrong = np.flatnonzero((values < low) | (values > high))
    if wrong.size:
        raise UsageError(
            f"{op.name}: the {name} of channel {wrong[0]} is {values.flat[wrong[0]]}, expected {low}..{high}"
        )


def check_data_types(op: Op, *types: TensorType | None) -> None:
    """Check that operands have one data type, or one width, if every case of the operator's table requires it.

    Raises:
        ShapeError: when they have not.
    """
    rules = [case.rules for support in op.dtypes.values() for case in support.cases]
    dtypes = {operand.dtype for operand in types if operand is not None}
    if len(dtypes) > 1 and all(ALL_SAME in found for found in rules):
        raise ShapeError(f"{op.name}: operands must have one data type, got {listed(types)}")
    if len({dtype.bits for dtype in dtypes}) > 1 and all(INPUTS_SAME_WIDTH in found for found in rules):
        raise ShapeError(f"{op.name}: operands must be of one width, got {listed(types)}")


Expands = Callable[[int], bool]
"""Returns True if the second operand is broadcast along an axis."""


def combined_shape(op: Op, first: TensorType | None, second: TensorType | None, expands: Expands) -> Shape:
    """Shape of the result of two operands of which only the second may be broadcast; None is a constant.

    Raises:
        ShapeError: the shapes do not fit, or no operand has a shape.
    """
    types = [operand for operand in (first, second) if operand is not None]
    for operand in types:
        check_atomic(op, operand)
    if not types:
        raise ShapeError(f"{op.name}: two constants have no shape")
    if first is None or second is None:
        return types[0].shape
    for axis, (own, other) in enumerate(zip(first.shape, second.shape, strict=True)):
        wanted: Dim = 1 if expands(axis) else own
        check_extent(op, f"extent {axis} of input1", other, wanted, first, second)
    return first.shape


def check_same_shape(op: Op, shape: Shape, old: TensorType) -> None:
    """Check that the previous content of the result has the shape of the result.

    Raises:
        ShapeError: when it has not.
    """
    if old.rank != len(shape) or not all(map(may_equal, shape, old.shape)):
        raise ShapeError(f"{op.name}: output_old must be {list(shape)}, got {listed((old,))}")
