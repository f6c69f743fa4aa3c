"""Integer pooling, reduction and softmax."""

from __future__ import annotations

from tpuconvert.runtime.native.builder.builder import Builder
from tpuconvert.runtime.native.builder.storage import channels_last
from tpuconvert.runtime.native.matchers.epilogue import bias_of
from tpuconvert.runtime.native.matchers.float_rows import reduced_extents
from tpuconvert.runtime.native.matchers.matcher import computes, first_operand
from tpuconvert.runtime.native.matchers.tables import check_table
from tpuconvert.schema.arithmetic.pooling import Span
from tpuconvert.schema.graph.graph import Node, Value
from tpuconvert.schema.ops.pool import Pool, PoolType
from tpuconvert.schema.ops.pool_int import PoolInt, PoolQuantMode
from tpuconvert.schema.ops.reduce import Reduce, ReduceMethodType
from tpuconvert.schema.ops.softmax_int import SoftmaxInt
from tpuconvert.schema.types import I8, I16, U8

BYTES = (I8, U8)

_METHODS = {
    ReduceMethodType.REDUCE_MEAN: "mean",
    ReduceMethodType.REDUCE_SUM: "sum",
    ReduceMethodType.REDUCE_MAX: "maximum",
    ReduceMethodType.REDUCE_MIN: "minimum",
}


Windows = tuple[Span, Span, tuple[int, int]]
"""Windows along height and width, and trailing padding of both axes."""


def pool_windows(op: Pool, x: Value, y: Value) -> Windows:
    """Return the windows of a pooling operator."""
    height, width = x.type.static_shape[2:]
    if op.is_global_pooling:
        return Span(height, 1, height, 1, 0), Span(width, 1, width, 1, 0), (0, 0)
    oh, ow = y.type.static_shape[2:]
    down = Span(height, oh, op.kernel_h, op.stride_h, op.pad_h)
    along = Span(width, ow, op.kernel_w, op.stride_w, op.pad_w)
    return down, along, (op.pad_h + op.pad_h_offset, op.pad_w + op.pad_w_offset)


@computes("pool_int", dtypes=BYTES)
def pool(builder: Builder, node: Node, op: Pool) -> None:
    """Max pooling, and average pooling rounded ``half_away``."""
    windows = pool_windows(op, first_operand(node), node.output)
    is_maximum = op.pooling_type is PoolType.MAX
    _emit_pool(builder, node, windows, with_padding=op.is_ave_count_zero_pad, is_maximum=is_maximum)


@computes(
    "pool_int",
    dtypes=(*BYTES, I16),
    conditions="the positions of the maxima are not used; a maximum, if the type is INT16",
    when=lambda op, node, site: (
        site.only_first_is_used(node) and not (op.is_avg_pooling and node.outputs[0].dtype is I16)
    ),
)
def pool_int(builder: Builder, node: Node, op: PoolInt) -> None:
    """Max pooling without indices, and average pooling in both modes."""
    (height, width), (oh, ow) = builder.shape(first_operand(node))[2:], builder.shape(node.outputs[0])[2:]
    down = Span(height, oh, op.kernel_h, op.stride_h, op.pad_h_t)
    along = Span(width, ow, op.kernel_w, op.stride_w, op.pad_w_l)
    _emit_pool(
        builder,
        node,
        (down, along, (0, 0)),
        is_maximum=not op.is_avg_pooling,
        divides=op.quant_mode is PoolQuantMode.DIVIDE,
        scale=op.scale,
        shift=op.rshift,
    )


def _emit_pool(builder: Builder, node: Node, windows: Windows, *, with_padding: bool = False, **rounding: int) -> None:
    """Add a pooling step.

    Args:
        builder: the plan.
        node: the node.
        windows: its windows.
        with_padding: True if averages count padding as elements.
        rounding: fields of the spec. With ``divides``, the sum is divided by the number of elements, otherwise the
            result is ``sum * scale >> shift``.
    """
    down, along, after = windows
    check_table(down.count + along.count)
    y = node.outputs[0]
    source, target = builder.read(first_operand(node), channels_last(4)), builder.write(y, channels_last(4))
    images, height, width, channels = source.memory_shape
    builder.kernel_step(
        "pool_int",
        "PoolIntSpec",
        {"source": source},
        {"target": target},
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
        is_wide=y.dtype is I16,
        bias=bias_of(y.dtype),
        row_counts=down.elements(after[0], with_padding=with_padding).tolist(),
        column_counts=along.elements(after[1], with_padding=with_padding).tolist(),
        **rounding,
    )


@computes(
    "reduce_int",
    dtypes=BYTES,
    conditions="mean, sum, maximum or minimum",
    when=lambda op, node, site: op.method in _METHODS,
)
def reduce(builder: Builder, node: Node, op: Reduce) -> None:
    """Mean, sum, maximum and minimum of bytes over any axes."""
    source, target, (outer, count, inner) = reduced_extents(builder, node, op)
    builder.kernel_step(
        "reduce_int",
        "ReduceIntSpec",
        {"source": source},
        {"target": target},
        outer=outer,
        count=count,
        inner=inner,
        method=_METHODS[op.method],
        bias=bias_of(node.output.dtype),
    )


@computes("softmax_int", dtypes=BYTES)
def softmax_int(builder: Builder, node: Node, op: SoftmaxInt) -> None:
    """Softmax over axis 1, which is innermost in memory."""
    x, y = first_operand(node), node.output
    order, length = channels_last(x.rank), builder.shape(x)[1]
    source, target = builder.read(x, order), builder.write(y, order)
    builder.kernel_step(
        "softmax_int",
        "SoftmaxIntSpec",
        {"source": source},
        {"target": target},
        rows=source.size // length,
        length=length,
        table=list(op.table),
        scale=op.scale,
        zero=op.zero_point + bias_of(y.dtype),
    )
