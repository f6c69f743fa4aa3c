"""Nodes that change nothing, and shape changes in one spelling.

Every squeeze and expand_dims becomes a reshape where one can say it, so that rules about reshapes see all of them.
"""

from __future__ import annotations

from tpuconvert.optimizer.annotations import is_interchangeable
from tpuconvert.optimizer.elementwise import may_round_integers
from tpuconvert.optimizer.engine import Replacement, Skip, rule
from tpuconvert.optimizer.pattern import Match, p
from tpuconvert.schema.graph import Graph, Node, Value
from tpuconvert.schema.ops.arithmetic_with_scalar import Adds, Divs, Muls, Subs
from tpuconvert.schema.ops.concat import Concat
from tpuconvert.schema.ops.copy import Copy
from tpuconvert.schema.ops.extract import Extract
from tpuconvert.schema.ops.pad import Pad
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.shape_change import ExpandDims, Reshape, Squeeze, reshape_params
from tpuconvert.schema.ops.tile import Repetition


@rule(p(Copy, "x", name="copy"), stage="canonicalize")
def remove_copy(graph: Graph, m: Match) -> Replacement:
    """copy(x) = x."""
    return _as_operand(m.x, m.copy)


def _is_neutral(node: Node) -> bool:
    assert isinstance(node.op, (Adds, Subs, Muls, Divs))
    return node.op.scalar.value == (0 if isinstance(node.op, (Adds, Subs)) else 1)


@rule(p((Adds, Subs, Muls, Divs), "x", name="op", where=_is_neutral), stage="canonicalize")
def remove_neutral_scalar(graph: Graph, m: Match) -> Replacement:
    """X + 0 = x - 0 = x * 1 = x / 1 = x."""
    if may_round_integers(m.op):
        return Skip("INT32 is rounded to binary32 on some chips")
    return _as_operand(m.x, m.op)


def _keeps_shape(node: Node) -> bool:
    (x,) = node.inputs
    # Extents that depend on data begin with "?" and may differ though they are spelled alike.
    return x is not None and x.shape == node.output.shape and not any("?" in str(extent) for extent in x.shape)


@rule(
    p((Extract, Pad, Repetition, Reshape), "x", name="op", where=_keeps_shape),
    stage="canonicalize",
    formerly="remove_same_shape",
)
def remove_shape_noop(graph: Graph, m: Match) -> Replacement:
    """These operators do nothing when they keep the shape: no padding, the whole range, one repetition."""
    return _as_operand(m.x, m.op)


@rule(p(Concat, "x", name="op", where=lambda node: len(node.inputs) == 1), stage="canonicalize")
def remove_single_concat(graph: Graph, m: Match) -> Replacement:
    """concat(x) = x."""
    return _as_operand(m.x, m.op)


@rule(p((Squeeze, ExpandDims), "x", name="op"), stage="canonicalize", formerly="spell_as_reshape")
def convert_squeeze_to_reshape(graph: Graph, m: Match) -> Replacement:
    """Squeeze and expand_dims are reshapes."""
    return reshape_like(graph, m.x, m.op.output)


@rule(p(Reshape, p(Reshape, "x", name="first"), name="second"), stage="canonicalize")
def merge_reshapes(graph: Graph, m: Match) -> Replacement:
    """reshape(reshape(x)) = reshape(x)."""
    return reshape_like(graph, m.x, m.second.output)


def _moves_only_ones(node: Node) -> bool:
    (x,) = node.inputs
    assert x is not None and isinstance(node.op, Permute)
    order = [axis for axis in node.op.order if x.shape[axis] != 1]
    return order == sorted(order)


@rule(p(Permute, "x", name="op", where=_moves_only_ones), stage="canonicalize", formerly="permute_of_ones")
def convert_unit_permute_to_reshape(graph: Graph, m: Match) -> Replacement:
    """A permute that keeps the order of the axes that are longer than 1 moves no element."""
    if m.x.type == m.op.output.type:
        return m.x if is_interchangeable(m.x, m.op.output) else graph.add(Copy(), m.x)
    return reshape_like(graph, m.x, m.op.output)


def reshape_like(graph: Graph, x: Value, like: Value, name: str | None = None) -> Replacement:
    """X in the shape of another value, as long as a reshape can say it."""
    if 0 in like.shape:
        return Skip("it has no elements")  # an extent of 0 means another thing to reshape
    params = reshape_params(x.shape, like.shape)
    if params is None:
        return Skip("its shape is not known before the model runs")
    return graph.add(Reshape(params), x, name=name)


def _as_operand(x: Value, node: Node) -> Replacement:
    return x if is_interchangeable(x, node.outputs[0]) else Skip("it changes the quantization")
