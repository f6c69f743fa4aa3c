"""Checks that operators share when they infer the types of their results.

Every message contains the shapes of all operands.
"""

from __future__ import annotations

from collections.abc import Iterable

from tpuconvert.schema.definition.extents import ceil_div, may_equal, plus
from tpuconvert.schema.definition.op import Op
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.types import Dim, TensorType


def check_ranks(op: Op, *types: TensorType | None) -> None:
    """Check presence and ranks of operands. ``types`` are in declaration order, None for an absent operand.

    Raises:
        ShapeError: the rank of an operand is wrong, or an operand is missing.
    """
    for operand, operand_type in zip(op.inputs, types, strict=True):
        if operand_type is None:
            if not operand.optional:
                raise ShapeError(f"{op.name}: {operand.name} is missing")
        elif operand.ranks and operand_type.rank not in operand.ranks:
            allowed = " or ".join(str(rank) for rank in operand.ranks)
            raise ShapeError(f"{op.name}: {operand.name} must have rank {allowed}, got {format_types(types)}")


def check_extent(op: Op, what: str, actual: Dim, expected: Dim, *types: TensorType | None) -> None:
    """Check that an extent equals the expected one, or may be equal to it.

    Raises:
        ShapeError: the extents are known to differ.
    """
    if not may_equal(actual, expected):
        raise ShapeError(f"{op.name}: {what} must be {expected}, not {actual}, got {format_types(types)}")


def check_bias(op: Op, bias: TensorType | None, shape: tuple[Dim, ...], *types: TensorType | None) -> None:
    """Check the shape of a bias, if present.

    Raises:
        ShapeError: the shape is known to differ.
    """
    if bias is not None and not (bias.rank == len(shape) and all(map(may_equal, bias.shape, shape))):
        extents = ", ".join(str(extent) for extent in shape)
        raise ShapeError(f"{op.name}: the bias must be [{extents}], got {format_types(types)}")


def number(op: Op, what: str, extent: Dim, *types: TensorType | None) -> int:
    """Return an extent, which must be static, as an integer.

    Raises:
        ShapeError: the extent is symbolic.
    """
    if isinstance(extent, str):
        raise ShapeError(f"{op.name}: {what} must be a number, not {extent}, got {format_types(types)}")
    return extent


def window_extent(op: Op, extent: Dim, pads: int, reach: int, stride: int, x: TensorType, *, ceil: bool = False) -> Dim:
    """Number of windows of ``reach`` elements on one axis: (extent + pads - reach) / stride, rounded, plus 1.

    Raises:
        ShapeError: no window fits.
    """
    steps = plus(extent, pads - reach)
    if isinstance(steps, int) and steps < 0:
        raise ShapeError(f"{op}: a window of {reach} does not fit into {extent} plus {pads} of padding, got {x}")
    if ceil:
        return plus(ceil_div(steps, stride), 1)
    return ceil_div(plus(extent, pads - reach + 1), stride)  # floor(n / s) + 1 = ceil((n + 1) / s)


def format_types(types: Iterable[TensorType | None]) -> str:
    """Format operand types for messages: ``FLOAT32[1, 3] and FLOAT32[3]``."""
    return " and ".join(str(operand_type) for operand_type in types if operand_type is not None)
