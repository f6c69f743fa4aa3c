"""Removal of no-ops, and canonicalization of shape changes.

Every squeeze and expand_dims becomes a reshape where possible, so that the rules for reshapes apply to it.
"""

from __future__ import annotations

from tpuconvert.optimizer.engine.annotations import is_interchangeable
from tpuconvert.optimizer.engine.engine import Replacement, Skip, rule
from tpuconvert.optimizer.engine.node_properties import may_round_integers, operand
from tpuconvert.optimizer.engine.pattern import Match, p
from tpuconvert.schema.graph.graph import Graph, Node, Value
from tpuconvert.schema.ops.arithmetic_with_scalar import Adds, Divs, Muls, ScalarArithmetic, Subs
from tpuconvert.schema.ops.concat import Concat
from tpuconvert.schema.ops.copy import Copy
from tpuconvert.schema.ops.extract import Extract
from tpuconvert.schema.ops.pad import Pad
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.shape_change import ExpandDims, Reshape, Squeeze, reshape_params
from tpuconvert.schema.ops.tile import Repetition


@rule(p(Copy, "x", name="copy"), stage="canonicalize")
def remove_copy(graph: Graph, m: Match) -> Replacement:
    """``copy(x) -> x``."""
    return _as_operand(m.x, m.copy)


def _is_neutral(node: Node) -> bool:
    assert isinstance(node.op, ScalarArithmetic)
    return node.op.scalar.value == (0 if isinstance(node.op, (Adds, Subs)) else 1)


@rule(p((Adds, Subs, Muls, Divs), "x", name="op", where=_is_neutral), stage="canonicalize")
def remove_neutral_scalar(graph: Graph, m: Match) -> Replacement:
    """``x + 0 -> x``, ``x - 0 -> x``, ``x * 1 -> x`` and ``x / 1 -> x``."""
    if may_round_integers(m.op):
        return Skip("INT32 is computed in float32 on some chips")
    return _as_operand(m.x, m.op)


def _keeps_shape(node: Node) -> bool:
    x = operand(node)
    # Two data-dependent extents, whose names begin with "?", may differ even if their names are equal.
    return x.shape == node.output.shape and not any("?" in str(extent) for extent in x.shape)


@rule(p((Extract, Pad, Repetition, Reshape), "x", name="op", where=_keeps_shape), stage="canonicalize")
def remove_shape_noop(graph: Graph, m: Match) -> Replacement:
    """Remove a reshape, pad, extract, tile or similar node that keeps the shape."""
    return _as_operand(m.x, m.op)


@rule(p(Concat, "x", name="op", where=lambda node: len(node.inputs) == 1), stage="canonicalize")
def remove_single_concat(graph: Graph, m: Match) -> Replacement:
    """``concat(x) -> x``."""
    return _as_operand(m.x, m.op)


@rule(p((Squeeze, ExpandDims), "x", name="op"), stage="canonicalize")
def convert_squeeze_to_reshape(graph: Graph, m: Match) -> Replacement:
    """``squeeze(x) -> reshape(x)`` and ``expand_dims(x) -> reshape(x)``."""
    return reshape_like(graph, m.x, m.op.output)


@rule(p(Reshape, p(Reshape, "x", name="first"), name="second"), stage="canonicalize")
def merge_reshapes(graph: Graph, m: Match) -> Replacement:
    """``reshape(reshape(x)) -> reshape(x)``."""
    return reshape_like(graph, m.x, m.second.output)


def _moves_only_unit_axes(node: Node) -> bool:
    assert isinstance(node.op, Permute)
    order = [axis for axis in node.op.order if operand(node).shape[axis] != 1]
    return order == sorted(order)


@rule(p(Permute, "x", name="op", where=_moves_only_unit_axes), stage="canonicalize")
def convert_unit_permute_to_reshape(graph: Graph, m: Match) -> Replacement:
    """``permute(x) -> reshape(x)`` if the order of the axes longer than 1 does not change."""
    if m.x.type == m.op.output.type:
        return m.x if is_interchangeable(m.x, m.op.output) else graph.add(Copy(), m.x)
    return reshape_like(graph, m.x, m.op.output)


def reshape_like(graph: Graph, x: Value, like: Value, name: str | None = None) -> Replacement:
    """Reshape x to the shape of another value. Decline if the new shape is not known at conversion time."""
    if 0 in like.shape:
        return Skip("it has no elements")  # reshape gives an extent of 0 a special meaning
    params = reshape_params(x.shape, like.shape)
    if params is None:
        return Skip("its shape is dynamic")
    return graph.add(Reshape(params), x, name=name)


def _as_operand(x: Value, node: Node) -> Replacement:
    return x if is_interchangeable(x, node.outputs[0]) else Skip("it changes the quantization")
