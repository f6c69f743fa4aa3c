"""Shifts of slices along axis 1: lshift and rshift fill with zeros, clshift and crshift rotate."""

from __future__ import annotations

import numpy as np

from tpuconvert.schema.definition.op import LOCAL, Op, Operand, on, op_base, todo, tpu_op
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.types import F32, I8, U8, Array, TensorType, format_shape


@op_base
class ChannelShift(Op):
    """Base of operators that shift slices along axis 1."""

    inputs = (Operand("tensor_i"),)
    dtypes = on(bm1682=None, bm1684=(F32, I8, U8), bm1686=todo(F32, I8, U8))
    locality = LOCAL

    num: int
    axis: int = 1

    def __post_init__(self) -> None:
        if self.num < 0 or self.axis != 1:
            raise ValueError(
                f"{self.name}: {self.num} positions along axis {self.axis}; only axis 1, and not backwards"
            )

    def infer(self, x: TensorType) -> tuple[TensorType]:
        """Shapes: x has at least two axes, y the shape of x."""
        if x.rank < 2:
            raise ShapeError(f"{self.name}: {format_shape(x.shape)} has no axis 1")
        return (x,)


def _move(x: Array, distance: int) -> Array:
    """Shift slices along axis 1: slice c of x becomes slice c + distance of the result. Other slices are 0."""
    channels = x.shape[1]
    result = np.zeros_like(x)
    if abs(distance) < channels:
        result[:, max(distance, 0) : channels + min(distance, 0)] = x[
            :, max(-distance, 0) : channels - max(distance, 0)
        ]
    return result


@tpu_op("lshift")
class Lshift(ChannelShift):
    """``y[:, c] = x[:, c + num]``: shift along axis 1 toward index 0 and fill with zeros."""

    def reference(self, x: Array) -> tuple[Array]:
        """Distances above the extent of axis 1 are valid."""
        return (_move(x, -self.num),)


@tpu_op("rshift")
class Rshift(ChannelShift):
    """``y[:, c] = x[:, c - num]``: shift along axis 1 away from index 0 and fill with zeros."""

    def reference(self, x: Array) -> tuple[Array]:
        """Distances above the extent of axis 1 are valid."""
        return (_move(x, self.num),)


@tpu_op("clshift")
class Clshift(ChannelShift):
    """``y[:, c] = x[:, (c + num) % C]``: rotate along axis 1 toward index 0."""

    def reference(self, x: Array) -> tuple[Array]:
        """Distances above the extent of axis 1 are valid."""
        return (np.roll(x, -self.num, axis=1),)


@tpu_op("crshift")
class Crshift(ChannelShift):
    """``y[:, c] = x[:, (c - num) % C]``: rotate along axis 1 away from index 0."""

    def reference(self, x: Array) -> tuple[Array]:
        """Distances above the extent of axis 1 are valid."""
        return (np.roll(x, self.num, axis=1),)
