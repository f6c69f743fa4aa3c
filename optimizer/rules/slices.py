"""Simplification of slices, splits and concats that use each other's results.

- A split with one used result is a slice. A concat of all results of a split is the operand of the split, and nested
  concats along one axis are one concat.
- A slice that is within one operand of a concat is replaced by a slice of this operand.
- ``concat(x[0:2], x[2:5]) -> x[0:5]`` along the concat axis, with equal ranges on all other axes; the result is x
  itself if the range is complete.
"""

from __future__ import annotations

import dataclasses

from tpuconvert.optimizer.engine.annotations import rounds
from tpuconvert.optimizer.engine.engine import Replacement, Skip, rule
from tpuconvert.optimizer.engine.node_properties import operand, operands
from tpuconvert.optimizer.engine.pattern import Match, p
from tpuconvert.schema.graph.graph import Graph, Node, Value
from tpuconvert.schema.ops.concat import Concat, Split
from tpuconvert.schema.ops.copy import Copy
from tpuconvert.schema.ops.extract import Extract


@rule(p(Extract, p(Concat, name="concat"), name="op"), stage="canonicalize", sees_annotations=True)
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
    """Return the slices of one tensor that a concat joins; empty if it has other operands too."""
    producers = [value.producer for value in operands(node) if value.producer is not None]
    alike = [item for item in producers if isinstance(item.op, Extract) and item.inputs[0] is producers[0].inputs[0]]
    return alike if len(alike) == len(node.inputs) else []


def _joint_slice(node: Node) -> Extract | None:
    """Return the slice that equals the concatenated slices, or None if they are not adjacent in this order."""
    parts = _slices(node)
    if len(parts) < 2:
        return None
    assert isinstance(node.op, Concat)
    axis = node.op.axis % node.outputs[0].rank
    joint_op = parts[0].op
    assert isinstance(joint_op, Extract)
    for part in parts[1:]:
        following = part.op
        assert isinstance(following, Extract)
        start, end = list(following.start), list(following.end)
        step = following.stride[axis]
        is_next = start[axis] == joint_op.end[axis] and (joint_op.end[axis] - joint_op.start[axis]) % step == 0
        start[axis] = joint_op.start[axis]
        end[axis] = joint_op.end[axis]
        if not is_next or joint_op != Extract(tuple(start), tuple(end), following.stride):
            return None
        end[axis] = following.end[axis]
        joint_op = dataclasses.replace(joint_op, end=tuple(end))
    return joint_op


@rule(p(Concat, name="op", reads=Extract, where=lambda node: _joint_slice(node) is not None), stage="canonicalize")
def merge_adjacent_slices(graph: Graph, m: Match) -> Replacement:
    """``concat(x[a:b], x[b:c]) -> x[a:c]``."""
    parts, joint_op = _slices(m.op), _joint_slice(m.op)
    assert joint_op is not None
    x = operand(parts[0])
    if any(rounds(part) for part in parts) or m.op.output.quant != x.quant:
        return Skip("it changes the quantization")
    if m.op.output.type == x.type and not any(joint_op.start) and set(joint_op.stride) == {1}:
        return graph.add(Copy(), x)  # remove_shape_noop removes the copy if the annotations allow it.
    return graph.add(joint_op, x)


def _has_at_most_one_user(node: Node) -> bool:
    return sum(bool(part.uses) for part in node.outputs) <= 1


@rule(p(Split, "x", name="split", where=_has_at_most_one_user), stage="canonicalize")
def convert_split_to_extract(graph: Graph, m: Match) -> Replacement:
    """``split(x) -> extract(x)`` if one result is used; x if the split has one result."""
    parts: list[Value] = list(m.split.outputs)
    read = [index for index, part in enumerate(parts) if part.uses or graph.is_output(part)]
    if len(read) != 1:
        return Skip("not exactly one result is used")
    if not m.x.type.is_static:
        return Skip("its shape is dynamic")
    (part_index,) = read
    axis = m.split.op.axis % m.x.rank
    shape = m.x.type.static_shape
    first = sum(part.type.static_shape[axis] for part in parts[:part_index])
    start = tuple(first if k == axis else 0 for k in range(len(shape)))
    extents = parts[part_index].type.static_shape
    if 0 in extents:
        return Skip("the part has no elements")
    end = tuple(a + extent for a, extent in zip(start, extents, strict=True))
    results: list[Value | None] = [None] * len(parts)
    results[part_index] = graph.add(Copy() if extents == shape else Extract(start, end, (1,) * len(shape)), m.x)
    return tuple(results)


def _concatenates_all_results(node: Node) -> bool:
    split = operand(node).producer
    return split is not None and isinstance(split.op, Split) and node.inputs == split.outputs


@rule(p(Concat, p(Split, "x", name="split"), name="concat", where=_concatenates_all_results), stage="canonicalize")
def remove_concat_of_split(graph: Graph, m: Match) -> Replacement:
    """``concat(split(x)) -> x``."""
    if m.concat.op.axis % m.x.rank != m.split.op.axis % m.x.rank:
        return Skip("the split and concat axes differ")
    if any(value.quant != m.x.quant for value in (*m.split.outputs, *m.concat.outputs)):
        return Skip("it changes the quantization")
    return m.x  # type: ignore[no-any-return]  # bound by the pattern


@rule(p(Concat, name="outer", reads=Concat), stage="canonicalize")
def merge_concats(graph: Graph, m: Match) -> Replacement:
    """``concat(concat(a, b), c) -> concat(a, b, c)`` along one axis, for all inner concats at once."""
    outer, y = m.outer, m.outer.output
    if not any(_is_part_of(graph, value, outer) for value in outer.inputs):
        return Skip("the inner concat has other users, another axis or another scale")
    if graph.is_sole_use(y) and _is_part_of(graph, y, y.users[0]):
        # From the inside out, the operands of a long chain would be copied once for each of its concats.
        return Skip("the next concat merges it")
    parts: list[Value] = []
    sources = list(outer.sources)
    left = [(value, outer) for value in reversed(outer.inputs)]
    while left:
        value, node = left.pop()
        if _is_part_of(graph, value, node):
            left += [(part, value.producer) for part in reversed(value.producer.inputs)]
            sources += value.producer.sources
        else:
            parts.append(value)
    return graph.add(Concat(outer.op.axis), *parts, sources=tuple(dict.fromkeys(sources)))


def _is_part_of(graph: Graph, value: Value, outer: Node) -> bool:
    """Return True if a value is computed by a concat that can be merged into ``outer``, one of its users."""
    inner = value.producer
    return (
        inner is not None
        and isinstance(inner.op, Concat)
        and isinstance(outer.op, Concat)
        and inner.op.axis % value.rank == outer.op.axis % value.rank
        and graph.is_sole_use(value)
        and value.quant in (None, outer.outputs[0].quant)
    )
