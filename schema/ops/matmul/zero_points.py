"""Zero points of the operators with 32-bit results: a scalar, or a vector per channel, row or column."""

from __future__ import annotations

import numpy as np

from tpuconvert.schema.definition.dtype_rules import ZP_IN_RANGE_V2
from tpuconvert.schema.definition.extents import may_equal
from tpuconvert.schema.definition.op import ChipTable, Op, case, on_bm1686
from tpuconvert.schema.definition.shape_checks import format_types
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.types import BYTES, I32, U32, Array, Dim, TensorType


def exact_dtypes(left: str, right: str, bias: str, result: str) -> ChipTable:
    """Data types of the operators with 32-bit results, by the names of their operands."""
    operands = {left: BYTES, right: BYTES, bias: (I32, U32), result: (I32, U32)}
    return on_bm1686(case(operands, ZP_IN_RANGE_V2, compute="EXACT_INT"))


def zero_point(op: Op, prefix: str) -> Array:
    """Return the zero points of an operand as INT64 of rank 0 or 1; ``prefix`` is izp, kzp, lzp or rzp."""
    is_number = getattr(op, f"is_{prefix}_const")
    return np.asarray(getattr(op, f"{prefix}_{'val' if is_number else 'vec'}"), dtype=np.int64)


def check_zero_points(op: Op, prefix: str, extent: Dim, what: str, *types: TensorType | None) -> None:
    """Check the length of a vector of zero points, if the operator has one.

    Raises:
        ShapeError: the length differs from the extent of the axis.
    """
    zero_points = zero_point(op, prefix)
    if zero_points.ndim and not may_equal(len(zero_points), extent):
        raise ShapeError(
            f"{op.name}: {len(zero_points)} values in {prefix}_vec for {extent} {what}, got {format_types(types)}"
        )


def check_has_bias(op: Op, bias: TensorType | None, *types: TensorType | None) -> None:
    """Check that a bias is present if and only if ``has_bias`` is True.

    Raises:
        ShapeError: it is not.
    """
    has_bias = getattr(op, "has_bias")  # noqa: B009  the base class does not declare it
    if has_bias != (bias is not None):
        raise ShapeError(f"{op.name}: has_bias is {has_bias}, got {format_types(types)}")
