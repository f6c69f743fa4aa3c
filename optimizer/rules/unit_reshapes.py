"""Reshapes that drop axes of one element move behind the operators that do not care.

A convolution over one axis becomes reshape, convolution over two, reshape; sums, functions and concatenations between
such convolutions then stand between reshapes. With r a reshape that only drops axes of one element:

- f(r(x)) = r(f(x)) for functions of one element;
- f(r(x), r(y)) = r(f(x, y)) for sums and their like, where in the place of r(y) may stand a constant, or a value that
  is reshaped the other way for others already;
- concat(r(x), r(y)) = r(concat(x, y)) along the axis that r makes of it.

A rule fires where it adds no reshape: where one that it passes has no other reader. Reshapes that meet cancel.
"""

from __future__ import annotations

from collections.abc import Sequence

from tpuconvert.optimizer.annotations import rounds
from tpuconvert.optimizer.engine import Replacement, Skip, rule
from tpuconvert.optimizer.pattern import Match, p
from tpuconvert.optimizer.rules.identity import reshape_like
from tpuconvert.schema.graph import Graph, Node, Value
from tpuconvert.schema.op import Op, Trait
from tpuconvert.schema.ops.concat import Concat
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.types import Shape


def axis_map(before: Shape, after: Shape) -> dict[int, int] | None:
    """For every axis after a reshape that is longer than 1 the axis before it, where it drops axes of one element."""
    longer = [[axis for axis, extent in enumerate(shape) if extent != 1] for shape in (before, after)]
    if [before[axis] for axis in longer[0]] != [after[axis] for axis in longer[1]] or len(before) <= len(after):
        return None
    return dict(zip(longer[1], longer[0], strict=True))


def _unit_reshape(value: Value | None) -> Node | None:
    """The reshape that makes a value, if it drops axes of one element and does nothing else."""
    node = None if value is None else value.producer
    if node is None or not isinstance(node.op, Reshape) or rounds(node) or 0 in node.output.shape:
        return None
    (x,) = node.inputs
    return node if x is not None and axis_map(x.shape, node.output.shape) is not None else None


def _has_unit_reshape(node: Node) -> bool:
    return any(_unit_reshape(value) is not None for value in node.inputs)


@rule(
    p((Trait.UNARY, Trait.BINARY), name="op", reads=Reshape, where=_has_unit_reshape),
    stage="layout",
    formerly="sink_reshape_through_function",
)
def sink_reshape_through_elementwise(graph: Graph, m: Match) -> Replacement:
    """f(r(x), r(y)) = r(f(x, y)) for functions of elements, where r drops axes of one element."""
    node: Node = m.op
    found = [reshape for reshape in map(_unit_reshape, node.inputs) if reshape is not None]
    full = [reshape for reshape in found if reshape.output.shape == node.output.shape]
    if not full:
        return Skip("what is reshaped is expanded")
    before = _shape_before(full[0])
    operands = [_as_before(graph, value, before, node.output.shape) for value in node.inputs]
    if any(value is None for value in operands):
        return Skip("the operands are not reshaped alike")
    if not any(graph.is_sole_use(reshape.output) for reshape in found):
        return Skip("the reshape has other readers")
    return _reshaped_behind(graph, node, node.op, operands)


def _shape_before(reshape: Node) -> Shape:
    (x,) = reshape.inputs
    assert x is not None
    return x.shape


def _as_before(graph: Graph, value: Value | None, before: Shape, after: Shape) -> Value | None:
    """An operand in the axes before the reshape, where that takes no operator."""
    reshape = _unit_reshape(value)
    if reshape is not None and _shape_before(reshape) == before and reshape.output.shape == after:
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
    """What a reshape makes of a value that others read in this shape."""
    others = (user for user in value.users if isinstance(user.op, Reshape) and not rounds(user))
    return next((user.output for user in others if user.output.shape == shape), None)


@rule(p(Concat, name="op", reads=Reshape, where=_has_unit_reshape), stage="layout")
def sink_reshape_through_concat(graph: Graph, m: Match) -> Replacement:
    """concat(r(x), r(y)) = r(concat(x, y)), where r drops axes of one element."""
    found = [_unit_reshape(value) for value in m.op.inputs]
    reshapes = [reshape for reshape in found if reshape is not None]
    maps = [axis_map(_shape_before(reshape), reshape.output.shape) for reshape in reshapes]
    ranks = {len(_shape_before(reshape)) for reshape in reshapes}
    axis = m.op.op.axis % m.op.output.rank
    if len(reshapes) < len(found) or len(ranks) > 1 or any(item != maps[0] for item in maps):
        return Skip("the operands are not reshaped alike")
    if maps[0] is None or axis not in maps[0]:
        return Skip("it joins along an axis of one element")
    if not any(graph.is_sole_use(reshape.output) for reshape in reshapes):
        return Skip("the reshapes have other readers")
    return _reshaped_behind(graph, m.op, Concat(maps[0][axis]), [reshape.inputs[0] for reshape in reshapes])


def _reshaped_behind(graph: Graph, node: Node, op: Op, operands: Sequence[Value | None]) -> Replacement:
    inner = graph.add(op, *operands, name=f"{node.output.name}:reshaped")
    inner.quant = node.output.quant
    return reshape_like(graph, inner, node.output)
