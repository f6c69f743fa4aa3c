"""Strided views of stored tensors, and copies between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tpuconvert.runtime.native.builder import EXTERNAL, Builder
from tpuconvert.runtime.native.storage import Stored
from tpuconvert.schema.types import I8, Scalar


@dataclass(frozen=True)
class View:
    """A strided view of a stored tensor, as in NumPy.

    Args:
        stored: the tensor that owns the memory.
        offset: bytes from the start of the buffer to the first element.
        shape: extents, in the graph's order of axes or any other.
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
        """An axis as two: its extent split_axis by ``inner``, and ``inner``."""
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


def copy_view(builder: Builder, source: View, target: View) -> None:
    """Add a step that copies one view to another of the same shape; either may be the caller's memory."""
    assert source.shape == target.shape, f"{source.shape} is copied to {target.shape}"
    outside = [view.stored.buffer.kind == EXTERNAL for view in (source, target)]
    has_bias_changed = source.stored.dtype is I8 and outside[0] != outside[1]
    places = [builder.native.Place(view.stored.buffer.index, view.offset) for view in (source, target)]
    spec = builder.native.CopySpec(
        source=places[0],
        target=places[1],
        shape=source.shape,
        source_strides=source.strides,
        target_strides=target.strides,
        itemsize=source.stored.itemsize,
        flip=builder.native.STORED_BIAS if has_bias_changed else 0,
    )
    builder.step("copy", spec, (source.stored,), (target.stored,))


def fill(builder: Builder, target: View, value: Scalar) -> None:
    """Fill a view with a scalar."""
    assert target.stored.dtype is not I8 or target.stored.buffer.kind != EXTERNAL, (
        "INT8 of the caller has another representation"
    )
    element = value.array.astype(target.stored.dtype.numpy).reshape(1)
    if target.stored.dtype is I8:
        element = element.view(np.uint8) ^ np.uint8(builder.native.STORED_BIAS)
    constant = builder.constant(element)._replace(dtype=target.stored.dtype)
    source = View(constant, 0, target.shape, (0,) * len(target.shape))
    if 0 not in target.shape:
        copy_view(builder, source, target)


def slice_stored(stored: Stored, axis: int, start: int, count: int) -> Stored | None:
    """Return a slice of consecutive elements as a view, or None if that is not a ``Stored``.

    It is one along the outermost axis, and along the innermost axis, whose rows then have a pitch.
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
