"""Integer pooling, reduction and softmax."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from tpuconvert.runtime.native.builder import Builder, Group
from tpuconvert.runtime.native.epilogue import bias_of
from tpuconvert.runtime.native.groups import Site, ends_with, first_operand
from tpuconvert.runtime.native.storage import Order, channels_last
from tpuconvert.schema.extents import normalize_axes
from tpuconvert.schema.graph import Node, Value
from tpuconvert.schema.ops.pool import Pool, PoolType
from tpuconvert.schema.ops.pool_int import PoolInt, PoolQuantMode
from tpuconvert.schema.ops.reduce import Reduce, ReduceMethodType
from tpuconvert.schema.ops.softmax_int import SoftmaxInt
from tpuconvert.schema.pooling import Span
from tpuconvert.schema.types import I8, U8

BYTES = (I8, U8)

_METHODS = {
    ReduceMethodType.REDUCE_MEAN: "mean",
    ReduceMethodType.REDUCE_SUM: "sum",
    ReduceMethodType.REDUCE_MAX: "maximum",
    ReduceMethodType.REDUCE_MIN: "minimum",
}


@dataclass(frozen=True)
class _Windows:
    """Pooling windows along both axes, and the rounding of averages.

    Args:
        down: windows along the height.
        along: windows along the width.
        after: trailing padding along both axes.
        with_padding: True if padding counts as elements.
        is_maximum: True for max pooling.
        divides: True to divide by the number of elements, False for ``sum * scale >> shift``.
        scale: multiplier.
        shift: right shift.
    """

    down: Span
    along: Span
    is_maximum: bool
    after: tuple[int, int] = (0, 0)
    with_padding: bool = False
    divides: bool = True
    scale: int = 1
    shift: int = 0


@ends_with(
    "pool",
    kernels=("pool_int",),
    dtypes="INT8, UINT8",
    conditions="always",
)
def pool(node: Node, site: Site) -> Group | None:
    """Match max pooling and average pooling with ties away from zero."""
    op, x, y = node.op, first_operand(node), node.outputs[0]
    assert isinstance(op, Pool)
    if x.dtype not in BYTES or 0 in y.type.static_shape:
        return None
    height, width = x.type.static_shape[2:]
    oh, ow = y.type.static_shape[2:]
    is_maximum = op.pooling_type is PoolType.MAX
    if op.is_global_pooling:
        windows = _Windows(Span(height, 1, height, 1, 0), Span(width, 1, width, 1, 0), is_maximum)
    else:
        windows = _Windows(
            Span(height, oh, op.kernel_h, op.stride_h, op.pad_h),
            Span(width, ow, op.kernel_w, op.stride_w, op.pad_w),
            is_maximum,
            (op.pad_h + op.pad_h_offset, op.pad_w + op.pad_w_offset),
        )
    windows = replace(windows, with_padding=op.is_ave_count_zero_pad)
    return Group((node,), lambda builder: _emit_pool(builder, x, y, windows))


@ends_with(
    "pool_int",
    kernels=("pool_int",),
    dtypes="INT8, UINT8",
    conditions="the positions of the maxima are not used",
)
def pool_int(node: Node, site: Site) -> Group | None:
    """Match max pooling without indices, and average pooling in both modes."""
    op, x, y = node.op, first_operand(node), node.outputs[0]
    assert isinstance(op, PoolInt)
    places = node.outputs[1:]
    if x.dtype not in BYTES or 0 in y.type.static_shape:
        return None
    if any(len(value.uses) or site.graph.is_output(value) for value in places):
        return None
    height, width = x.type.static_shape[2:]
    oh, ow = y.type.static_shape[2:]
    windows = _Windows(
        Span(height, oh, op.kernel_h, op.stride_h, op.pad_h_t),
        Span(width, ow, op.kernel_w, op.stride_w, op.pad_w_l),
        not op.is_avg_pooling,
        divides=op.quant_mode is PoolQuantMode.DIVIDE,
        scale=op.scale,
        shift=op.rshift,
    )
    return Group((node,), lambda builder: _emit_pool(builder, x, y, windows))


def _emit_pool(builder: Builder, x: Value, y: Value, windows: _Windows) -> None:
    source = builder.read(x, channels_last(4))
    target = builder.write(y, channels_last(4))
    down, along = windows.down, windows.along
    counts = [
        span.elements(after, with_padding=windows.with_padding).tolist()
        for span, after in zip((down, along), windows.after, strict=True)
    ]
    images, height, width, channels = source.memory_shape
    spec = builder.native.PoolIntSpec(
        source=builder.place(source),
        target=builder.place(target),
        images=images,
        height=height,
        width=width,
        channels=channels,
        out_height=down.count,
        out_width=along.count,
        kernel_h=down.size,
        kernel_w=along.size,
        stride_h=down.stride,
        stride_w=along.stride,
        pad_top=down.before,
        pad_left=along.before,
        is_maximum=windows.is_maximum,
        divides=windows.divides,
        scale=windows.scale,
        shift=windows.shift,
        bias=bias_of(y.dtype),
        row_counts=counts[0],
        column_counts=counts[1],
    )
    builder.step("pool_int", spec, (source,), (target,))


@ends_with(
    "reduce",
    kernels=("reduce_int",),
    dtypes="INT8, UINT8",
    conditions="mean, sum, maximum or minimum",
)
def reduce(node: Node, site: Site) -> Group | None:
    """Match mean, sum, max and min of bytes over any axes."""
    op, x, y = node.op, first_operand(node), node.outputs[0]
    assert isinstance(op, Reduce)
    if x.dtype not in BYTES or op.method not in _METHODS or 0 in x.type.static_shape:
        return None
    axes = normalize_axes(op.name, op.axis_list[: op.axis_num], x.type)
    method = _METHODS[op.method]

    def emit(builder: Builder) -> None:
        order = _together(builder.stored(x).order, axes, builder.shape(x))
        source = builder.read(x, order)
        places = [order.index(axis) for axis in axes] or [len(order)]
        first, last = min(places), max(places) + 1
        extents = source.memory_shape
        outer, count, inner = prod(extents[:first]), prod(extents[first:last]), prod(extents[last:])
        kept = tuple(axis for axis in order if axis not in axes)
        if op.keep_dims:
            result = (*axes, *kept)
        else:
            named = {axis: number for number, axis in enumerate(sorted(kept))}
            result = tuple(named[axis] for axis in kept) or (0,)
        target = builder.write(y, result)
        spec = builder.native.ReduceIntSpec(
            source=builder.place(source),
            target=builder.place(target),
            outer=outer,
            count=count,
            inner=inner,
            method=method,
            bias=bias_of(y.dtype),
        )
        builder.step("reduce_int", spec, (source,), (target,))

    return Group((node,), emit)


def _together(order: Order, axes: tuple[int, ...], shape: tuple[int, ...]) -> Order:
    """Return an equivalent order in which the axes are adjacent, or one that ends with them."""
    wide = [axis for axis in order if shape[axis] != 1]
    single = [axis for axis in order if shape[axis] == 1 and axis not in axes]
    inside = [axis for axis in order if shape[axis] == 1 and axis in axes]
    places = [wide.index(axis) for axis in wide if axis in axes]
    if places and places != list(range(places[0], places[-1] + 1)):
        wide = [axis for axis in wide if axis not in axes] + [axis for axis in wide if axis in axes]
        places = [wide.index(axis) for axis in wide if axis in axes]
    start = places[0] if places else len(wide)
    return tuple(single + wide[:start] + inside + wide[start:])


@ends_with(
    "softmax_int",
    kernels=("softmax_int",),
    dtypes="INT8, UINT8",
    conditions="always",
)
def softmax_int(node: Node, site: Site) -> Group | None:
    """Match a softmax over axis 1, which is innermost in memory."""
    op, x, y = node.op, first_operand(node), node.outputs[0]
    assert isinstance(op, SoftmaxInt)
    if 0 in x.type.static_shape:
        return None

    def emit(builder: Builder) -> None:
        order = channels_last(x.rank)
        source, target = builder.read(x, order), builder.write(y, order)
        length = builder.shape(x)[1]
        spec = builder.native.SoftmaxIntSpec(
            source=builder.place(source),
            target=builder.place(target),
            rows=source.size // length,
            length=length,
            table=list(op.table),
            scale=op.scale,
            zero=op.zero_point + bias_of(y.dtype),
        )
        builder.step("softmax_int", spec, (source,), (target,))

    return Group((node,), emit)
