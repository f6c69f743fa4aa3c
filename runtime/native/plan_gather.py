"""Gather along axes: padding, nearest-neighbour resizing and index_select."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from tpuconvert.runtime.native.builder import Builder, Group
from tpuconvert.runtime.native.groups import Site, ends_with, first_operand
from tpuconvert.runtime.native.views import View, copy_view, fill
from tpuconvert.schema.graph import Node, Value
from tpuconvert.schema.ops.index_select import IndexSelect
from tpuconvert.schema.ops.interpolate import Interpolate, InterpolateMode
from tpuconvert.schema.ops.pad import Pad, PadType
from tpuconvert.schema.types import I32, Array, format_shape


@ends_with(
    "pad",
    kernels=("copy", "gather"),
    dtypes="all",
    conditions="always; gather for reflected and replicated edges",
)
def pad(node: Node, site: Site) -> Group | None:
    """Match a pad: fill constant edges slab by slab, gather reflected and replicated edges axis by axis."""
    op, x, y = node.op, first_operand(node), node.outputs[0]
    assert isinstance(op, Pad)
    if op.pad_mode is not PadType.PAD_CONSTANT:
        sources = [
            _source_indices(lambda image: op.reference(image)[0], axis, x)
            if any(op.paddings[2 * axis : 2 * axis + 2])
            else None
            for axis in range(x.rank)
        ]
        return Group((node,), lambda builder: _gather(builder, x, y, sources))

    def emit(builder: Builder) -> None:
        stored = builder.stored(x)
        target = View.of(builder.write(y, stored.order))
        for axis in range(x.rank):
            before, after = op.paddings[2 * axis : 2 * axis + 2]
            whole = target.shape[axis]
            for start, count in ((0, before), (whole - after, after)):
                if count:
                    fill(builder, target.slice_axis(axis, start, count), op.pad_val)
            target = target.slice_axis(axis, before, whole - before - after)
        copy_view(builder, View.of(stored), target)

    return Group((node,), emit)


@ends_with(
    "interpolate",
    kernels=("gather",),
    dtypes="all",
    conditions="nearest neighbour",
)
def interpolate_nearest(node: Node, site: Site) -> Group | None:
    """Match nearest-neighbour resizing: gather rows, then columns."""
    op, x, y = node.op, first_operand(node), node.outputs[0]
    assert isinstance(op, Interpolate)
    if op.method != InterpolateMode.NEAREST:
        return None
    sources = [None, None, *(_source_indices(lambda image: op.reference(image)[0], axis, x) for axis in (2, 3))]
    return Group((node,), lambda builder: _gather(builder, x, y, sources))


@ends_with(
    "index_select",
    kernels=("gather", "index_select"),
    dtypes="all",
    conditions="gather for constant indices; index_select for INT32 indices computed at run time",
)
def index_select(node: Node, site: Site) -> Group | None:
    """Match an index_select with constant indices, or with indices that the step checks at run time."""
    op, x, y = node.op, first_operand(node), node.outputs[0]
    assert isinstance(op, IndexSelect)
    index, dim = node.inputs[1], op.dim % x.rank
    assert index is not None
    if not index.is_constant:
        if index.dtype is not I32 or 0 in (*x.type.static_shape, *y.type.static_shape):
            return None
        bounds = f"0..{x.type.static_shape[dim] - 1}, axis {op.dim} of {format_shape(x.shape)}"
        return Group((node,), lambda builder: _index_select(builder, x, index, y, dim, bounds))
    places, extent = index.array, x.shape[dim]
    if not isinstance(extent, int) or ((places < 0) | (places >= extent)).any():
        return None
    sources = [places if axis == dim else None for axis in range(x.rank)]
    return Group((node,), lambda builder: _gather(builder, x, y, sources))


def _index_select(builder: Builder, x: Value, index: Value, y: Value, dim: int, bounds: str) -> None:
    """Add an index_select step with indices computed at run time; ``bounds`` is part of the error message."""
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


def _source_indices(function: Callable[[Array], Array], axis: int, x: Value) -> Array:
    """Return the source index of every index of the result, by applying the operator to an image of the indices."""
    extents = x.type.static_shape
    image = np.broadcast_to(
        np.arange(extents[axis], dtype=np.float32).reshape(-1, *(1,) * (x.rank - axis - 1)), extents
    )
    moved = function(image)
    centre = tuple(slice(None) if other == axis else moved.shape[other] // 2 for other in range(x.rank))
    places: Array = moved[centre].astype(np.int64)
    return places


def _gather(builder: Builder, x: Value, y: Value, sources: Sequence[Array | None]) -> None:
    """Add one gather step per axis with a list of indices."""
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
