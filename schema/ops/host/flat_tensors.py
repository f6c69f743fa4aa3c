"""One-dimensional operands of host operators, which have the extents of the tensor as parameters."""

from __future__ import annotations

import enum

from tpuconvert.schema.definition.extents import may_equal
from tpuconvert.schema.definition.op import Op, Operand
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.types import Array, TensorType


class TensorFormat(enum.IntEnum):
    """Order of the axes in memory."""

    Unknown = -1
    NCHW = 0
    NHWC = 1


def flat(name: str, *, coeff: bool = False, optional: bool = False, variadic: bool = False) -> Operand:
    """Declare an operand with one axis."""
    return Operand(name, (1,), "flat", coeff, optional, variadic)


def check_format(op: Op, layout: TensorFormat) -> TensorFormat:
    """Convert the format to a member of the enumeration.

    Raises:
        ValueError: for Unknown.
    """
    if TensorFormat(layout) is TensorFormat.Unknown:
        raise ValueError(f"{op.name}: the format Unknown cannot be computed with")
    return TensorFormat(layout)


def check_extents(op: Op, **extents: int) -> None:
    """Check that extents are at least 1.

    Raises:
        ValueError: an extent is less than 1.
    """
    for name, extent in extents.items():
        if extent < 1:
            raise ValueError(f"{op.name}: {name} must be at least 1, found {extent}")


def check_size(op: Op, name: str, array: TensorType, size: int) -> None:
    """Check the number of elements of a flat array.

    Raises:
        ShapeError: it has more or fewer elements.
    """
    if array.rank != 1 or not may_equal(array.shape[0], size):
        raise ShapeError(f"{op.name}: {name} must be [{size}], got {array}")


def channels_first(x: Array, channels: int, layout: TensorFormat) -> Array:
    """Reshape a flat array to [channels, elements of a channel]; a view."""
    return x.reshape(channels, -1) if layout is TensorFormat.NCHW else x.reshape(-1, channels).T


def flatten(x: Array, layout: TensorFormat) -> Array:
    """Flatten an array of [channels, elements of a channel]."""
    return x.reshape(-1) if layout is TensorFormat.NCHW else x.T.reshape(-1)
