"""Arguments of Reshape, Slice, Pad, reductions and others, for converters and constant evaluators.

Several attributes became inputs in later opsets. These functions read the argument as the opset of the node defines it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tpuconvert.frontends.onnx.node import OnnxNode
from tpuconvert.frontends.open_extents import is_open
from tpuconvert.schema.definition.extents import minus
from tpuconvert.schema.errors import UNKNOWN_SHAPE
from tpuconvert.schema.ops.host.slice import clamped_range


def axes_argument(node: OnnxNode, input_since: int) -> tuple[int, ...] | None:
    """Read axes, which are an attribute before opset ``input_since``, and an optional second input since then."""
    if node.version < input_since:
        return node.ints_attr("axes")
    return node.ints(1) if node.has_input(1) else None


def reshape_target(node: OnnxNode) -> tuple[int, ...]:
    """Result shape of Reshape: 0 copies an extent (unless ``allowzero``), one -1 is inferred."""
    shape = node.shape(0)
    target = list(node.required_attr("shape", ()) if node.version < 5 else node.ints(1))
    allow_zero = node.attr("allowzero", 0) if node.version >= 14 else 0
    if not allow_zero:
        for axis, extent in enumerate(target):
            if _is(extent, 0) and axis >= len(shape):
                raise node.invalid(f"target shape {target} copies axis {axis} of rank {len(shape)}")
            target[axis] = shape[axis] if _is(extent, 0) else extent
    inferred = [axis for axis, extent in enumerate(target) if _is(extent, -1)]
    if len(inferred) > 1 or any(not is_open(extent) and extent < -1 for extent in target):
        raise node.invalid(f"target shape {target}")
    count = math.prod(shape)
    if inferred:
        rest = math.prod(extent for axis, extent in enumerate(target) if axis != inferred[0])
        if _is(rest, 0) or count % rest:
            raise node.invalid(f"shape {list(shape)} does not fit {target}")
        target[inferred[0]] = count // rest
    if math.prod(target) != count:
        raise node.invalid(f"shape {list(shape)} does not fit {target}")
    return tuple(target)


def _is(extent: int, number: int) -> bool:
    """Return True if an extent is a number. A symbolic extent is neither 0 nor -1 in the shape of a Reshape."""
    return not is_open(extent) and extent == number


def flatten_target(node: OnnxNode) -> tuple[int, int]:
    """Result shape of Flatten."""
    shape = node.shape(0)
    axis = node.attr("axis", 1)
    if not -len(shape) <= axis <= len(shape):
        raise node.invalid(f"axis {axis} is outside rank {len(shape)}")
    axis += len(shape) if axis < 0 else 0
    return math.prod(shape[:axis]), math.prod(shape[axis:])


def squeeze_target(node: OnnxNode) -> tuple[int, ...]:
    """Result shape of Squeeze."""
    shape = node.shape(0)
    axes = axes_argument(node, 13)
    if axes is None:
        return tuple(extent for extent in shape if extent != 1)  # raises an error for a symbolic extent
    removed = node.axes(axes, len(shape))
    if any(not is_open(shape[axis]) and shape[axis] != 1 for axis in removed):
        raise node.invalid(f"axes {list(removed)} of shape {list(shape)} do not all have extent 1")
    return tuple(extent for axis, extent in enumerate(shape) if axis not in removed)


def squeezed_symbolic_axes(node: OnnxNode) -> tuple[int, ...]:
    """Axes that Squeeze removes if one of them is symbolic, so that it has to be 1 when the model runs; else ()."""
    axes = node.axes(axes_argument(node, 13) or (), node.rank(0))
    return tuple(axes) if any(is_open(node.shape(0)[axis]) for axis in axes) else ()


def unsqueeze_target(node: OnnxNode) -> tuple[int, ...]:
    """Result shape of Unsqueeze; the axes are axes of the result."""
    shape = node.shape(0)
    axes = axes_argument(node, 13)
    if axes is None:
        raise node.invalid("lacks its axes")
    rank = len(shape) + len(axes)
    new = node.axes(axes, rank)
    rest = iter(shape)
    return tuple(1 if axis in new else next(rest) for axis in range(rank))


def transpose_order(node: OnnxNode) -> tuple[int, ...]:
    """Axis order of Transpose; reversed by default."""
    rank = node.rank(0)
    order = node.ints_attr("perm")
    if order is None:
        return tuple(reversed(range(rank)))
    if sorted(order) != list(range(rank)):
        raise node.invalid(f"perm {list(order)} is not an order of {rank} axes")
    return order


def reduce_axes(node: OnnxNode, input_since: int) -> tuple[int, ...]:
    """Axes of a reduction; by default all, or none with ``noop_with_empty_axes``."""
    rank = node.rank(0)
    axes = axes_argument(node, input_since)
    no_op = node.attr("noop_with_empty_axes", 0) if node.version >= input_since else 0
    if not axes:
        return () if no_op else tuple(range(rank))
    return tuple(sorted(node.axes(axes, rank)))


def without(shape: Sequence[int], axes: Sequence[int], keep: bool) -> tuple[int, ...]:
    """Shape after a reduction."""
    if keep:
        return tuple(1 if axis in axes else extent for axis, extent in enumerate(shape))
    return tuple(extent for axis, extent in enumerate(shape) if axis not in axes)


def target_extents(node: OnnxNode, index: int) -> tuple[int, ...]:
    """Read a shape from a constant input."""
    target = node.ints(index)
    if any(not is_open(extent) and extent < 0 for extent in target):
        raise node.fail(UNKNOWN_SHAPE, f"input {index} is the shape {list(target)}")
    return target


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
            raise node.invalid(f"sizes {list(sizes)} do not add up to the extent {extent}")
        return axis, list(sizes)
    count = node.attr("num_outputs", len(node.output_names)) if node.version >= 18 else len(node.output_names)
    if not 1 <= count <= max(extent, len(node.output_names)) or (extent % count and node.version < 18):
        raise node.invalid(f"extent {extent} cannot be split into {count} equal parts")
    size = -(-extent // count)
    if size * (count - 1) > extent:
        raise node.invalid(f"extent {extent} cannot be split into {count} parts")
    parts = [size] * (count - 1)
    return axis, [*parts, extent - sum(parts)]


@dataclass(frozen=True)
class AxisSlice:
    """The ``count`` elements ``start, start + step, ...`` of one axis; the step may be negative.

    For a symbolic axis that is not empty, ``end`` takes the place of ``count``, and ``start`` and ``end`` are bounds of
    the source, within the range of INT32.
    """

    axis: int
    start: int
    step: int
    count: int
    end: int | None = None

    @property
    def last(self) -> int:
        """Last selected index."""
        return self.start + self.step * (self.count - 1)

    @property
    def indices(self) -> range:
        """Selected indices."""
        return range(self.start, self.start + self.step * self.count, self.step)


TO_THE_END = 2**31 - 1
"""A slice end from this bound on is the end of the axis, also for a symbolic extent."""


def slices(node: OnnxNode) -> list[AxisSlice]:
    """Slices of Slice, one entry per sliced axis; bounds are clamped as by ``clamped_range``."""
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
        raise node.invalid(f"{len(starts)} starts, {len(ends)} ends, {len(axes)} axes, {len(steps)} steps")
    sliced = []
    for axis, start, end, step in zip(node.axes(axes, len(shape)), starts, ends, steps, strict=True):
        start, end = (_from_the_end(bound, shape[axis]) for bound in (start, end))
        if step == 0:
            raise node.invalid("a step is 0")
        if step < 0 and not is_open(end) and end >= TO_THE_END:
            message = (
                f"the end {end} with the step {step}, of which the standard and ONNX Runtime have different readings"
            )
            raise node.invalid(message, "end before the first element:  -2147483648")
        bounds = [bound if is_open(bound) else min(max(bound, -TO_THE_END), TO_THE_END) for bound in (start, end)]
        if is_open(shape[axis]) and (step > 0 or not any(map(is_open, bounds))):
            is_whole = str(end) == str(shape[axis]) if is_open(end) else end >= TO_THE_END
            if is_whole and step == 1 and str(bounds[0]) in ("0", str(-TO_THE_END)):
                continue
            if not any(map(is_open, bounds)):
                sliced.append(_slice_symbolic(axis, bounds[0], bounds[1], step))
                continue
        if any(map(is_open, (*bounds, shape[axis]))):
            taken = range(*slice(start, end, step).indices(shape[axis]))
        else:
            taken = clamped_range(start, end, step, shape[axis])
        sliced.append(AxisSlice(axis, taken.start, step, len(taken)))
    return sliced


def _from_the_end(bound: int, extent: int) -> int:
    """Return a symbolic bound that is the extent minus a number as a bound that counts from the end."""
    if not (is_open(bound) and is_open(extent)):
        return bound
    rest = minus(str(extent), str(bound))
    if not isinstance(rest, int) or rest < 0:
        return bound
    return -rest if rest else TO_THE_END


def _slice_symbolic(axis: int, start: int, end: int, step: int) -> AxisSlice:
    """Slice of a symbolic axis. Bounds that count from the same end show whether it is empty for every extent."""
    if step > 0:
        is_empty = end in (0, -TO_THE_END) or start == TO_THE_END or ((start < 0) == (end < 0) and end <= start)
    else:
        is_empty = 0 <= start <= end
    return AxisSlice(axis, 0, step, 0) if is_empty else AxisSlice(axis, start, step, 1, end)


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
        raise node.invalid(f"{len(pads)} pads for {len(axes)} axes")
    per_axis = [(0, 0)] * rank
    for index, axis in enumerate(axes):
        per_axis[axis] = (int(pads[index]), int(pads[index + len(axes)]))
    return per_axis
