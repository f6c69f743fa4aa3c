"""Sinking of reshapes that drop unit axes, and hoisting of unary operators above a reshape.

Operators that only support 4-D tensors are surrounded by reshapes. ``reshape(f(g(reshape(x)))) -> reshape(f(g(x)))``
removes the inner reshape, and the outer one too if it restores the shape of x.

A 1-D convolution becomes reshape, 2-D convolution, reshape; element-wise operators and concats between such
convolutions then have a reshape on both sides. With a reshape r that only drops unit axes:

- ``f(r(x)) -> r(f(x))`` for unary operators;
- ``f(r(x), r(y)) -> r(f(x, y))`` for binary operators; instead of r(y) there may be a constant, or a value that already
  has a reshape to the shape of x;
- ``concat(r(x), r(y)) -> r(concat(x, y))`` along the corresponding axis.

A rule fires only if it adds no reshape, that is, if one of the moved reshapes has no other user. Adjacent reshapes are
merged.
"""

from __future__ import annotations

from collections.abc import Sequence

from tpuconvert.optimizer.engine.annotations import rounds
from tpuconvert.optimizer.engine.engine import Replacement, Skip, rule
from tpuconvert.optimizer.engine.node_properties import operand
from tpuconvert.optimizer.engine.pattern import Match, p
from tpuconvert.optimizer.rules.identity import reshape_like
from tpuconvert.schema.definition.op import Op, Trait
from tpuconvert.schema.graph.graph import Graph, Node, Value
from tpuconvert.schema.ops.concat import Concat
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.types import Shape


def axis_map(before: Shape, after: Shape) -> dict[int, int] | None:
    """Map each axis longer than 1 after a reshape to its axis before it; None if not only unit axes are dropped."""
    longer = [[axis for axis, extent in enumerate(shape) if extent != 1] for shape in (before, after)]
    if [before[axis] for axis in longer[0]] != [after[axis] for axis in longer[1]] or len(before) <= len(after):
        return None
    return dict(zip(longer[1], longer[0], strict=True))


def _unit_reshape(value: Value | None) -> Node | None:
    """Return the reshape that computes a value, or None if it does not only drop unit axes."""
    node = None if value is None else value.producer
    if node is None or not isinstance(node.op, Reshape) or rounds(node) or 0 in node.output.shape:
        return None
    return node if axis_map(operand(node).shape, node.output.shape) is not None else None


def _has_unit_reshape(node: Node) -> bool:
    return any(_unit_reshape(value) is not None for value in node.inputs)


@rule(p((Trait.UNARY, Trait.BINARY), name="op", reads=Reshape, where=_has_unit_reshape), stage="layout")
def sink_reshape_through_elementwise(graph: Graph, m: Match) -> Replacement:
    """``f(r(x), r(y)) -> r(f(x, y))`` for element-wise f and a reshape r that drops unit axes."""
    node: Node = m.op
    reshapes = [reshape for reshape in map(_unit_reshape, node.inputs) if reshape is not None]
    full = [reshape for reshape in reshapes if reshape.output.shape == node.output.shape]
    if not full:
        return Skip("the reshaped operand is broadcast")
    before = operand(full[0]).shape
    operands = [_as_before(graph, value, before, node.output.shape) for value in node.inputs]
    if any(value is None for value in operands):
        return Skip("the operands do not all have the same reshape")
    if not any(graph.is_sole_use(reshape.output) for reshape in reshapes):
        return Skip("the reshape has other users")
    return _existing_reshape(graph, node, node.op, operands)


def _as_before(graph: Graph, value: Value | None, before: Shape, after: Shape) -> Value | None:
    """Return an operand in the shape before the reshape, or None if that would need an additional node."""
    reshape = _unit_reshape(value)
    if reshape is not None and operand(reshape).shape == before and reshape.output.shape == after:
        return reshape.inputs[0]
    axes = axis_map(before, after)
    if value is None or axes is None or value.rank != len(after):
        return None
    if not value.is_constant:
        return _with_axes(value, before) if value.shape == after else None
    if any(extent != 1 and axis not in axes for axis, extent in enumerate(value.array.shape)):
        return None
    if value.quant is not None and value.quant.axis is not None:
        return None
    shape = [1] * len(before)
    for axis, earlier in axes.items():
        shape[earlier] = value.array.shape[axis]
    stored = None if value.stored is None else value.stored.reshape(shape)
    return graph.constant(value.array.reshape(shape), value.name, value.quant, stored)


def _with_axes(value: Value, shape: Shape) -> Value | None:
    """Return an existing reshape of a value to this shape, or None."""
    others = (user for user in value.users if isinstance(user.op, Reshape) and not rounds(user))
    return next((user.output for user in others if user.output.shape == shape), None)


@rule(p(Concat, name="op", reads=Reshape, where=_has_unit_reshape), stage="layout")
def sink_reshape_through_concat(graph: Graph, m: Match) -> Replacement:
    """``concat(r(x), r(y)) -> r(concat(x, y))`` for a reshape r that drops unit axes."""
    candidates = [_unit_reshape(value) for value in m.op.inputs]
    reshapes = [reshape for reshape in candidates if reshape is not None]
    maps = [axis_map(operand(reshape).shape, reshape.output.shape) for reshape in reshapes]
    ranks = {len(operand(reshape).shape) for reshape in reshapes}
    axis = m.op.op.axis % m.op.output.rank
    if len(reshapes) < len(candidates) or len(ranks) > 1 or any(item != maps[0] for item in maps):
        return Skip("the operands do not all have the same reshape")
    if maps[0] is None or axis not in maps[0]:
        return Skip("it concatenates along a unit axis")
    if not any(graph.is_sole_use(reshape.output) for reshape in reshapes):
        return Skip("the reshapes have other users")
    return _existing_reshape(graph, m.op, Concat(maps[0][axis]), [reshape.inputs[0] for reshape in reshapes])


def _existing_reshape(graph: Graph, node: Node, op: Op, operands: Sequence[Value | None]) -> Replacement:
    inner = graph.add(op, *operands, name=f"{node.output.name}:reshaped")
    inner.quant = node.output.quant
    return reshape_like(graph, inner, node.output)


_LONGEST = 16


def _chain(node: Node) -> list[Node]:
    """Return the unary operators between two reshapes, the last one first; empty if there is no chain."""
    chain: list[Node] = []
    value = operand(node)
    while len(value.uses) == 1 and len(chain) <= _LONGEST:
        producer = value.producer
        if producer is None or rounds(producer):
            return []
        if isinstance(producer.op, Reshape):
            return chain
        if Trait.UNARY not in producer.op.traits:
            return []
        chain.append(producer)
        value = operand(producer)
    return []


def _ends_a_chain(node: Node) -> bool:
    return bool(_chain(node))


@rule(
    p(Reshape, p(Trait.UNARY, name="last", sole_user=True), name="reshape", where=_ends_a_chain), stage="canonicalize"
)
def hoist_unary_chain_above_reshape(graph: Graph, m: Match) -> Replacement:
    """``reshape(f(reshape(x))) -> reshape(f(x))`` for a chain f of element-wise unary operators."""
    chain = _chain(m.reshape)
    if not all(graph.is_sole_use(node.outputs[0]) for node in chain):
        return Skip("a value between them is a graph output")
    inner = operand(chain[-1]).producer
    assert inner is not None
    x = operand(inner)
    for node in reversed(chain):
        x = graph.add(node.op, x, name=f"{node.outputs[0].name}:reshaped")
    return x if x.type == m.reshape.output.type else reshape_like(graph, x, m.reshape.output)
