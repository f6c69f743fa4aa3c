"""Float softmax, normalization and reduction along contiguous rows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod

from tpuconvert.runtime.native.builder import Builder, Group
from tpuconvert.runtime.native.groups import Site, ends_with, first_operand
from tpuconvert.runtime.native.storage import Order, Stored, row_major
from tpuconvert.schema.extents import normalize_axes
from tpuconvert.schema.graph import Node
from tpuconvert.schema.ops.normalization import GroupNorm, LayerNorm, RmsNorm
from tpuconvert.schema.ops.reduce import Reduce, ReduceMethodType
from tpuconvert.schema.ops.softmax import Softmax
from tpuconvert.schema.types import F32

_METHODS = {
    ReduceMethodType.REDUCE_MEAN: "sum",
    ReduceMethodType.REDUCE_SUM: "sum",
    ReduceMethodType.REDUCE_MAX: "max",
    ReduceMethodType.REDUCE_MIN: "min",
    ReduceMethodType.REDUCE_PROD: "prod",
}


@ends_with(
    "softmax",
    kernels=("softmax_float32",),
    dtypes="FLOAT32",
    conditions="always",
)
def softmax(node: Node, site: Site) -> Group | None:
    """Match a softmax; its axis is made the innermost."""
    op, x, y = node.op, first_operand(node), node.outputs[0]
    assert isinstance(op, Softmax)
    if not _is_float(node):
        return None
    axis, is_precise = op.axis % x.rank, node in site.precise

    def emit(builder: Builder) -> None:
        order = _ending_with(builder.stored(x).order, (axis,))
        source, target = builder.read(x, order), builder.write(y, order)
        emit_softmax(builder, source, target, x.type.static_shape[axis], is_precise)

    return Group((node,), emit)


def emit_softmax(builder: Builder, x: Stored, y: Stored, count: int, is_precise: bool) -> None:
    """Add the softmax step for rows of ``count`` innermost elements."""
    spec = builder.native.SoftmaxFloatSpec(
        x=builder.place(x), y=builder.place(y), rows=x.size // count, count=count, is_precise=is_precise
    )
    builder.step("softmax_float32", spec, (x,), (y,))


@ends_with(
    "layer_norm",
    "rms_norm",
    kernels=("norm_float32",),
    dtypes="FLOAT32",
    conditions="always",
)
def layer_norm(node: Node, site: Site) -> Group | None:
    """Match layer and RMS normalization over the last axes."""
    op, (x, *factors), y = node.op, node.inputs, node.outputs[0]
    assert isinstance(op, (LayerNorm, RmsNorm)) and x is not None
    if not _is_float(node):
        return None
    axis = op.axis % x.rank
    scale, bias = (*factors, None, None)[:2]

    def emit(builder: Builder) -> None:
        order = _ending_with(builder.stored(x).order, range(axis, x.rank))
        source, target = builder.read(x, order), builder.write(y, order)
        count = prod(builder.shape(x)[axis:])
        read = [None if value is None else builder.read(value, row_major(value.rank)) for value in (scale, bias)]
        spec = builder.native.NormFloatSpec(
            x=builder.place(source),
            y=builder.place(target),
            rows=source.size // count,
            count=count,
            epsilon=op.epsilon,
            scale=None if read[0] is None else builder.place(read[0]),
            bias=None if read[1] is None else builder.place(read[1]),
            is_centered=isinstance(op, LayerNorm),
        )
        builder.step("norm_float32", spec, [source, *(item for item in read if item is not None)], (target,))

    return Group((node,), emit)


@ends_with(
    "group_norm",
    kernels=("norm_float32",),
    dtypes="FLOAT32",
    conditions="always",
)
def group_norm(node: Node, site: Site) -> Group | None:
    """Match group normalization."""
    op, (x, *factors), y = node.op, node.inputs, node.outputs[0]
    assert isinstance(op, GroupNorm) and x is not None
    if not _is_float(node):
        return None
    scale, bias = (*factors, None, None)[:2]

    def emit(builder: Builder) -> None:
        source, target = builder.read(x, row_major(x.rank)), builder.write(y)
        batch, channels, *image = builder.shape(x)
        read = [None if value is None else builder.read(value, row_major(value.rank)) for value in (scale, bias)]
        spec = builder.native.NormFloatSpec(
            x=builder.place(source),
            y=builder.place(target),
            rows=batch * op.groups,
            count=channels // op.groups * prod(image),
            epsilon=op.epsilon,
            scale=None if read[0] is None else builder.place(read[0]),
            bias=None if read[1] is None else builder.place(read[1]),
            block=prod(image),
            groups=op.groups,
        )
        builder.step("norm_float32", spec, [source, *(item for item in read if item is not None)], (target,))

    return Group((node,), emit)


@ends_with(
    "reduce",
    kernels=("reduce_float32",),
    dtypes="FLOAT32",
    conditions="always",
)
def reduce(node: Node, site: Site) -> Group | None:
    """Match a reduction; its axes are made adjacent in memory."""
    op, x, y = node.op, first_operand(node), node.outputs[0]
    assert isinstance(op, Reduce)
    if not _is_float(node):
        return None
    axes = normalize_axes(op.name, op.axis_list[: op.axis_num], x.type)

    def emit(builder: Builder) -> None:
        shape = builder.shape(x)
        order = _together(builder.stored(x).order, axes, shape)
        source = builder.read(x, order)
        wide = [axis for axis in order if shape[axis] != 1]
        places = [place for place, axis in enumerate(wide) if axis in axes] or [len(wide)]
        extents = [shape[axis] for axis in wide]
        first, last = places[0], places[-1] + 1
        count = prod(extents[first:last]) if places[0] < len(wide) else 1
        # The memory order of the result is that of the remaining axes.
        kept = tuple(1 if axis in axes else extent for axis, extent in enumerate(shape))
        if builder.shape(y) == kept:
            target = builder.write(y, order)
        else:
            places_left = [axis for axis in range(x.rank) if axis not in axes]
            left = tuple(places_left.index(axis) for axis in order if axis not in axes) or (0,)
            target = builder.write(y, left)
        is_mean = op.method is ReduceMethodType.REDUCE_MEAN
        spec = builder.native.ReduceFloatSpec(
            x=builder.place(source),
            y=builder.place(target),
            outer=prod(extents[:first]),
            count=count,
            inner=prod(extents[last:]),
            kind=_METHODS[op.method],
            divisor=float(prod(shape[axis] for axis in axes)) if is_mean else 1.0,
        )
        builder.step("reduce_float32", spec, (source,), (target,))

    return Group((node,), emit)


def _is_float(node: Node) -> bool:
    values = [value for value in (*node.inputs, *node.outputs) if value is not None]
    return all(value.dtype is F32 and 0 not in value.type.static_shape for value in values)


def _ending_with(order: Order, axes: Sequence[int]) -> Order:
    """Return an order that ends with these axes."""
    return (*(axis for axis in order if axis not in axes), *axes)


def _together(order: Order, axes: tuple[int, ...], shape: tuple[int, ...]) -> Order:
    """Return the order if the axes are adjacent in it, otherwise one that ends with them."""
    wide = [axis in axes for axis in order if shape[axis] != 1]
    changes = sum(left != right for left, right in pairwise(wide))
    if changes <= 1 or (changes == 2 and not wide[0]):
        return order
    return (*(axis for axis in order if axis not in axes), *(axis for axis in order if axis in axes))
