"""The effect of a chain of data movement operators, as a strided view.

A tensor that results from another one by reshapes, permutes, slices and channel shuffles is a view of it: the element
with index i is at position ``offset + sum(digit_k * stride_k)``, where the digits represent i in a mixed radix with
one extent per digit. An axis consists of some digits, outermost first. A reshape regroups the digits, a permute
reorders the axes, a slice changes extent, stride and offset. Two chains with equal views of one tensor are equivalent.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tpuconvert.schema.definition.op import Op, Trait
from tpuconvert.schema.graph.graph import Node
from tpuconvert.schema.ops.channel_shuffle import ChannelShuffle
from tpuconvert.schema.ops.copy import Copy
from tpuconvert.schema.ops.extract import Extract
from tpuconvert.schema.ops.permute import Permute

Digit = tuple[int, int]
"""Extent and stride of one digit."""

Axis = tuple[Digit, ...]


@dataclass(frozen=True)
class View:
    """Digits of each axis, and the position of the first element."""

    axes: tuple[Axis, ...]
    offset: int = 0

    @staticmethod
    def of(shape: Sequence[int]) -> View:
        """Return the view of a row-major tensor as itself."""
        strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
        return View(tuple(_merge_digits([digit]) for digit in zip(shape, strides, strict=True)))

    @staticmethod
    def after_all(shape: Sequence[int], nodes: Iterable[Node]) -> View | None:
        """Return the view of a tensor of this shape after several nodes, or None as in ``after``."""
        view: View | None = View.of(shape)
        for node in nodes:
            view = None if view is None else view.after(node)
        return view

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of the axes."""
        return tuple(math.prod(extent for extent, _ in axis) for axis in self.axes)

    @property
    def digits(self) -> Axis:
        """Digits of all axes; contiguous digits are merged."""
        return _merge_digits(digit for axis in self.axes for digit in axis)

    def after(self, node: Node) -> View | None:
        """Return the view after a ``VIEWS`` node, or None if there is none: a reshape may split a digit unevenly."""
        return self.through(node.op, node.output.type.static_shape)

    def through(self, op: Op, shape: Sequence[int]) -> View | None:
        """Return the view after an operator whose result has this shape, or None."""
        if isinstance(op, Copy):
            return self
        if isinstance(op, Permute):
            return View(tuple(self.axes[axis] for axis in op.order), self.offset)
        if isinstance(op, Extract):
            return self._slice(op)
        if isinstance(op, ChannelShuffle):
            (groups, members) = op.groups, self.shape[1] // op.groups
            parts = _split_digits(self.axes[1], (groups, members))
            return None if parts is None else self._with_axis(1, _merge_digits((*parts[1], *parts[0])))
        if Trait.RESHAPES not in op.traits:
            return None
        axes = _split_digits(self.digits, shape)
        return None if axes is None else View(axes, self.offset)

    def _with_axis(self, axis: int, digits: Axis, offset: int = 0) -> View:
        return View((*self.axes[:axis], digits, *self.axes[axis + 1 :]), self.offset + offset)

    def _slice(self, op: Extract) -> View | None:
        view = self
        for axis, (start, end, stride) in enumerate(zip(op.start, op.end, op.stride, strict=True)):
            if (start, end, stride) != (0, self.shape[axis], 1):
                part = _slice_digits(self.axes[axis], start, -(-(end - start) // stride), stride)
                if part is None:
                    return None
                view = view._with_axis(axis, *part)
        return view


def _merge_digits(digits: Iterable[Digit]) -> Axis:
    """Remove digits of extent 1 and merge contiguous neighbors."""
    merged: list[Digit] = []
    for extent, stride in digits:
        if extent == 1:
            continue
        if merged and merged[-1][1] == extent * stride:
            merged[-1] = (merged[-1][0] * extent, stride)
        else:
            merged.append((extent, stride))
    return tuple(merged)


def _split_digits(digits: Axis, shape: Sequence[int]) -> tuple[Axis, ...] | None:
    """Group digits into axes of these extents. Return None if an extent ends within a digit that it does not divide."""
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
        axes.append(_merge_digits(own))
    return None if left else tuple(axes)


def _slice_digits(axis: Axis, start: int, count: int, step: int) -> tuple[Axis, int] | None:
    """Digits of ``count`` indices of an axis, and the position of the first index; None if there are no such digits."""
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
        return _merge_digits([(count // inner, stride), *rest]), start // inner * stride
    return None
