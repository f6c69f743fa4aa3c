"""Simplification of reductions: nested ones, unit axes, and a following reshape that drops the reduced axes.

- Two successive sums, products, maxima or minima are one over the axes of both. The same is true for means, because all
  partial means have the same number of elements.
- A reduction over unit axes is a reshape.
- A reshape that only drops the kept axes of a reduction is folded into the reduction.
"""

from __future__ import annotations

import dataclasses

from tpuconvert.optimizer.engine.engine import Replacement, Skip, rule
from tpuconvert.optimizer.engine.node_properties import is_float32, operand, reduced_axes
from tpuconvert.optimizer.engine.pattern import Match, p
from tpuconvert.optimizer.rules.identity import reshape_like
from tpuconvert.schema.graph.graph import Graph, Node
from tpuconvert.schema.ops.reduce import Reduce
from tpuconvert.schema.ops.shape_change import Reshape


@rule(
    p(Reduce, p(Reduce, "x", name="inner", sole_user=True, where=is_float32), name="outer", where=is_float32),
    stage="canonicalize",
)
def merge_reduces(graph: Graph, m: Match) -> Replacement:
    """``reduce(reduce(x)) -> reduce(x)`` over the axes of both reductions."""
    inner, outer = m.inner.op, m.outer.op
    if inner.method != outer.method:
        return Skip("the methods differ")
    if inner.keep_dims != outer.keep_dims:
        return Skip("only one of them keeps its axes")
    first, second = reduced_axes(m.inner), reduced_axes(m.outer)
    left = list(range(m.x.rank)) if inner.keep_dims else [axis for axis in range(m.x.rank) if axis not in first]
    if not left:
        return Skip("the first reduces all axes")
    axes = tuple(sorted({*first, *(left[axis] for axis in second)}))
    if len(axes) == m.x.rank and not inner.keep_dims:
        return Skip("no axis is left")
    return graph.add(Reduce(axes, inner.method, keep_dims=inner.keep_dims), m.x)


def _reduces_nothing(node: Node) -> bool:
    return is_float32(node) and all(operand(node).shape[axis] == 1 for axis in reduced_axes(node))


@rule(p(Reduce, "x", name="op", where=_reduces_nothing), stage="canonicalize")
def remove_unit_reduce(graph: Graph, m: Match) -> Replacement:
    """``reduce(x) -> reshape(x)`` if the reduced axes are unit axes."""
    if m.x.type == m.op.output.type:
        return m.x if m.x.quant == m.op.output.quant else Skip("it changes the quantization")
    return reshape_like(graph, m.x, m.op.output)


@rule(p(Reshape, p(Reduce, "x", name="reduce", sole_user=True), name="reshape"), stage="fuse")
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
