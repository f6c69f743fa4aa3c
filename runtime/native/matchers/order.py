"""Sorting and selection along an axis: sort, argsort, topk and arg."""

from __future__ import annotations

from math import prod

from tpuconvert.runtime.native.builder.builder import Builder
from tpuconvert.runtime.native.builder.storage import Order, row_major
from tpuconvert.runtime.native.matchers.any_elements import ANY_TYPES
from tpuconvert.runtime.native.matchers.matcher import computes, first_operand
from tpuconvert.schema.graph.graph import Node, Value
from tpuconvert.schema.ops.ordering import Arg, ArgMethod, Argsort, Sort, Topk
from tpuconvert.schema.types import F32, I8, U8


@computes("order", dtypes=(F32, I8, U8))
def arg(builder: Builder, node: Node, op: Arg) -> None:
    """Index of the first largest or smallest element."""
    _emit(builder, node, op.axis, None, node.output, descending=op.method is ArgMethod.max, is_extreme=True)


@computes("order", dtypes=(F32,))
def topk(builder: Builder, node: Node, op: Topk) -> None:
    """The k largest or smallest elements and their indices."""
    values, indices = node.outputs
    _emit(builder, node, op.axis, values, indices, descending=op.descending)


@computes("order", dtypes=(F32,))
def sort(builder: Builder, node: Node, op: Sort) -> None:
    """Sorted elements and their indices."""
    indices, values = node.outputs
    _emit(builder, node, op.dim, values, indices, descending=op.descending)


@computes("order", dtypes=(F32,))
def argsort(builder: Builder, node: Node, op: Argsort) -> None:
    """Indices of the sorted elements."""
    _emit(builder, node, op.dim, None, node.output, descending=op.descending)


def _emit(
    builder: Builder,
    node: Node,
    axis: int,
    values: Value | None,
    indices: Value,
    *,
    descending: bool,
    is_extreme: bool = False,
) -> None:
    """Add the step; both results have the memory order of the operand."""
    x = first_operand(node)
    source = builder.read(x, _order_of(builder, x))
    order, shape = source.order, source.shape
    axis %= x.rank
    position = order.index(axis)
    results = {
        "values": None if values is None else builder.write(values, order),
        "indices": builder.write(indices, order),
    }
    builder.kernel_step(
        "order",
        "OrderSpec",
        {"source": source},
        results,
        type=ANY_TYPES[x.dtype],
        index_type=ANY_TYPES[indices.dtype],
        outer=prod(shape[other] for other in order[:position]),
        extent=shape[axis],
        inner=prod(shape[other] for other in order[position + 1 :]),
        count=builder.shape(indices)[axis],
        descending=descending,
        is_extreme=is_extreme,
    )


def _order_of(builder: Builder, x: Value) -> Order:
    """Return the operand's memory order."""
    return row_major(x.rank) if x.is_constant else builder.memory_of(x).order
