"""Slices of concats, and concats of slices.

- A slice that is within one operand of a concat reads this operand: the concat may lose a user.
- ``concat(x[0:2], x[2:5]) -> x[0:5]`` along the concat axis, with equal ranges on all other axes; x if it is all of x.
"""

from __future__ import annotations

import dataclasses

from tpuconvert.optimizer.annotations import rounds
from tpuconvert.optimizer.engine import Replacement, Skip, rule
from tpuconvert.optimizer.pattern import Match, p
from tpuconvert.schema.graph import Graph, Node, Value
from tpuconvert.schema.ops.concat import Concat
from tpuconvert.schema.ops.copy import Copy
from tpuconvert.schema.ops.extract import Extract


@rule(
    p(Extract, p(Concat, name="concat"), name="op"),
    stage="canonicalize",
    sees_annotations=True,
    formerly="slice_of_concat",
)
def hoist_slice_above_concat(graph: Graph, m: Match) -> Replacement:
    """``slice(concat(a, b)) -> slice(a)`` if the slice is within one operand."""
    op, joined = m.op.op, m.concat.output
    axis = m.concat.op.axis % joined.rank
    begin = 0
    for value in m.concat.inputs:
        extent = value.shape[axis]
        if not isinstance(extent, int):
            break
        if begin <= op.start[axis] and op.end[axis] <= begin + extent:
            if value.quant != joined.quant:
                return Skip("the concat changes the quantization")
            start, end = list(op.start), list(op.end)
            start[axis] -= begin
            end[axis] -= begin
            return graph.add(Extract(tuple(start), tuple(end), op.stride), value)
        begin += extent
    return Skip("it reads several operands")


def _slices(node: Node) -> list[Node]:
    """The slices of one tensor that a concat joins; empty if it has another operand."""
    found = [value.producer for value in node.inputs if value is not None and value.producer is not None]
    alike = [item for item in found if isinstance(item.op, Extract) and item.inputs[0] is found[0].inputs[0]]
    return alike if len(alike) == len(node.inputs) else []


def _joins_neighbours(node: Node) -> bool:
    parts = _slices(node)
    return len(parts) > 1 and _joint_slice(node, parts) is not None


def _joint_slice(node: Node, parts: list[Node]) -> Extract | None:
    """The slice equal to all parts together, if each begins where the one before ends."""
    assert isinstance(node.op, Concat)
    axis = node.op.axis % node.outputs[0].rank
    whole = parts[0].op
    assert isinstance(whole, Extract)
    for part in parts[1:]:
        following = part.op
        assert isinstance(following, Extract)
        start, end = list(following.start), list(following.end)
        step = following.stride[axis]
        is_next = start[axis] == whole.end[axis] and (whole.end[axis] - whole.start[axis]) % step == 0
        start[axis] = whole.start[axis]
        end[axis] = whole.end[axis]
        if not is_next or whole != Extract(tuple(start), tuple(end), following.stride):
            return None
        end[axis] = following.end[axis]
        whole = dataclasses.replace(whole, end=tuple(end))
    return whole


@rule(p(Concat, name="op", reads=Extract, where=_joins_neighbours), stage="canonicalize", formerly="join_of_slices")
def merge_adjacent_slices(graph: Graph, m: Match) -> Replacement:
    """``concat(x[a:b], x[b:c]) -> x[a:c]``."""
    parts = _slices(m.op)
    whole = _joint_slice(m.op, parts)
    x: Value | None = parts[0].inputs[0]
    assert whole is not None and x is not None
    if any(rounds(part) for part in parts) or m.op.output.quant != x.quant:
        return Skip("it changes the quantization")
    if m.op.output.type == x.type and not any(whole.start) and set(whole.stride) == {1}:
        return graph.add(Copy(), x)  # remove_shape_noop removes it, if the annotations allow it
    return graph.add(whole, x)
