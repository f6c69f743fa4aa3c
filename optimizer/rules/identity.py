"""Nodes that change nothing, and shape changes in one spelling.

Every static squeeze and expand_dims becomes a reshape, so that rules about reshapes see all of them.
"""

from __future__ import annotations

from tpuconvert.optimizer.engine import Replacement, Skip, rule
from tpuconvert.optimizer.pattern import Match, p
from tpuconvert.schema.graph import Graph, Value
from tpuconvert.schema.ops.arithmetic_with_scalar import Adds, Divs, Muls, Subs
from tpuconvert.schema.ops.concat import Concat
from tpuconvert.schema.ops.copy import Copy
from tpuconvert.schema.ops.extract import Extract
from tpuconvert.schema.ops.pad import Pad
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.shape_change import ExpandDims, Reshape, Squeeze
from tpuconvert.schema.ops.tile import Tile


def same_meaning(x: Value, y: Value) -> bool:
    """Whether one value can stand for the other: a changed annotation is a rescale that the source asks for."""
    return x.quant == y.quant and x.type == y.type


@rule(p(Copy, "x", name="copy"), stage="canonicalize")
def remove_copy(graph: Graph, m: Match) -> Replacement:
    """copy(x) = x."""
    if not same_meaning(m.x, m.copy.output):
        return Skip("it changes the quantization")
    return m.x  # type: ignore[no-any-return]  # bound by the pattern


@rule(
    p(Adds, "x", name="op"),
    p(Subs, "x", name="op"),
    p(Muls, "x", name="op"),
    p(Divs, "x", name="op"),
    stage="canonicalize",
)
def remove_neutral_scalar(graph: Graph, m: Match) -> Replacement:
    """X + 0 = x - 0 = x * 1 = x / 1 = x."""
    neutral = 0 if isinstance(m.op.op, (Adds, Subs)) else 1
    if m.op.op.scalar.value != neutral:
        return Skip("its scalar is not neutral")
    if not same_meaning(m.x, m.op.output):
        return Skip("it changes the quantization")
    return m.x  # type: ignore[no-any-return]  # bound by the pattern


@rule(
    p(Pad, "x", name="op"),
    p(Extract, "x", name="op"),
    p(Tile, "x", name="op"),
    p(Reshape, "x", name="op"),
    stage="canonicalize",
)
def remove_same_shape(graph: Graph, m: Match) -> Replacement:
    """These operators do nothing when they keep the shape: no padding, the whole range, one repetition."""
    if not (m.x.type.is_static and same_meaning(m.x, m.op.output)):
        return Skip("it changes the shape")
    return m.x  # type: ignore[no-any-return]  # bound by the pattern


@rule(p(Concat, "x", name="op"), stage="canonicalize")
def remove_single_concat(graph: Graph, m: Match) -> Replacement:
    """concat(x) = x."""
    if len(m.op.inputs) > 1 or not same_meaning(m.x, m.op.output):
        return Skip("it joins several operands")
    return m.x  # type: ignore[no-any-return]  # bound by the pattern


@rule(p(Squeeze, "x", name="op"), p(ExpandDims, "x", name="op"), stage="canonicalize")
def spell_as_reshape(graph: Graph, m: Match) -> Replacement:
    """Squeeze and expand_dims of a static shape are reshapes."""
    return _reshape(graph, m.x, m.op.output)


@rule(p(Reshape, p(Reshape, "x", name="first"), name="second"), stage="canonicalize")
def merge_reshapes(graph: Graph, m: Match) -> Replacement:
    """reshape(reshape(x)) = reshape(x)."""
    return _reshape(graph, m.x, m.second.output)


@rule(p(Permute, "x", name="op"), stage="canonicalize")
def permute_of_ones(graph: Graph, m: Match) -> Replacement:
    """A permute that keeps the order of the axes that are longer than 1 moves no element."""
    order = [axis for axis in m.op.op.order if m.x.shape[axis] != 1]
    if order != sorted(order):
        return Skip("it moves elements")
    if m.x.type == m.op.output.type:
        return m.x  # type: ignore[no-any-return]  # bound by the pattern
    return _reshape(graph, m.x, m.op.output)


def _reshape(graph: Graph, x: Value, like: Value) -> Replacement:
    if not like.type.is_static:
        return Skip("its shape is not known before the model runs")
    return graph.add(Reshape(like.type.static_shape), x)
