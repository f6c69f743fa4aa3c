"""Hoisting of equal data movement of all results of a split above the split.

Queries, keys and values of attention are often computed by one layer, then split and reshaped to heads. This becomes
one reshape, followed by a split along the axis of the heads. A permute of each part becomes one permute.

- split(x) into parts [O, c_i, I], each reshaped to [O.., k_i, ..], is reshape(x) to [O.., sum(k_i), ..], split along
  that axis: for each outer index, the parts are adjacent in memory in both cases.
- Equally permuted parts are parts of the permuted tensor. The rule declines if ``sink_permute_through_split`` would
  reverse it.
"""

from __future__ import annotations

import dataclasses
import math

from tpuconvert.optimizer.engine.annotations import rounds
from tpuconvert.optimizer.engine.engine import Replacement, Skip, rule
from tpuconvert.optimizer.engine.pattern import Match, Pattern, p
from tpuconvert.optimizer.rules.permutes import inverse, permutes_go_on
from tpuconvert.schema.definition.op import Op
from tpuconvert.schema.graph.graph import Graph, Node, Value
from tpuconvert.schema.ops.concat import Split
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.shape_change import Reshape


def _movers(node: Node, op: type[Op]) -> list[Node]:
    """Return the sole users of the results; empty if a result has no user, several users or one of another operator."""
    if any(len(part.uses) != 1 for part in node.outputs):
        return []
    users = [user for part in node.outputs for user, _ in part.uses]
    return users if all(isinstance(user.op, op) for user in users) else []


def _moved_split(op: type[Op]) -> Pattern:
    """Pattern of a split whose results all have a sole user with this operator."""
    return p(Split, "x", name="split", where=lambda node: len(node.outputs) > 1 and bool(_movers(node, op)), next_to=op)


def _why_not(graph: Graph, node: Node, movers: list[Node]) -> str:
    if any(graph.is_output(part) for part in node.outputs):
        return "a result of the split is a graph output"
    return "the source file quantizes a result of the split" if any(rounds(item) for item in (node, *movers)) else ""


@rule(_moved_split(Reshape), stage="fuse", sees_annotations=True)
def hoist_reshape_above_split(graph: Graph, m: Match) -> Replacement:
    """``reshape(split(x)) -> split(reshape(x))`` if all results are reshaped alike."""
    movers = _movers(m.split, Reshape)
    if reason := _why_not(graph, m.split, movers):
        return Skip(reason)
    values = [m.x, *(node.output for node in movers)]
    if any(not value.type.is_static or 0 in value.shape for value in values):
        return Skip("a shape is dynamic")
    shapes = [node.output.type.static_shape for node in movers]
    outer = math.prod(m.x.type.static_shape[: m.split.op.axis % m.x.rank])
    axis = _cut_axis(shapes, outer)
    if axis is None:
        return Skip("no single reshape contains all results along one axis")
    sizes = tuple(shape[axis] for shape in shapes)
    reshaped = graph.add(
        Reshape((*shapes[0][:axis], sum(sizes), *shapes[0][axis + 1 :])), m.x, name=f"{m.x.name}:parts"
    )
    return _split(graph, m, reshaped, Split(axis, len(sizes), sizes), movers)


def _cut_axis(shapes: list[tuple[int, ...]], outer: int) -> int | None:
    """Return the axis that concatenates tensors of these shapes, with ``outer`` elements in the axes before it."""
    first = shapes[0]
    if any(len(shape) != len(first) for shape in shapes):
        return None
    for axis in range(len(first)):
        others = {(shape[:axis], shape[axis + 1 :]) for shape in shapes}
        if math.prod(first[:axis]) == outer and len(others) == 1 and (first[axis] != 1 or axis == len(first) - 1):
            return axis
    return None


@rule(_moved_split(Permute), stage="fuse", sees_annotations=True)
def hoist_permute_above_split(graph: Graph, m: Match) -> Replacement:
    """``permute(split(x)) -> split(permute(x))`` if all results are permuted alike."""
    movers = _movers(m.split, Permute)
    if reason := _why_not(graph, m.split, movers):
        return Skip(reason)
    orders = {node.op.order for node in movers if isinstance(node.op, Permute)}
    if len(orders) > 1:
        return Skip("the results are not all permuted alike")
    (order,) = orders
    if permutes_go_on([node.output for node in movers], order):
        return Skip("the permutes can sink further")
    permuted = graph.add(Permute(order), m.x, name=f"{m.x.name}:permuted")
    op = dataclasses.replace(m.split.op, axis=inverse(order)[m.split.op.axis % m.x.rank])
    return _split(graph, m, permuted, op, movers)


def _split(graph: Graph, m: Match, moved: Value, op: Split, movers: list[Node]) -> Replacement:
    """Split the moved tensor. Map the results of the old nodes to the new parts."""
    moved.quant = m.x.quant
    parts = graph.add_all(op, moved, names=[node.name for node in movers])
    return {node.output: part for node, part in zip(movers, parts, strict=True)}
