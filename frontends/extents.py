"""Extents of operands, with an error of the node for an axis that an operand does not have."""

from __future__ import annotations

from typing import SupportsIndex, overload

from tpuconvert.frontends.cannot_convert import CannotConvertError
from tpuconvert.schema.errors import INVALID_NODE
from tpuconvert.schema.types import format_shape


class Extents(tuple[int, ...]):
    """Shape of an operand of a source node.

    A converter reads extents by axis, as in ``node.shape(0)[-1]``. Files have operands of every rank, so an axis that
    the operand does not have is a problem of the node, and no IndexError. This also holds for slices of the shape.
    """

    __slots__ = ()

    @overload
    def __getitem__(self, axis: SupportsIndex) -> int: ...

    @overload
    def __getitem__(self, axis: slice) -> Extents: ...

    def __getitem__(self, axis: SupportsIndex | slice) -> int | Extents:
        """Return one extent, or the extents of several axes.

        Raises:
            CannotConvertError: there is no such axis.
        """
        if isinstance(axis, slice):
            return Extents(super().__getitem__(axis))
        try:
            return super().__getitem__(axis)
        except IndexError:
            message = f"an operand of the shape {format_shape(tuple(self))} has no axis {int(axis)}"
            raise CannotConvertError(INVALID_NODE, message) from None
