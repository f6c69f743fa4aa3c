"""What a chain of moving operators does, as arithmetic on positions.

A tensor that was made of another one by reshapes, permutes, slices and channel shuffles is a view of it: its element
i has the position ``offset + sum(digit_k * stride_k)`` there, where the digits are those of i, written with one extent
per digit. An axis consists of some digits, outermost first; a reshape regroups them, a permute reorders the axes, a
slice changes extent, stride and offset. Two chains that give the same view of one tensor do the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tpuconvert.schema.graph import Node
from tpuconvert.schema.op import Op, Trait
from tpuconvert.schema.ops.channel_shuffle import ChannelShuffle
from tpuconvert.schema.ops.copy import Copy
from tpuconvert.schema.ops.extract import Extract
from tpuconvert.schema.ops.permute import Permute

Digit = tuple[int, int]
"""Extent and stride."""

Axis = tuple[Digit, ...]


@dataclass(frozen=True)
class View:
    """Axes as digits, and the position of the first element."""

    axes: tuple[Axis, ...]
    offset: int = 0

    @staticmethod
    def of(shape: Sequence[int]) -> View:
        """A tensor as a view of itself."""
        strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
        return View(tuple(_joined([digit]) for digit in zip(shape, strides, strict=True)))

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents."""
        return tuple(math.prod(extent for extent, _ in axis) for axis in self.axes)

    @property
    def digits(self) -> Axis:
        """The digits of all axes, those that count on from each other as one."""
        return _joined(digit for axis in self.axes for digit in axis)

    def after(self, node: Node) -> View | None:
        """The view after a node with the trait ``VIEWS``, or None, as where a reshape cuts through a digit."""
        return self.through(node.op, node.output.type.static_shape)

    def through(self, op: Op, shape: Sequence[int]) -> View | None:
        """The view behind an operator that gives a shape."""
        if isinstance(op, Copy):
            return self
        if isinstance(op, Permute):
            return View(tuple(self.axes[axis] for axis in op.order), self.offset)
        if isinstance(op, Extract):
            return self._cut(op)
        if isinstance(op, ChannelShuffle):
            (groups, members) = op.groups, self.shape[1] // op.groups
            parts = _grouped(self.axes[1], (groups, members))
            return None if parts is None else self._with_axis(1, _joined((*parts[1], *parts[0])))
        if Trait.RESHAPES not in op.traits:
            return None
        axes = _grouped(self.digits, shape)
        return None if axes is None else View(axes, self.offset)

    def _with_axis(self, axis: int, digits: Axis, offset: int = 0) -> View:
        return View((*self.axes[:axis], digits, *self.axes[axis + 1 :]), self.offset + offset)

    def _cut(self, op: Extract) -> View | None:
        view = self
        for axis, (start, end, stride) in enumerate(zip(op.start, op.end, op.stride, strict=True)):
            if (start, end, stride) != (0, self.shape[axis], 1):
                cut = _cut_digits(self.axes[axis], start, -(-(end - start) // stride), stride)
                if cut is None:
                    return None
                view = view._with_axis(axis, *cut)
        return view


def _joined(digits: Iterable[Digit]) -> Axis:
    """The same digits without those of one value, and with neighbours that count on from each other as one."""
    found: list[Digit] = []
    for extent, stride in digits:
        if extent == 1:
            continue
        if found and found[-1][1] == extent * stride:
            found[-1] = (found[-1][0] * extent, stride)
        else:
            found.append((extent, stride))
    return tuple(found)


def _grouped(digits: Axis, shape: Sequence[int]) -> tuple[Axis, ...] | None:
    """The digits as axes of these extents; None where an extent ends within a digit that it does not divide."""
    left = list(digits[::-1])
    axes = []
    for extent in shape:
        own: list[Digit] = []
        missing = extent
        while missing > 1:
            if not left:
                return None
            size, stride = left.pop()
            if missing % size == 0:
                own.append((size, stride))
                missing //= size
            elif size % missing == 0:
                rest = size // missing
                own.append((missing, stride * rest))
                left.append((rest, stride))
                missing = 1
            else:
                return None
        axes.append(_joined(own))
    return None if left else tuple(axes)


def _cut_digits(axis: Axis, start: int, count: int, step: int) -> tuple[Axis, int] | None:
    """``count`` indices of an axis, and the position of the first."""
    if count == 1:
        offset = 0
        for extent, stride in reversed(axis):
            offset += start % extent * stride
            start //= extent
        return (), offset
    inner = math.prod(extent for extent, _ in axis[1:])
    (_, stride), rest = axis[0], axis[1:]
    if not rest:
        return ((count, stride * step),), start * stride
    if step == 1 and start % inner == 0 and count % inner == 0:
        return _joined([(count // inner, stride), *rest]), start // inner * stride
    return None
