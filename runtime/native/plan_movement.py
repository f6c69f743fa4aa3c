"""Operators that move elements and change none: aliases where memory can stay, copies elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from tpuconvert.runtime.native.builder import EXTERNAL, Builder
from tpuconvert.runtime.native.groups import Group, Site, ends_with
from tpuconvert.runtime.native.storage import Order, Stored, row_major
from tpuconvert.runtime.native.views import View, copy_view, sliced
from tpuconvert.schema.graph import Node, Value
from tpuconvert.schema.ops.channel_shift import Clshift, Crshift, Lshift, Rshift
from tpuconvert.schema.ops.channel_shuffle import ChannelShuffle
from tpuconvert.schema.ops.concat import Interleave, Split
from tpuconvert.schema.ops.extract import Extract
from tpuconvert.schema.ops.index_select import IndexSelect
from tpuconvert.schema.ops.interpolate import Interpolate, InterpolateMode
from tpuconvert.schema.ops.pad import Pad, PadType
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.tile import Repetition
from tpuconvert.schema.ops.upsample import Upsample
from tpuconvert.schema.types import I8, I32, Array, Scalar, format_shape

STORED_BIAS = 0x80


def _group(node: Node, emit: Callable[[Builder], None]) -> Group:
    return Group((node,), emit)


def _operand(node: Node) -> Value:
    x = node.inputs[0]
    assert x is not None
    return x


@ends_with(
    "copy",
    "constdata",
    kernels=("copy",),
    dtypes="all",
    conditions="always; the result is an alias",
)
def copy(node: Node, site: Site) -> Group | None:
    """Nothing happens: the result is the same memory."""
    x, y = _operand(node), node.outputs[0]
    return _group(node, lambda builder: builder.alias(y, builder.stored(x)))


@ends_with(
    "permute",
    kernels=("copy",),
    dtypes="all",
    conditions="always; the result is a view",
)
def permute(node: Node, site: Site) -> Group | None:
    """The same memory under another order of the axes."""
    op, x, y = node.op, _operand(node), node.outputs[0]
    assert isinstance(op, Permute)
    return _group(node, lambda builder: builder.alias(y, builder.stored(x).permuted(op.order)))


@ends_with(
    "reshape",
    "squeeze",
    "expand_dims",
    kernels=("copy",),
    dtypes="all",
    conditions="always; a view, or one copy to row-major order",
)
def reshape(node: Node, site: Site) -> Group | None:
    """The same memory where no element has to move; otherwise row-major first."""
    x, y = _operand(node), node.outputs[0]

    def emit(builder: Builder) -> None:
        shape = builder.shape(y)
        same = builder.stored(x).reshaped(shape)
        if same is None:
            same = builder.read(x, row_major(x.rank)).reshaped(shape)
        assert same is not None, "row-major memory takes every shape"
        builder.alias(y, same)

    return _group(node, emit)


@ends_with(
    "concat",
    kernels=("copy",),
    dtypes="all",
    conditions="the operands have the type of the result",
    takes_empty=True,
)
def concat(node: Node, site: Site) -> Group | None:
    """One copy per operand that was not written to its place."""
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
            if 0 not in stored.shape and stored.buffer is not whole.buffer:  # what is there already was written there
                copy_view(builder, View.of(stored), target.cut(axis, start, extent))
            start += extent

    return _group(node, emit)


@ends_with(
    "interleave",
    kernels=("copy",),
    dtypes="all",
    conditions="always",
)
def interleave(node: Node, site: Site) -> Group | None:
    """Chunks of both operands in turn."""
    op, y = node.op, node.outputs[0]
    assert isinstance(op, Interleave)
    values = [value for value in node.inputs if value is not None]
    axis = op.axis % y.rank

    def emit(builder: Builder) -> None:
        target = View.of(builder.write(y, _most_common_order(builder, values))).divided(axis, 2 * op.step)
        for index, value in enumerate(values):
            source = View.of(builder.stored(value)).divided(axis, op.step)
            copy_view(builder, source, target.cut(axis + 1, index * op.step, op.step))

    return _group(node, emit)


@ends_with(
    "split",
    kernels=("copy",),
    dtypes="all",
    conditions="always; views where the memory order allows it",
)
def split(node: Node, site: Site) -> Group | None:
    """Parts in the same memory where that is possible."""
    op, x = node.op, _operand(node)
    assert isinstance(op, Split)
    axis = op.axis % x.rank

    def emit(builder: Builder) -> None:
        start = 0
        for y in node.outputs:
            extent = builder.shape(y)[axis]
            _cut(builder, x, y, {axis: (start, extent, 1)})
            start += extent

    return _group(node, emit)


@ends_with(
    "extract",
    kernels=("copy",),
    dtypes="all",
    conditions="always; a view for steps of 1",
)
def extract(node: Node, site: Site) -> Group | None:
    """A strided slice."""
    op, x, y = node.op, _operand(node), node.outputs[0]
    assert isinstance(op, Extract)

    def emit(builder: Builder) -> None:
        counts = builder.shape(y)
        limits = zip(op.start, counts, op.stride, strict=True)
        _cut(
            builder, x, y, {axis: limit for axis, limit in enumerate(limits) if counts[axis] != builder.shape(x)[axis]}
        )

    return _group(node, emit)


def _cut(builder: Builder, x: Value, y: Value, limits: dict[int, tuple[int, int, int]]) -> None:
    stored = builder.stored(x)
    part: Stored | None = stored
    for axis, (start, count, step) in limits.items():
        part = sliced(part, axis, start, count) if part is not None and (step == 1 or count == 1) else None
    if part is not None and 0 not in part.shape:
        builder.alias(y, part)
        return
    view = View.of(stored)
    for axis, (start, count, step) in limits.items():
        view = view.cut(axis, start, count, step)
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
    """Every axis becomes two: the copies, along which reading stands still, and the extent."""
    op, x, y = node.op, _operand(node), node.outputs[0]
    assert isinstance(op, Repetition)

    def emit(builder: Builder) -> None:
        stored = builder.stored(x)
        source, target = View.of(stored), View.of(builder.write(y, stored.order))
        for axis in reversed(range(x.rank)):
            if op.counts[axis] > 1:
                target = target.divided(axis, source.shape[axis])
                source = source.repeated(axis, op.counts[axis])
        copy_view(builder, source, target)

    return _group(node, emit)


@ends_with(
    "upsample",
    kernels=("copy",),
    dtypes="all",
    conditions="always",
)
def upsample(node: Node, site: Site) -> Group | None:
    """Rows and columns become two axes each; reading stands still along the second."""
    op, x, y = node.op, _operand(node), node.outputs[0]
    assert isinstance(op, Upsample)

    def emit(builder: Builder) -> None:
        stored = builder.stored(x)
        source, target = View.of(stored), View.of(builder.write(y, stored.order, dense=False))
        for axis in (3, 2):
            source = source.repeated(axis + 1, op.scale)
            target = target.divided(axis, op.scale)
        copy_view(builder, source, target)

    return _group(node, emit)


@ends_with(
    "channel_shuffle",
    kernels=("copy",),
    dtypes="all",
    conditions="always",
)
def channel_shuffle(node: Node, site: Site) -> Group | None:
    """Groups and their members change places."""
    op, x, y = node.op, _operand(node), node.outputs[0]
    assert isinstance(op, ChannelShuffle)

    def emit(builder: Builder) -> None:
        stored = builder.stored(x)
        source = View.of(stored).divided(1, builder.shape(x)[1] // op.groups).swapped(1, 2)
        copy_view(builder, source, View.of(builder.write(y, stored.order)).divided(1, op.groups))

    return _group(node, emit)


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
    """Slices of axis 1 move; zeros come in, or what went out on the other side."""
    op, x, y = node.op, _operand(node), node.outputs[0]
    assert isinstance(op, (Lshift, Rshift, Clshift, Crshift))

    def emit(builder: Builder) -> None:
        stored = builder.stored(x)
        source, target = View.of(stored), View.of(builder.write(y, stored.order))
        channels = builder.shape(x)[1]
        rotates = isinstance(op, (Clshift, Crshift))
        distance = op.num % channels if rotates else min(op.num, channels)
        kept = channels - distance
        # (first slice read, first slice written) of those that stay, and of those that come in.
        stay, enter = ((0, distance), (kept, 0)) if isinstance(op, (Rshift, Crshift)) else ((distance, 0), (0, kept))
        if kept:
            copy_view(builder, source.cut(1, stay[0], kept), target.cut(1, stay[1], kept))
        if distance and rotates:
            copy_view(builder, source.cut(1, enter[0], distance), target.cut(1, enter[1], distance))
        elif distance:
            _fill(builder, target.cut(1, enter[1], distance), Scalar(y.dtype, 0))

    return _group(node, emit)


@ends_with(
    "pad",
    kernels=("copy", "gather"),
    dtypes="all",
    conditions="always; gather for reflected and replicated edges",
)
def pad(node: Node, site: Site) -> Group | None:
    """A border of one number is filled slab by slab; any other is gathered axis by axis."""
    op, x, y = node.op, _operand(node), node.outputs[0]
    assert isinstance(op, Pad)
    if op.pad_mode is not PadType.PAD_CONSTANT:
        sources = [
            _places(lambda image: op.reference(image)[0], axis, x)
            if any(op.paddings[2 * axis : 2 * axis + 2])
            else None
            for axis in range(x.rank)
        ]
        return _group(node, lambda builder: _gather(builder, x, y, sources))

    def emit(builder: Builder) -> None:
        stored = builder.stored(x)
        target = View.of(builder.write(y, stored.order))
        for axis in range(x.rank):
            before, after = op.paddings[2 * axis : 2 * axis + 2]
            whole = target.shape[axis]
            for start, count in ((0, before), (whole - after, after)):
                if count:
                    _fill(builder, target.cut(axis, start, count), op.pad_val)
            target = target.cut(axis, before, whole - before - after)
        copy_view(builder, View.of(stored), target)

    return _group(node, emit)


@ends_with(
    "interpolate",
    kernels=("gather",),
    dtypes="all",
    conditions="nearest neighbour",
)
def interpolate_nearest(node: Node, site: Site) -> Group | None:
    """Rows, then columns, by index."""
    op, x, y = node.op, _operand(node), node.outputs[0]
    assert isinstance(op, Interpolate)
    if op.method != InterpolateMode.NEAREST:
        return None
    sources = [None, None, *(_places(lambda image: op.reference(image)[0], axis, x) for axis in (2, 3))]
    return _group(node, lambda builder: _gather(builder, x, y, sources))


@ends_with(
    "index_select",
    kernels=("gather", "index_select"),
    dtypes="all",
    conditions="gather for constant indices; index_select for INT32 indices computed at run time",
)
def index_select(node: Node, site: Site) -> Group | None:
    """Slices by constant indices; others are read when the model runs, and checked then."""
    op, x, y = node.op, _operand(node), node.outputs[0]
    assert isinstance(op, IndexSelect)
    index, dim = node.inputs[1], op.dim % x.rank
    assert index is not None
    if not index.is_constant:
        if index.dtype is not I32 or 0 in (*x.type.static_shape, *y.type.static_shape):
            return None
        bounds = f"0..{x.type.static_shape[dim] - 1}, axis {op.dim} of {format_shape(x.shape)}"
        return _group(node, lambda builder: _take(builder, x, index, y, dim, bounds))
    places, extent = index.array, x.shape[dim]
    if not isinstance(extent, int) or ((places < 0) | (places >= extent)).any():
        return None
    sources = [places if axis == dim else None for axis in range(x.rank)]
    return _group(node, lambda builder: _gather(builder, x, y, sources))


def _take(builder: Builder, x: Value, index: Value, y: Value, dim: int, bounds: str) -> None:
    """Slices by indices that the model computes; ``bounds`` is what the message says of one outside."""
    stored, indices = builder.read_exactly(x), builder.read(index)
    order, shape = stored.order, stored.shape
    position = order.index(dim)
    target = builder.write(y, order)
    spec = builder.native.IndexSelectSpec(
        source=builder.place(stored),
        indices=builder.place(indices),
        target=builder.place(target),
        outer=prod(shape[axis] for axis in order[:position]),
        extent=shape[dim],
        inner_bytes=prod(shape[axis] for axis in order[position + 1 :]) * stored.itemsize,
        count=indices.size,
        bounds=bounds,
    )
    builder.step("index_select", spec, (stored, indices), (target,))


def _places(function: Callable[[Array], Array], axis: int, x: Value) -> Array:
    """Which index of an axis each index of the result comes from: what a picture of the indices becomes."""
    extents = x.type.static_shape
    image = np.broadcast_to(
        np.arange(extents[axis], dtype=np.float32).reshape(-1, *(1,) * (x.rank - axis - 1)), extents
    )
    moved = function(image)
    centre = tuple(slice(None) if other == axis else moved.shape[other] // 2 for other in range(x.rank))
    places: Array = moved[centre].astype(np.int64)
    return places


def _gather(builder: Builder, x: Value, y: Value, sources: Sequence[Array | None]) -> None:
    """One step per axis that has a list of indices; what is between them is temporary."""
    stored = builder.read(x)
    order, shape = stored.order, list(stored.shape)
    axes = [axis for axis in order if sources[axis] is not None]
    for number, axis in enumerate(axes):
        indices = sources[axis]
        assert indices is not None
        position = order.index(axis)
        outer = prod(shape[other] for other in order[:position])
        inner = prod(shape[other] for other in order[position + 1 :])
        extent, shape[axis] = shape[axis], len(indices)
        is_last = number == len(axes) - 1
        target = builder.write(y, order) if is_last else builder.temporary(y.dtype, tuple(shape))
        spec = builder.native.GatherSpec(
            source=builder.place(stored),
            target=builder.place(target),
            outer=outer,
            extent=extent,
            inner_bytes=inner * stored.itemsize,
            indices=indices.tolist(),
        )
        builder.step("gather", spec, (stored,), (target,))
        stored = target
    if not axes:
        builder.alias(y, stored)


def _fill(builder: Builder, target: View, value: Scalar) -> None:
    """Set all elements of a view to one number."""
    assert target.stored.dtype is not I8 or target.stored.buffer.kind != EXTERNAL, "the caller's INT8 has another form"
    element = value.array.astype(target.stored.dtype.numpy).reshape(1)
    if target.stored.dtype is I8:
        element = element.view(np.uint8) ^ np.uint8(STORED_BIAS)
    constant = builder.constant(element)._replace(dtype=target.stored.dtype)
    source = View(constant, 0, target.shape, (0,) * len(target.shape))
    if 0 not in target.shape:
        copy_view(builder, source, target)


def _most_common_order(builder: Builder, values: Sequence[Value]) -> Order:
    """The order in which most bytes lie, so that copies are runs."""
    weights: dict[Order, int] = {}
    for value in values:
        if not value.is_constant:
            stored = builder.stored(value)
            weights[stored.order] = weights.get(stored.order, 0) + stored.size
    return max(weights, key=lambda order: weights[order]) if weights else row_major(values[0].rank)
