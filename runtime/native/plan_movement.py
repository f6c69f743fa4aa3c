"""Data movement operators: views where possible, copies elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

from tpuconvert.runtime.native.builder import Builder, Group
from tpuconvert.runtime.native.groups import Site, ends_with, first_operand
from tpuconvert.runtime.native.storage import Order, Stored, row_major
from tpuconvert.runtime.native.views import View, copy_view, fill, slice_stored
from tpuconvert.schema.graph import Node, Value
from tpuconvert.schema.ops.channel_shift import Clshift, Crshift, Lshift, Rshift
from tpuconvert.schema.ops.channel_shuffle import ChannelShuffle
from tpuconvert.schema.ops.concat import Interleave, Split
from tpuconvert.schema.ops.extract import Extract
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.tile import Repetition
from tpuconvert.schema.ops.upsample import Upsample
from tpuconvert.schema.types import Scalar


@ends_with(
    "copy",
    "constdata",
    kernels=("copy",),
    dtypes="all",
    conditions="always; the result is an alias",
)
def copy(node: Node, site: Site) -> Group | None:
    """Match a copy; the result is an alias."""
    x, y = first_operand(node), node.outputs[0]
    return Group((node,), lambda builder: builder.alias(y, builder.stored(x)))


@ends_with(
    "permute",
    kernels=("copy",),
    dtypes="all",
    conditions="always; the result is a view",
)
def permute(node: Node, site: Site) -> Group | None:
    """Match a permute; the result is a view."""
    op, x, y = node.op, first_operand(node), node.outputs[0]
    assert isinstance(op, Permute)
    return Group((node,), lambda builder: builder.alias(y, builder.stored(x).permuted(op.order)))


@ends_with(
    "reshape",
    "squeeze",
    "expand_dims",
    kernels=("copy",),
    dtypes="all",
    conditions="always; a view, or one copy to row-major order",
)
def reshape(node: Node, site: Site) -> Group | None:
    """Match a reshape: a view, or a copy to row-major order first."""
    x, y = first_operand(node), node.outputs[0]

    def emit(builder: Builder) -> None:
        shape = builder.shape(y)
        same = builder.stored(x).reshaped(shape)
        if same is None:
            same = builder.read(x, row_major(x.rank)).reshaped(shape)
        assert same is not None, "row-major memory can be reshaped to any shape"
        builder.alias(y, same)

    return Group((node,), emit)


@ends_with(
    "concat",
    kernels=("copy",),
    dtypes="all",
    conditions="the operands have the type of the result",
    takes_empty=True,
)
def concat(node: Node, site: Site) -> Group | None:
    """Match a concat: one copy per operand that was not written in place."""
    values = [value for value in node.inputs if value is not None]
    y = node.outputs[0]
    if any(value.dtype is not y.dtype for value in values):
        return None
    axis: int = node.op.attributes()["axis"] % y.rank

    def emit(builder: Builder) -> None:
        whole = builder.write(y, _most_common_order(builder, values))
        target = View.of(whole)
        start = 0
        for value in values:
            extent = builder.shape(value)[axis]
            stored = builder.stored(value)
            if 0 not in stored.shape and stored.buffer is not whole.buffer:  # others were written in place
                copy_view(builder, View.of(stored), target.slice_axis(axis, start, extent))
            start += extent

    return Group((node,), emit)


@ends_with(
    "interleave",
    kernels=("copy",),
    dtypes="all",
    conditions="always",
)
def interleave(node: Node, site: Site) -> Group | None:
    """Match an interleave: chunks of both operands in turn."""
    op, y = node.op, node.outputs[0]
    assert isinstance(op, Interleave)
    values = [value for value in node.inputs if value is not None]
    axis = op.axis % y.rank

    def emit(builder: Builder) -> None:
        target = View.of(builder.write(y, _most_common_order(builder, values))).split_axis(axis, 2 * op.step)
        for index, value in enumerate(values):
            source = View.of(builder.stored(value)).split_axis(axis, op.step)
            copy_view(builder, source, target.slice_axis(axis + 1, index * op.step, op.step))

    return Group((node,), emit)


@ends_with(
    "split",
    kernels=("copy",),
    dtypes="all",
    conditions="always; views where the memory order allows it",
)
def split(node: Node, site: Site) -> Group | None:
    """Match a split into views where possible."""
    op, x = node.op, first_operand(node)
    assert isinstance(op, Split)
    axis = op.axis % x.rank

    def emit(builder: Builder) -> None:
        start = 0
        for y in node.outputs:
            extent = builder.shape(y)[axis]
            _slice(builder, x, y, {axis: (start, extent, 1)})
            start += extent

    return Group((node,), emit)


@ends_with(
    "extract",
    kernels=("copy",),
    dtypes="all",
    conditions="always; a view for steps of 1",
)
def extract(node: Node, site: Site) -> Group | None:
    """Match a strided slice."""
    op, x, y = node.op, first_operand(node), node.outputs[0]
    assert isinstance(op, Extract)

    def emit(builder: Builder) -> None:
        counts = builder.shape(y)
        limits = zip(op.start, counts, op.stride, strict=True)
        _slice(
            builder, x, y, {axis: limit for axis, limit in enumerate(limits) if counts[axis] != builder.shape(x)[axis]}
        )

    return Group((node,), emit)


def _slice(builder: Builder, x: Value, y: Value, limits: dict[int, tuple[int, int, int]]) -> None:
    stored = builder.stored(x)
    part: Stored | None = stored
    for axis, (start, count, step) in limits.items():
        part = slice_stored(part, axis, start, count) if part is not None and (step == 1 or count == 1) else None
    if part is not None and 0 not in part.shape:
        builder.alias(y, part)
        return
    view = View.of(stored)
    for axis, (start, count, step) in limits.items():
        view = view.slice_axis(axis, start, count, step)
    copy_view(builder, view, View.of(builder.write(y, stored.order)))


@ends_with(
    "tile",
    "broadcast",
    "repeat",
    kernels=("copy",),
    dtypes="all",
    conditions="always",
)
def repetition(node: Node, site: Site) -> Group | None:
    """Match a tile: each axis becomes two, and the operand is read with stride 0 along the first."""
    op, x, y = node.op, first_operand(node), node.outputs[0]
    assert isinstance(op, Repetition)

    def emit(builder: Builder) -> None:
        stored = builder.stored(x)
        source, target = View.of(stored), View.of(builder.write(y, stored.order))
        for axis in reversed(range(x.rank)):
            if op.counts[axis] > 1:
                target = target.split_axis(axis, source.shape[axis])
                source = source.repeat(axis, op.counts[axis])
        copy_view(builder, source, target)

    return Group((node,), emit)


@ends_with(
    "upsample",
    kernels=("copy",),
    dtypes="all",
    conditions="always",
)
def upsample(node: Node, site: Site) -> Group | None:
    """Match an upsample: rows and columns become two axes, read with stride 0 along the second."""
    op, x, y = node.op, first_operand(node), node.outputs[0]
    assert isinstance(op, Upsample)

    def emit(builder: Builder) -> None:
        stored = builder.stored(x)
        source, target = View.of(stored), View.of(builder.write(y, stored.order, dense=False))
        for axis in (3, 2):
            source = source.repeat(axis + 1, op.scale)
            target = target.split_axis(axis, op.scale)
        copy_view(builder, source, target)

    return Group((node,), emit)


@ends_with(
    "channel_shuffle",
    kernels=("copy",),
    dtypes="all",
    conditions="always",
)
def channel_shuffle(node: Node, site: Site) -> Group | None:
    """Match a channel shuffle: a transpose of groups and their members."""
    op, x, y = node.op, first_operand(node), node.outputs[0]
    assert isinstance(op, ChannelShuffle)

    def emit(builder: Builder) -> None:
        stored = builder.stored(x)
        source = View.of(stored).split_axis(1, builder.shape(x)[1] // op.groups).swap_axes(1, 2)
        copy_view(builder, source, View.of(builder.write(y, stored.order)).split_axis(1, op.groups))

    return Group((node,), emit)


@ends_with(
    "lshift",
    "rshift",
    "clshift",
    "crshift",
    kernels=("copy",),
    dtypes="all",
    conditions="always",
)
def channel_shift(node: Node, site: Site) -> Group | None:
    """Match a shift along axis 1 that inserts zeros or rotates."""
    op, x, y = node.op, first_operand(node), node.outputs[0]
    assert isinstance(op, (Lshift, Rshift, Clshift, Crshift))

    def emit(builder: Builder) -> None:
        stored = builder.stored(x)
        source, target = View.of(stored), View.of(builder.write(y, stored.order))
        channels = builder.shape(x)[1]
        rotates = isinstance(op, (Clshift, Crshift))
        distance = op.num % channels if rotates else min(op.num, channels)
        kept = channels - distance
        # (first slice read, first slice written) of the slices that stay and of those that enter.
        stay, enter = ((0, distance), (kept, 0)) if isinstance(op, (Rshift, Crshift)) else ((distance, 0), (0, kept))
        if kept:
            copy_view(builder, source.slice_axis(1, stay[0], kept), target.slice_axis(1, stay[1], kept))
        if distance and rotates:
            copy_view(builder, source.slice_axis(1, enter[0], distance), target.slice_axis(1, enter[1], distance))
        elif distance:
            fill(builder, target.slice_axis(1, enter[1], distance), Scalar(y.dtype, 0))

    return Group((node,), emit)


def _most_common_order(builder: Builder, values: Sequence[Value]) -> Order:
    """Return the order of most operand bytes, so that copies are contiguous."""
    weights: dict[Order, int] = {}
    for value in values:
        if not value.is_constant:
            stored = builder.stored(value)
            weights[stored.order] = weights.get(stored.order, 0) + stored.size
    return max(weights, key=lambda order: weights[order]) if weights else row_major(values[0].rank)
