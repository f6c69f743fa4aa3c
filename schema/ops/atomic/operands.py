"""Operands of the atomic operations and checks of their shapes and values.

An atomic operation has four axes with extents from 1 to 65535.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tpuconvert.schema.definition.dtype_rules import INPUTS_SAME_WIDTH
from tpuconvert.schema.definition.extents import may_equal
from tpuconvert.schema.definition.op import ALL_SAME, Op, Operand
from tpuconvert.schema.definition.shape_checks import check_extent, format_types
from tpuconvert.schema.errors import ShapeError, UsageError
from tpuconvert.schema.types import Array, Dim, DType, Shape, TensorType

LARGEST_EXTENT = 65535
LAYOUT = "NCHW, 64-byte aligned, every extent 1..65535"

SOURCE = Operand("src", (4,), LAYOUT)
RESULT = Operand("dst", (4,), "NCHW, 64-byte aligned")


def per_channel_operand(name: str) -> Operand:
    """Declare the operand that contains the parameters of each channel."""
    return Operand(name, (4,), "64-byte aligned", coeff=True)


def check_atomic(op: Op, x: TensorType) -> None:
    """Check that a tensor has four axes with extents from 1 to 65535.

    Raises:
        ShapeError: it does not.
    """
    if x.rank != 4 or any(isinstance(extent, int) and not 1 <= extent <= LARGEST_EXTENT for extent in x.shape):
        raise ShapeError(f"{op.name} takes four axes with extents from 1 to {LARGEST_EXTENT}, got {x}")


def check_per_channel(op: Op, x: TensorType, quant: TensorType, count: int) -> None:
    """Check that per-channel parameters have the shape [1, C, 1, count].

    Raises:
        ShapeError: they have another shape.
    """
    expected = (1, x.shape[1], 1, count)
    if quant.rank != 4 or not all(map(may_equal, quant.shape, expected)):
        raise ShapeError(f"{op.name}: the parameters must be [1, {x.shape[1]}, 1, {count}], got {x} and {quant}")


def check_offset(op: Op, offset: int, narrow: DType, wide: DType, of: DType) -> None:
    """Check that an offset is in the range of ``narrow`` if ``of`` is signed, otherwise of ``wide``.

    Raises:
        ShapeError: it is out of range.
    """
    limit = narrow if of.is_signed else wide
    if not limit.holds(offset):
        raise ShapeError(f"{op.name}: with {of.value} the offset is {limit.value}, found {offset}")


def check_range(op: Op, name: str, values: Array, low: int, high: int) -> None:
    """Check that the per-channel values of a parameter are in the range low..high.

    Raises:
        UsageError: a value is out of range; the message contains the first such channel and its value.
    """
    wrong = np.flatnonzero((values < low) | (values > high))
    if wrong.size:
        raise UsageError(
            f"{op.name}: the {name} of channel {wrong[0]} is {values.flat[wrong[0]]}, expected {low}..{high}"
        )


def check_data_types(op: Op, *types: TensorType | None) -> None:
    """Check that all operands have the same data type, or the same width, if every case in ``op.dtypes`` requires it.

    Raises:
        ShapeError: data types or widths differ.
    """
    rules = [case.rules for support in op.dtypes.values() for case in support.cases]
    dtypes = {operand.dtype for operand in types if operand is not None}
    if len(dtypes) > 1 and all(ALL_SAME in rule for rule in rules):
        raise ShapeError(f"{op.name}: operands must have one data type, got {format_types(types)}")
    if len({dtype.bits for dtype in dtypes}) > 1 and all(INPUTS_SAME_WIDTH in rule for rule in rules):
        raise ShapeError(f"{op.name}: operands must be of one width, got {format_types(types)}")


Expands = Callable[[int], bool]
"""Predicate that is true for the axes along which the second operand is broadcast."""


def combined_shape(op: Op, first: TensorType | None, second: TensorType | None, expands: Expands) -> Shape:
    """Shape of the result of a binary operation in which only the second operand may be broadcast.

    An operand that is None is a scalar constant.

    Raises:
        ShapeError: the shapes do not match, or both operands are constants.
    """
    types = [operand for operand in (first, second) if operand is not None]
    for operand in types:
        check_atomic(op, operand)
    if not types:
        raise ShapeError(f"{op.name}: two constants have no shape")
    if first is None or second is None:
        return types[0].shape
    for axis, (own, other) in enumerate(zip(first.shape, second.shape, strict=True)):
        expected: Dim = 1 if expands(axis) else own
        check_extent(op, f"extent {axis} of input1", other, expected, first, second)
    return first.shape


def check_same_shape(op: Op, shape: Shape, old: TensorType) -> None:
    """Check that the previous content of the result has the shape of the result.

    Raises:
        ShapeError: the shapes differ.
    """
    if old.rank != len(shape) or not all(map(may_equal, shape, old.shape)):
        raise ShapeError(f"{op.name}: output_old must be {list(shape)}, got {format_types((old,))}")
