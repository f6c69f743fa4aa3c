"""Parts of tensors in memory, and copies between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tpuconvert.runtime.native.builder import EXTERNAL, Builder
from tpuconvert.runtime.native.storage import Stored
from tpuconvert.schema.types import I8


@dataclass(frozen=True)
class View:
    """Elements of a stored tensor at regular distances, as NumPy's views are.

    Args:
        stored: whose memory it is.
        offset: bytes from the start of the buffer to the first element.
        shape: extents, in the graph's order of axes or any other.
        strides: bytes between neighbours along each axis; 0 repeats.
    """

    stored: Stored
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @staticmethod
    def of(stored: Stored) -> View:
        """All of a tensor."""
        return View(stored, stored.offset, stored.shape, stored.strides)

    def cut(self, axis: int, start: int, count: int, step: int = 1) -> View:
        """``count`` elements of an axis from ``start`` on."""
        return replace(
            self,
            offset=self.offset + start * self.strides[axis],
            shape=_set(self.shape, axis, count),
            strides=_set(self.strides, axis, self.strides[axis] * step),
        )

    def divided(self, axis: int, inner: int) -> View:
        """An axis as two: its extent divided by ``inner``, and ``inner``."""
        extent, stride = self.shape[axis], self.strides[axis]
        return replace(
            self,
            shape=(*self.shape[:axis], extent // inner, inner, *self.shape[axis + 1 :]),
            strides=(*self.strides[:axis], stride * inner, stride, *self.strides[axis + 1 :]),
        )

    def repeated(self, axis: int, count: int) -> View:
        """A new axis before ``axis`` along which everything repeats."""
        return replace(
            self,
            shape=(*self.shape[:axis], count, *self.shape[axis:]),
            strides=(*self.strides[:axis], 0, *self.strides[axis:]),
        )

    def swapped(self, first: int, second: int) -> View:
        """Two axes exchanged."""
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


def sliced(stored: Stored, axis: int, start: int, count: int) -> Stored | None:
    """Consecutive elements of an axis as a tensor in the same memory, or None where that is not possible.

    It is along the innermost axis, whose rows then have a pitch, and along the outermost one.
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
