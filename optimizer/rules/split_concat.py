"""Splits with at most one used result, and concats of concats or of all results of a split."""

from __future__ import annotations

from tpuconvert.optimizer.engine import Replacement, Skip, rule
from tpuconvert.optimizer.pattern import Match, p
from tpuconvert.schema.graph import Graph, Node, Value
from tpuconvert.schema.ops.concat import Concat, Split
from tpuconvert.schema.ops.copy import Copy
from tpuconvert.schema.ops.extract import Extract


def _has_at_most_one_user(node: Node) -> bool:
    return sum(bool(part.uses) for part in node.outputs) <= 1


@rule(p(Split, "x", name="split", where=_has_at_most_one_user), stage="canonicalize", formerly="split_with_one_reader")
def convert_split_to_extract(graph: Graph, m: Match) -> Replacement:
    """``split(x) -> extract(x)`` if one result is used; x if the split has one result."""
    parts: list[Value] = list(m.split.outputs)
    read = [index for index, part in enumerate(parts) if part.uses or graph.is_output(part)]
    if len(read) != 1:
        return Skip("not exactly one result is used")
    if not m.x.type.is_static:
        return Skip("its shape is dynamic")
    (wanted,) = read
    axis = m.split.op.axis % m.x.rank
    shape = m.x.type.static_shape
    first = sum(part.type.static_shape[axis] for part in parts[:wanted])
    start = tuple(first if k == axis else 0 for k in range(len(shape)))
    extents = parts[wanted].type.static_shape
    if 0 in extents:
        return Skip("the part has no elements")
    end = tuple(a + extent for a, extent in zip(start, extents, strict=True))
    results: list[Value | None] = [None] * len(parts)
    results[wanted] = graph.add(Copy() if extents == shape else Extract(start, end, (1,) * len(shape)), m.x)
    return tuple(results)


def _concatenates_all_results(node: Node) -> bool:
    first = node.inputs[0]
    split = None if first is None else first.producer
    return split is not None and isinstance(split.op, Split) and node.inputs == split.outputs


@rule(
    p(Concat, p(Split, "x", name="split"), name="concat", where=_concatenates_all_results),
    stage="canonicalize",
    formerly="join_of_all_parts",
)
def remove_concat_of_split(graph: Graph, m: Match) -> Replacement:
    """``concat(split(x)) -> x``."""
    if m.concat.op.axis % m.x.rank != m.split.op.axis % m.x.rank:
        return Skip("the split and concat axes differ")
    if any(value.quant != m.x.quant for value in (*m.split.outputs, *m.concat.outputs)):
        return Skip("it changes the quantization")
    return m.x  # type: ignore[no-any-return]  # bound by the pattern


@rule(p(Concat, name="outer", reads=Concat), stage="canonicalize")
def merge_concats(graph: Graph, m: Match) -> Replacement:
    """``concat(concat(a, b), c) -> concat(a, b, c)`` along one axis."""
    outer, rank = m.outer, m.outer.output.rank
    axis = outer.op.axis % rank
    operands: list[Value] = []
    sources = list(outer.sources)
    for value in outer.inputs:
        node = value.producer
        joins = node is not None and isinstance(node.op, Concat) and node.op.axis % rank == axis
        if node is not None and joins and graph.is_sole_use(value) and value.quant in (None, outer.output.quant):
            operands += node.inputs
            sources += node.sources
        else:
            operands.append(value)
    if len(operands) == len(outer.inputs):
        return Skip("the inner concat has other users, another axis or another scale")
    return graph.add(Concat(outer.op.axis), *operands, sources=tuple(dict.fromkeys(sources)))
