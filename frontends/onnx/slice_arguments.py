"""Arguments of Concat, Split, Slice and Pad, for converters and constant evaluators.

Several attributes became inputs in later opsets. These functions read the form that the opset of the node has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tpuconvert.frontends.onnx.node import OnnxNode
from tpuconvert.frontends.open_extents import is_open
from tpuconvert.schema.errors import INVALID_NODE


def concat_axis(node: OnnxNode) -> int:
    """Axis of Concat; opset 1 has a default."""
    axis = node.attr("axis", 1) if node.version < 4 else node.required_attr("axis", 0)
    return node.axis(axis, node.rank(0))


def split_sizes(node: OnnxNode) -> tuple[int, list[int]]:
    """Axis of Split, and the extent of each output.

    By default all outputs have the same extent; from opset 18 the last one may be smaller.
    """
    shape = node.shape(0)
    axis = node.axis(node.attr("axis", 0), len(shape))
    sizes = node.ints_attr("split") if node.version < 13 else (node.ints(1) if node.has_input(1) else None)
    if node.version == 1 and node.has_input(1):
        sizes = node.ints(1)
    extent = shape[axis]
    if sizes is not None:
        if sum(sizes) != extent or any(size < 0 for size in sizes):
            raise node.fail(INVALID_NODE, f"sizes {list(sizes)} do not add up to the extent {extent}")
        return axis, list(sizes)
    count = node.attr("num_outputs", len(node.output_names)) if node.version >= 18 else len(node.output_names)
    if count < 1 or (extent % count and node.version < 18):
        raise node.fail(INVALID_NODE, f"extent {extent} cannot be split into {count} equal parts")
    size = -(-extent // count)
    parts = [size] * (count - 1)
    if extent - sum(parts) < 0:
        raise node.fail(INVALID_NODE, f"extent {extent} cannot be split into {count} parts")
    return axis, [*parts, extent - sum(parts)]


@dataclass(frozen=True)
class AxisSlice:
    """The ``count`` elements ``start, start + step, ...`` of one axis; the step may be negative."""

    axis: int
    start: int
    step: int
    count: int

    @property
    def last(self) -> int:
        """Last selected index."""
        return self.start + self.step * (self.count - 1)

    @property
    def indices(self) -> range:
        """Selected indices."""
        return range(self.start, self.start + self.step * self.count, self.step)


_TO_THE_END = 2**31 - 1
"""A slice end from this bound on is the end of the axis, also for a symbolic extent."""


def slices(node: OnnxNode) -> list[AxisSlice]:
    """Slices of Slice, one entry per sliced axis; bounds are clamped as in NumPy."""
    shape = node.shape(0)
    if node.version < 10:
        starts: tuple[int, ...] = node.required_attr("starts", (0,))
        ends: tuple[int, ...] = node.required_attr("ends", (0,))
        axes = node.ints_attr("axes")
        steps: tuple[int, ...] | None = None
    else:
        starts, ends = node.ints(1), node.ints(2)
        axes = node.ints(3) if node.has_input(3) else None
        steps = node.ints(4) if node.has_input(4) else None
    axes = tuple(range(len(starts))) if axes is None else axes
    steps = (1,) * len(starts) if steps is None else steps
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise node.fail(INVALID_NODE, f"{len(starts)} starts, {len(ends)} ends, {len(axes)} axes, {len(steps)} steps")
    found = []
    for axis, start, end, step in zip(node.axes(axes, len(shape)), starts, ends, steps, strict=True):
        if step == 0:
            raise node.fail(INVALID_NODE, "a step is 0")
        if is_open(shape[axis]) and (start, step) == (0, 1) and (end >= _TO_THE_END or end == shape[axis]):
            continue
        taken = range(*slice(start, end, step).indices(shape[axis]))
        if step < 0 and end < -shape[axis]:
            taken = range(*slice(start, None, step).indices(shape[axis]))
        found.append(AxisSlice(axis, taken.start, step, len(taken)))
    return found


def pads_per_axis(node: OnnxNode) -> list[tuple[int, int]]:
    """Elements that Pad adds before and after each axis; negative ones crop."""
    rank = node.rank(0)
    if node.version < 11:
        name = "paddings" if node.version < 2 else "pads"
        pads: Sequence[int] = node.required_attr(name, (0,))
    else:
        pads = node.ints(1)
    axes = node.axes(node.ints(3), rank) if node.has_input(3) else tuple(range(rank))
    if len(pads) != 2 * len(axes):
        raise node.fail(INVALID_NODE, f"{len(pads)} pads for {len(axes)} axes")
    found = [(0, 0)] * rank
    for index, axis in enumerate(axes):
        found[axis] = (int(pads[index]), int(pads[index + len(axes)]))
    return found
