"""Simplification of reductions: nested ones, unit axes, and a following reshape that drops the reduced axes.

- Sums, products, maxima and minima over one axis and then over others are one reduction over all; so are means, because
  all partial means have the same number of elements.
- A reduction over unit axes is a reshape.
- A reshape that only drops the kept axes of a reduction is folded into the reduction.
"""

from __future__ import annotations

import dataclasses

from tpuconvert.optimizer.engine import Replacement, Skip, rule
from tpuconvert.optimizer.pattern import Match, p
from tpuconvert.optimizer.rules.identity import reshape_like
from tpuconvert.schema.graph import Graph, Node
from tpuconvert.schema.ops.reduce import Reduce
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.types import F32


def _is_float(node: Node) -> bool:
    return node.outputs[0].dtype is F32


def _axes(node: Node) -> list[int]:
    """The reduced axes of the operand."""
    (x,) = node.inputs
    assert x is not None and isinstance(node.op, Reduce)
    return sorted(axis % x.rank for axis in node.op.axis_list[: node.op.axis_num])


@rule(
    p(Reduce, p(Reduce, "x", name="inner", sole_user=True, where=_is_float), name="outer", where=_is_float),
    stage="canonicalize",
)
def merge_reduces(graph: Graph, m: Match) -> Replacement:
    """``reduce(reduce(x)) -> reduce(x)`` over the axes of both."""
    inner, outer = m.inner.op, m.outer.op
    if inner.method != outer.method:
        return Skip("the methods differ")
    if inner.keep_dims != outer.keep_dims:
        return Skip("only one of them keeps its axes")
    first, second = _axes(m.inner), _axes(m.outer)
    left = list(range(m.x.rank)) if inner.keep_dims else [axis for axis in range(m.x.rank) if axis not in first]
    if not left:
        return Skip("the first reduces all axes")
    axes = tuple(sorted({*first, *(left[axis] for axis in second)}))
    if len(axes) == m.x.rank and not inner.keep_dims:
        return Skip("no axis is left")
    return graph.add(Reduce(axes, inner.method, keep_dims=inner.keep_dims), m.x)


def _reduces_nothing(node: Node) -> bool:
    (x,) = node.inputs
    return x is not None and _is_float(node) and all(x.shape[axis] == 1 for axis in _axes(node))


@rule(p(Reduce, "x", name="op", where=_reduces_nothing), stage="canonicalize", formerly="reduce_of_ones")
def remove_unit_reduce(graph: Graph, m: Match) -> Replacement:
    """``reduce(x) -> reshape(x)`` if the reduced axes are unit axes."""
    if m.x.type == m.op.output.type:
        return m.x if m.x.quant == m.op.output.quant else Skip("it changes the quantization")
    return reshape_like(graph, m.x, m.op.output)


@rule(
    p(Reshape, p(Reduce, "x", name="reduce", sole_user=True), name="reshape"),
    stage="fuse",
    formerly="drop_reduced_axes",
)
def fold_reshape_into_reduce(graph: Graph, m: Match) -> Replacement:
    """``reshape(reduce(x)) -> reduce(x)`` if the reshape drops the kept axes."""
    if not m.reduce.op.keep_dims:
        return Skip("the reduction keeps no axes")
    dropped = dataclasses.replace(m.reduce.op, keep_dims=False)
    (type_,) = dropped.infer(m.x.type)
    if type_ != m.reshape.output.type:
        return Skip("the reshape does more than drop the axes")
    if m.reduce.output.quant not in (None, m.reshape.output.quant):
        return Skip("it changes the quantization")
    return graph.add(dropped, m.x)
