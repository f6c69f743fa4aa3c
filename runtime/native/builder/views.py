"""Strided views of stored tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tpuconvert.runtime.native.builder.storage import Stored


@dataclass(frozen=True)
class View:
    """A strided view of a stored tensor, as in NumPy.

    Args:
        stored: the tensor that owns the memory.
        offset: bytes from the start of the buffer to the first element.
        shape: extents of the view, whose axes may differ from the axes of the tensor.
        strides: in bytes; 0 repeats an element.
    """

    stored: Stored
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @staticmethod
    def of(stored: Stored) -> View:
        """Return a view of a whole tensor."""
        return View(stored, stored.offset, stored.shape, stored.strides)

    def slice_axis(self, axis: int, start: int, count: int, step: int = 1) -> View:
        """Slice an axis: ``count`` elements from ``start``, every ``step``-th one."""
        return replace(
            self,
            offset=self.offset + start * self.strides[axis],
            shape=_set(self.shape, axis, count),
            strides=_set(self.strides, axis, self.strides[axis] * step),
        )

    def split_axis(self, axis: int, inner: int) -> View:
        """Split an axis into two, with the extents ``extent / inner`` and ``inner``."""
        extent, stride = self.shape[axis], self.strides[axis]
        return replace(
            self,
            shape=(*self.shape[:axis], extent // inner, inner, *self.shape[axis + 1 :]),
            strides=(*self.strides[:axis], stride * inner, stride, *self.strides[axis + 1 :]),
        )

    def repeat(self, axis: int, count: int) -> View:
        """Insert an axis with stride 0 before ``axis``."""
        return replace(
            self,
            shape=(*self.shape[:axis], count, *self.shape[axis:]),
            strides=(*self.strides[:axis], 0, *self.strides[axis:]),
        )

    def swap_axes(self, first: int, second: int) -> View:
        """Swap two axes."""
        order = list(range(len(self.shape)))
        order[first], order[second] = order[second], order[first]
        return replace(
            self,
            shape=tuple(self.shape[axis] for axis in order),
            strides=tuple(self.strides[axis] for axis in order),
        )


def slice_stored(stored: Stored, axis: int, start: int, count: int) -> Stored | None:
    """Return a slice of consecutive indices as a ``Stored``, or None if a ``Stored`` cannot describe it.

    This is possible along the outermost axis, and along the innermost axis: the rows of the slice then have a pitch.
    """
    wide = [position for position in stored.order if stored.shape[position] != 1]
    shape, offset = _set(stored.shape, axis, count), stored.offset + start * stored.strides[axis]
    part = Stored(stored.buffer, stored.dtype, shape, stored.order, offset, stored.pitch)
    if count == stored.shape[axis] or not wide:
        return part
    if axis == wide[0] and len(wide) > 1:
        return part
    if axis != wide[-1]:
        return None
    if stored.order[-1] != axis:
        if not stored.is_dense:
            return None
        stored = stored.in_order((*(other for other in stored.order if other != axis), axis))
    return Stored(stored.buffer, stored.dtype, shape, stored.order, offset, stored.row_bytes)


def _set(values: Sequence[int], index: int, value: int) -> tuple[int, ...]:
    return (*values[:index], value, *values[index + 1 :])
