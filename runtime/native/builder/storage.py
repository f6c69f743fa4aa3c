"""Memory layout of tensors: buffer, offset and order of the axes.

The operators are defined on NCHW; the kernels work on channels-last images. A stored tensor therefore has an order of
its axes in memory. A permute is a view with another order; bytes are copied only for a kernel that needs a different
order.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import NamedTuple

import numpy as np

from tpuconvert.schema.types import I8, Array, DType

ARENA, CONSTANT, EXTERNAL = "arena", "constant", "external"
"""Kinds of buffers. An external buffer is the caller's."""

Order = tuple[int, ...]
"""Axes of a tensor from the outermost in memory to the innermost."""


def row_major(rank: int) -> Order:
    """Order of a C-contiguous array."""
    return tuple(range(rank))


def channels_last(rank: int) -> Order:
    """Order with axis 1 innermost; row-major below rank 3."""
    return (0, *range(2, rank), 1) if rank > 2 else row_major(rank)


@dataclass(eq=False, slots=True)
class Buffer:
    """A buffer of the plan: in the arena with a lifetime from step ``first`` to ``last``, constant, or external."""

    index: int
    kind: str
    size: int
    first: int = -1
    last: int = -1
    constant: Array | None = None
    arena_offset: int = 0


class Stored(NamedTuple):
    """A tensor with its memory layout.

    Args:
        buffer: the buffer that contains it.
        dtype: element type of the graph; INT8 is stored as unsigned bytes with 128 added.
        shape: extents in the graph's axis order.
        order: axes in the order of memory, outermost first.
        offset: bytes from the start of the buffer to the first element.
        pitch: bytes from one innermost row to the next; None for contiguous rows. A wider pitch makes the tensor a
            slice of a wider one along the innermost axis.
    """

    buffer: Buffer
    dtype: DType
    shape: tuple[int, ...]
    order: Order
    offset: int = 0
    pitch: int | None = None

    @property
    def itemsize(self) -> int:
        """Size of an element in bytes."""
        return self.dtype.numpy.itemsize

    @property
    def memory_shape(self) -> tuple[int, ...]:
        """Extents from the outermost axis in memory to the innermost."""
        return tuple([self.shape[axis] for axis in self.order])

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def row_bytes(self) -> int:
        """Distance of innermost rows in bytes."""
        return self._inner_bytes if self.pitch is None else self.pitch

    @property
    def is_dense(self) -> bool:
        """Return True if the tensor is contiguous."""
        return self.pitch is None or self.pitch == self._inner_bytes or prod(self.memory_shape[:-1]) <= 1

    @property
    def _inner_bytes(self) -> int:
        """Size of an innermost row in bytes, without a pitch."""
        return (self.shape[self.order[-1]] if self.shape else 1) * self.itemsize

    @property
    def strides(self) -> tuple[int, ...]:
        """Strides in bytes, in the graph's axis order."""
        steps = [0] * len(self.shape)
        step = self.itemsize
        for position, axis in enumerate(reversed(self.order)):
            steps[axis] = step
            step = self.row_bytes if position == 0 else step * self.shape[axis]
        return tuple(steps)

    def has_order(self, order: Order) -> bool:
        """Return True if ``order`` describes the same memory: the positions of unit axes do not matter.

        Only rows along the last axis have a pitch, so that it must also be the last one in the memory order.
        """
        if order == self.order:
            return True
        if not self.is_dense and order[-1] != self.order[-1]:
            return False
        own = [axis for axis in self.order if self.shape[axis] != 1]
        expected = [axis for axis in order if self.shape[axis] != 1]
        return own == expected

    def in_order(self, order: Order) -> Stored:
        """Return a view with an equivalent order, which differs only in the positions of unit axes."""
        is_dense = self.is_dense
        assert self.has_order(order)
        # A single row needs no pitch. Drop it, because it would be wrong for the rows of another order.
        pitch = None if is_dense else self.pitch
        if order == self.order and pitch == self.pitch:
            return self
        return Stored(self.buffer, self.dtype, self.shape, order, self.offset, pitch)

    def permute(self, axes: tuple[int, ...]) -> Stored:
        """Return a view with permuted axes: result axis ``i`` is axis ``axes[i]`` of this tensor."""
        index_of = {axis: index for index, axis in enumerate(axes)}
        shape = tuple([self.shape[axis] for axis in axes])
        order = tuple([index_of[axis] for axis in self.order])
        return Stored(self.buffer, self.dtype, shape, order, self.offset, self.pitch)

    def reshape(self, shape: tuple[int, ...]) -> Stored | None:
        """Return a view with another shape, or None if a reshape needs a copy.

        A reshape keeps the row-major order of the elements. The axes of both shapes are divided into groups with equal
        numbers of elements. No copy is needed if every group is a contiguous block.
        """
        order = _reshaped_order(self.order, self.shape, shape) if self.is_dense else None
        return None if order is None else Stored(self.buffer, self.dtype, shape, order, self.offset)

    def view(self, memory: Array) -> Array:
        """Return a NumPy view of the buffer in the graph's axis order; INT8 still has 128 added.

        Raises:
            ValueError: if the tensor is not inside the buffer.
        """
        element = np.dtype(np.uint8) if self.dtype is I8 else self.dtype.numpy
        end = self.offset + self.extent_bytes
        if self.offset < 0 or end > memory.nbytes:
            raise ValueError(f"{self.dtype.value}{list(self.shape)} at byte {self.offset} leaves {memory.nbytes} bytes")
        # The constructor takes a tenth of the time of ``as_strided``.
        return np.ndarray(self.shape, element, memory, self.offset, self.strides)

    @property
    def extent_bytes(self) -> int:
        """Bytes from the start of the first element to the end of the last."""
        if not self.size:
            return 0
        return sum((extent - 1) * step for extent, step in zip(self.shape, self.strides, strict=True)) + self.itemsize


@lru_cache(1 << 10)
def _reshaped_order(order: Order, old: tuple[int, ...], new: tuple[int, ...]) -> Order | None:
    """Return the order of a reshaped view, or None if a copy is needed. Cached, because shapes repeat in a network."""
    position = {axis: index for index, axis in enumerate(order)}
    blocks: list[tuple[int, list[int]]] = []
    singles: list[int] = []
    for own, new_axes in _matching_groups(old, new):
        wide = [axis for axis in own if old[axis] != 1]
        if not wide:
            singles += new_axes
            continue
        places = [position[axis] for axis in wide]
        is_block = all(old[axis] == 1 or axis in wide for axis in order[places[0] : places[-1] + 1])
        if places != sorted(places) or not is_block:
            return None
        blocks.append((places[0], new_axes))
    return tuple(singles) + tuple(axis for _, new_axes in sorted(blocks) for axis in new_axes)


def _matching_groups(old: tuple[int, ...], new: tuple[int, ...]) -> list[tuple[list[int], list[int]]]:
    """Divide the axes of two shapes into the shortest groups with equal numbers of elements."""
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(old) or j < len(new):
        left, right = ([i] if i < len(old) else []), ([j] if j < len(new) else [])
        a, b = prod(old[axis] for axis in left), prod(new[axis] for axis in right)
        i, j = i + len(left), j + len(right)
        while a != b:
            if a < b:
                left.append(i)
                a *= old[i]
                i += 1
            else:
                right.append(j)
                b *= new[j]
                j += 1
        groups.append((left, right))
    return groups
