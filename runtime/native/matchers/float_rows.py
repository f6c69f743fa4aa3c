"""Float softmax, normalization and reduction along contiguous rows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod

from tpuconvert.runtime.native.builder.builder import Builder
from tpuconvert.runtime.native.builder.storage import Order, Stored, row_major
from tpuconvert.runtime.native.matchers.matcher import computes, first_operand
from tpuconvert.schema.definition.extents import normalize_axes
from tpuconvert.schema.graph.graph import Node
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


@computes("softmax_float32", dtypes=(F32,))
def softmax(builder: Builder, node: Node, op: Softmax) -> None:
    """Softmax along the innermost axis in memory; the operand is copied to that order if necessary."""
    x = first_operand(node)
    axis = op.axis % x.rank
    order = _ending_with(builder.memory_of(x).order, (axis,))
    source, target = builder.read(x, order), builder.write(node.output, order)
    emit_softmax(builder, source, target, builder.shape(x)[axis], is_precise=node in builder.precise)


def emit_softmax(builder: Builder, x: Stored, y: Stored, count: int, **options: bool) -> None:
    """Add the step of a softmax along rows of ``count`` elements."""
    rows = x.size // count
    builder.kernel_step("softmax_float32", "SoftmaxFloatSpec", {"x": x}, {"y": y}, rows=rows, count=count, **options)


@computes("norm_float32", dtypes=(F32,))
def layer_norm(builder: Builder, node: Node, op: LayerNorm | RmsNorm) -> None:
    """Layer and RMS normalization over the last axes."""
    x = first_operand(node)
    axis = op.axis % x.rank
    order = _ending_with(builder.memory_of(x).order, range(axis, x.rank))
    count = prod(builder.shape(x)[axis:])
    _normalize(builder, node, op, order, count, is_centered=isinstance(op, LayerNorm))


@computes("norm_float32", dtypes=(F32,))
def group_norm(builder: Builder, node: Node, op: GroupNorm) -> None:
    """Group normalization."""
    x = first_operand(node)
    _, channels, *image = builder.shape(x)
    count, block = channels // op.groups * prod(image), prod(image)
    _normalize(builder, node, op, row_major(x.rank), count, block=block, groups=op.groups)


def _normalize(
    builder: Builder, node: Node, op: LayerNorm | RmsNorm | GroupNorm, order: Order, count: int, **options: int
) -> None:
    """Add the normalization step for rows of ``count`` elements in a memory order."""
    x, *factors = node.inputs
    assert x is not None
    source, target = builder.read(x, order), builder.write(node.output, order)
    read = [None if value is None else builder.read(value, row_major(value.rank)) for value in (*factors, None, None)]
    builder.kernel_step(
        "norm_float32",
        "NormFloatSpec",
        {"x": source, "scale": read[0], "bias": read[1]},
        {"y": target},
        rows=source.size // count,
        count=count,
        epsilon=op.epsilon,
        **options,
    )


@computes("reduce_float32", dtypes=(F32,))
def reduce(builder: Builder, node: Node, op: Reduce) -> None:
    """Any reduction."""
    source, target, (outer, count, inner) = reduced_extents(builder, node, op)
    is_mean = op.method is ReduceMethodType.REDUCE_MEAN
    builder.kernel_step(
        "reduce_float32",
        "ReduceFloatSpec",
        {"x": source},
        {"y": target},
        outer=outer,
        count=count,
        inner=inner,
        kind=_METHODS[op.method],
        divisor=float(count) if is_mean else 1.0,
    )


def reduced_extents(builder: Builder, node: Node, op: Reduce) -> tuple[Stored, Stored, tuple[int, int, int]]:
    """Return operand and result of a reduction, and the extents before, of and after the reduced axes."""
    x, y = first_operand(node), node.output
    axes, shape = normalize_axes(op.name, op.axis_list[: op.axis_num], x.type), builder.shape(x)
    order = _together(builder.memory_of(x).order, axes, shape)
    source = builder.read(x, order)
    wide = [axis for axis in order if shape[axis] != 1]
    places = [index for index, axis in enumerate(wide) if axis in axes] or [len(wide)]
    extents = [shape[axis] for axis in wide]
    first, last = places[0], places[-1] + 1
    # The result has the memory order of the remaining axes.
    if builder.shape(y) != tuple(1 if axis in axes else extent for axis, extent in enumerate(shape)):
        left = [axis for axis in range(x.rank) if axis not in axes]
        order = tuple(left.index(axis) for axis in order if axis not in axes) or (0,)
    return source, builder.write(y, order), (prod(extents[:first]), prod(extents[first:last]), prod(extents[last:]))


def _ending_with(order: Order, axes: Sequence[int]) -> Order:
    """Return an order that ends with these axes."""
    return (*(axis for axis in order if axis not in axes), *axes)


def _together(order: Order, axes: tuple[int, ...], shape: tuple[int, ...]) -> Order:
    """Return ``order`` if the axes are adjacent in it, otherwise an order that ends with them."""
    wide = [axis in axes for axis in order if shape[axis] != 1]
    changes = sum(left != right for left, right in pairwise(wide))
    if changes <= 1 or (changes == 2 and not wide[0]):
        return order
    return (*(axis for axis in order if axis not in axes), *(axis for axis in order if axis in axes))
