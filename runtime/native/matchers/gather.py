"""Gather along axes: padding, nearest-neighbor resizing and index_select."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from tpuconvert.runtime.native.builder.builder import Builder
from tpuconvert.runtime.native.builder.storage import Stored
from tpuconvert.runtime.native.builder.views import View
from tpuconvert.runtime.native.matchers.matcher import Site, computes, first_operand, operands_of
from tpuconvert.runtime.native.matchers.tables import check_table
from tpuconvert.schema.graph.graph import Node, Value
from tpuconvert.schema.ops.index_select import IndexSelect
from tpuconvert.schema.ops.interpolate import Interpolate, InterpolateMode
from tpuconvert.schema.ops.pad import Pad, PadType
from tpuconvert.schema.types import I32, Array, format_shape


@computes("copy", "gather", conditions="always; gather for reflected and replicated edges")
def pad(builder: Builder, node: Node, op: Pad) -> None:
    """Pad: fill constant edges slab by slab; gather reflected and replicated edges axis by axis."""
    x = first_operand(node)
    paddings = list(enumerate(zip(op.paddings[::2], op.paddings[1::2], strict=True)))
    if op.pad_mode is not PadType.PAD_CONSTANT:
        _gather(builder, node, [_source_indices(op, axis, x) if any(edges) else None for axis, edges in paddings])
        return
    stored = builder.memory_of(x)
    target = View.of(builder.write(node.output, stored.order))
    for axis, (before, after) in paddings:
        extent = target.shape[axis]
        for start, count in ((0, before), (extent - after, after)):
            if count:
                builder.fill(target.slice_axis(axis, start, count), op.pad_val)
        target = target.slice_axis(axis, before, extent - before - after)
    builder.copy(View.of(stored), target)


@computes(
    "gather",
    conditions="nearest neighbor",
    when=lambda op, node, site: op.method is InterpolateMode.NEAREST,
)
def interpolate_nearest(builder: Builder, node: Node, op: Interpolate) -> None:
    """Nearest-neighbor resizing: gather rows, then columns."""
    for extent in builder.shape(node.output)[2:]:
        check_table(extent)  # before the indices are computed
    extents = zip(builder.shape(first_operand(node))[2:], builder.shape(node.output)[2:], strict=True)
    _gather(builder, node, [None, None, *(op.nearest(before, after) for before, after in extents)])


def _has_valid_indices(op: IndexSelect, node: Node, site: Site) -> bool:
    x, index = operands_of(node)
    extent = x.type.static_shape[op.dim]
    return not ((index.array < 0) | (index.array >= extent)).any() if index.is_constant else index.dtype is I32


@computes(
    "gather",
    "index_select",
    conditions="gather for constant indices; index_select for INT32 indices computed at run time",
    when=_has_valid_indices,
)
def index_select(builder: Builder, node: Node, op: IndexSelect) -> None:
    """Gather slices by constant indices, or by indices that the step checks at run time."""
    x, index = operands_of(node)
    dim = op.dim % x.rank
    if index.is_constant:
        _gather(builder, node, [index.array if axis == dim else None for axis in range(x.rank)])
        return
    stored, indices = builder.read_exactly(x), builder.read(index)
    order, shape = stored.order, stored.shape
    position = order.index(dim)
    inner_bytes = prod(shape[axis] for axis in order[position + 1 :]) * stored.itemsize
    target = builder.write(node.output, order)
    aligned = _aligned(builder, target, inner_bytes)
    builder.kernel_step(
        "index_select",
        "IndexSelectSpec",
        {"source": _aligned_copy(builder, stored, inner_bytes), "indices": indices},
        {"target": aligned},
        outer=prod(shape[axis] for axis in order[:position]),
        extent=shape[dim],
        inner_bytes=inner_bytes,
        count=indices.size,
        bounds=f"0..{shape[dim] - 1}, axis {op.dim} of {format_shape(x.shape)}",
    )
    _copy_back(builder, aligned, target)


def _is_aligned(stored: Stored, inner_bytes: int) -> bool:
    """Return True if slices can be moved: the kernels move slices of 2 or 4 bytes as elements of that size."""
    return inner_bytes not in (2, 4) or stored.offset % inner_bytes == 0


def _aligned(builder: Builder, stored: Stored, inner_bytes: int) -> Stored:
    """Return the memory itself if slices of this size can be moved, else another one."""
    if _is_aligned(stored, inner_bytes):
        return stored
    return builder.temporary(stored.dtype, stored.shape)._replace(order=stored.order)


def _aligned_copy(builder: Builder, stored: Stored, inner_bytes: int) -> Stored:
    result = _aligned(builder, stored, inner_bytes)
    _copy_back(builder, stored, result)
    return result


def _copy_back(builder: Builder, source: Stored, target: Stored) -> None:
    if source is not target:
        builder.copy(View.of(source), View.of(target))


def _source_indices(op: Pad, axis: int, x: Value) -> Array:
    """Return the source index of every result index: the result of the operator on an image that contains indices."""
    extents = x.type.static_shape
    check_table(prod(extents))
    image = np.broadcast_to(
        np.arange(extents[axis], dtype=np.float32).reshape(-1, *(1,) * (x.rank - axis - 1)), extents
    )
    (moved,) = op.reference(image)
    centre = tuple(slice(None) if other == axis else moved.shape[other] // 2 for other in range(x.rank))
    places: Array = moved[centre].astype(np.int64)
    return places


def _gather(builder: Builder, node: Node, sources: Sequence[Array | None]) -> None:
    """Add one gather step for each axis that has a list of indices."""
    stored, y = builder.read(first_operand(node)), node.output
    order, shape = stored.order, list(stored.shape)
    axes = [axis for axis in order if sources[axis] is not None]
    for number, axis in enumerate(axes):
        indices = sources[axis]
        assert indices is not None
        check_table(len(indices))
        position = order.index(axis)
        outer = prod(shape[other] for other in order[:position])
        inner = prod(shape[other] for other in order[position + 1 :])
        extent, shape[axis] = shape[axis], len(indices)
        is_last = number == len(axes) - 1
        inner_bytes = inner * stored.itemsize
        target = builder.write(y, order) if is_last else builder.temporary(y.dtype, tuple(shape))
        aligned = _aligned(builder, target, inner_bytes)
        builder.kernel_step(
            "gather",
            "GatherSpec",
            {"source": _aligned_copy(builder, stored, inner_bytes)},
            {"target": aligned},
            outer=outer,
            extent=extent,
            inner_bytes=inner_bytes,
            indices=indices.tolist(),
        )
        _copy_back(builder, aligned, target)
        stored = target
    if not axes:
        builder.alias(y, stored)
