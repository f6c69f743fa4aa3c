"""Data movement operators: views where possible, copies elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

from tpuconvert.runtime.native.builder.builder import Builder
from tpuconvert.runtime.native.builder.storage import Order, Stored, row_major
from tpuconvert.runtime.native.builder.views import View, slice_stored
from tpuconvert.runtime.native.matchers.matcher import computes, first_operand, operands_of
from tpuconvert.schema.graph.graph import Node, Value
from tpuconvert.schema.ops.channel_shift import Clshift, Crshift, Lshift, Rshift
from tpuconvert.schema.ops.channel_shuffle import ChannelShuffle
from tpuconvert.schema.ops.concat import Concat, Interleave, Split
from tpuconvert.schema.ops.copy import Constdata, Copy
from tpuconvert.schema.ops.extract import Extract
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.shape_change import ExpandDims, Reshape, Squeeze
from tpuconvert.schema.ops.tile import Repetition
from tpuconvert.schema.ops.upsample import Upsample
from tpuconvert.schema.types import Scalar


@computes("copy", conditions="always; the result is an alias")
def copy(builder: Builder, node: Node, op: Copy | Constdata) -> None:
    """Make the result an alias of the operand."""
    builder.alias(node.output, builder.memory_of(first_operand(node)))


@computes("copy", conditions="always; the result is a view")
def permute(builder: Builder, node: Node, op: Permute) -> None:
    """Make the result a view of the operand."""
    builder.alias(node.output, builder.memory_of(first_operand(node)).permute(op.order))


@computes("copy", conditions="always; a view, or one copy to row-major order")
def reshape(builder: Builder, node: Node, op: Reshape | Squeeze | ExpandDims) -> None:
    """Make the result a view of the operand, which is first copied to row-major order if necessary."""
    x, shape = first_operand(node), builder.shape(node.output)
    same = builder.memory_of(x).reshape(shape) or builder.read(x, row_major(x.rank)).reshape(shape)
    assert same is not None, "row-major memory can be reshaped to any shape"
    builder.alias(node.output, same)


@computes(
    "copy",
    conditions="the operands have the type of the result",
    when=lambda op, node, site: all(value.dtype is node.output.dtype for value in operands_of(node)),
    takes_empty=True,
)
def concat(builder: Builder, node: Node, op: Concat) -> None:
    """Copy the operands that were not already written into the result."""
    values, axis, start = operands_of(node), op.axis % node.output.rank, 0
    result = builder.write(node.output, _most_common_order(builder, values))
    for value in values:
        stored, extent = builder.memory_of(value), builder.shape(value)[axis]
        if stored.buffer is not result.buffer:
            builder.copy(View.of(stored), View.of(result).slice_axis(axis, start, extent))
        start += extent


@computes("copy")
def interleave(builder: Builder, node: Node, op: Interleave) -> None:
    """Copy chunks of the two operands alternately."""
    values, axis = operands_of(node), op.axis % node.output.rank
    result = builder.write(node.output, _most_common_order(builder, values))
    target = View.of(result).split_axis(axis, 2 * op.step)
    for index, value in enumerate(values):
        source = View.of(builder.memory_of(value)).split_axis(axis, op.step)
        builder.copy(source, target.slice_axis(axis + 1, index * op.step, op.step))


@computes("copy", conditions="always; views where the memory order allows it")
def split(builder: Builder, node: Node, op: Split) -> None:
    """Make the results views of the operand where possible, else copy."""
    x, start = first_operand(node), 0
    axis = op.axis % x.rank
    for y in node.outputs:
        extent = builder.shape(y)[axis]
        _slice(builder, x, y, {axis: (start, extent, 1)})
        start += extent


@computes("copy", conditions="always; a view for steps of 1")
def extract(builder: Builder, node: Node, op: Extract) -> None:
    """Slice with strides."""
    x, y = first_operand(node), node.output
    extents, counts = builder.shape(x), builder.shape(y)
    limits = enumerate(zip(op.start, counts, op.stride, strict=True))
    _slice(builder, x, y, {axis: limit for axis, limit in limits if counts[axis] != extents[axis]})


def _slice(builder: Builder, x: Value, y: Value, limits: dict[int, tuple[int, int, int]]) -> None:
    stored = builder.memory_of(x)
    part: Stored | None = stored
    for axis, (start, count, step) in limits.items():
        part = slice_stored(part, axis, start, count) if part is not None and (step == 1 or count == 1) else None
    if part is not None and 0 not in part.shape:
        builder.alias(y, part)
        return
    view = View.of(stored)
    for axis, (start, count, step) in limits.items():
        view = view.slice_axis(axis, start, count, step)
    builder.copy(view, View.of(builder.write(y, stored.order)))


def _views(builder: Builder, node: Node, *, dense: bool = True) -> tuple[View, View]:
    """Return views of the first operand and of the result, which gets the memory order of the operand."""
    stored = builder.memory_of(first_operand(node))
    return View.of(stored), View.of(builder.write(node.output, stored.order, dense=dense))


@computes("copy")
def repetition(builder: Builder, node: Node, op: Repetition) -> None:
    """Tile: split each axis into two, of which the first has stride 0 in the operand."""
    source, target = _views(builder, node)
    for axis in reversed(range(len(source.shape))):
        if op.counts[axis] > 1:
            target = target.split_axis(axis, source.shape[axis])
            source = source.repeat(axis, op.counts[axis])
    builder.copy(source, target)


@computes("copy")
def upsample(builder: Builder, node: Node, op: Upsample) -> None:
    """Nearest upsampling: split rows and columns into two axes each; the second has stride 0 in the operand."""
    source, target = _views(builder, node, dense=False)
    for axis in (3, 2):
        source = source.repeat(axis + 1, op.scale)
        target = target.split_axis(axis, op.scale)
    builder.copy(source, target)


@computes("copy")
def channel_shuffle(builder: Builder, node: Node, op: ChannelShuffle) -> None:
    """Transpose the axes of groups and of channels in a group."""
    source, target = _views(builder, node)
    source = source.split_axis(1, source.shape[1] // op.groups).swap_axes(1, 2)
    builder.copy(source, target.split_axis(1, op.groups))


@computes("copy")
def channel_shift(builder: Builder, node: Node, op: Lshift | Rshift | Clshift | Crshift) -> None:
    """Shift along axis 1, and fill with zeros or with the channels that were shifted out."""
    source, target = _views(builder, node)
    channels = source.shape[1]
    rotates = isinstance(op, (Clshift, Crshift))
    distance = op.num % channels if rotates else min(op.num, channels)
    remaining = channels - distance
    # (first slice read, first slice written) of the slices that are shifted, and of those that are rotated in.
    stay, enter = (
        ((0, distance), (remaining, 0)) if isinstance(op, (Rshift, Crshift)) else ((distance, 0), (0, remaining))
    )
    builder.copy(source.slice_axis(1, stay[0], remaining), target.slice_axis(1, stay[1], remaining))
    entering = target.slice_axis(1, enter[1], distance)
    if rotates:
        builder.copy(source.slice_axis(1, enter[0], distance), entering)
    else:
        builder.fill(entering, Scalar(node.output.dtype, 0))


def _most_common_order(builder: Builder, values: Sequence[Value]) -> Order:
    """Return the memory order of the largest number of operand bytes, so that most copies are contiguous."""
    weights: dict[Order, int] = {}
    for value in values:
        if not value.is_constant:
            stored = builder.memory_of(value)
            weights[stored.order] = weights.get(stored.order, 0) + stored.size
    return max(weights, key=lambda order: weights[order]) if weights else row_major(values[0].rank)
