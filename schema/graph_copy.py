"""Copies of a graph, optionally with integers in place of symbolic extents."""

from __future__ import annotations

from collections.abc import Mapping

from tpuconvert.schema.graph import Graph, Value
from tpuconvert.schema.types import Dim, TensorType


def copy_graph(graph: Graph, extents: Mapping[str, int] | None = None) -> Graph:
    """Copy nodes and values under the same names. The data of constants are shared.

    Args:
        graph: not modified.
        extents: integers that replace symbolic extents; the types of all results are inferred again.

    Raises:
        ShapeError: an operator does not accept these extents.

    """
    copy = Graph(graph.name, graph.file)
    copy.rescale, copy.notes = graph.rescale, list(graph.notes)
    twin: dict[Value, Value] = {}
    for value, port in zip(graph.inputs, graph.input_ports, strict=True):
        type_ = TensorType(value.dtype, tuple(_number(extent, extents or {}) for extent in value.shape))
        twin[value] = copy.input(value.name, type_, port, value.quant)
    for value in graph.values:
        if value.is_constant:
            twin[value] = copy.constant(value.array, value.name, value.quant, value.stored)
    for node in graph.sorted_nodes():
        operands = [None if value is None else twin[value] for value in node.inputs]
        names = [value.name for value in node.outputs]
        results = copy.add_all(node.op, *operands, names=names, sources=node.sources)
        for old, new in zip(node.outputs, results, strict=True):
            new.quant = old.quant
            if extents is None:
                new.type = old.type
            twin[old] = new
    for value, port in zip(graph.outputs, graph.output_ports, strict=True):
        copy.output(twin[value], port)
    return copy


def _number(extent: Dim, extents: Mapping[str, int]) -> Dim:
    return extents.get(extent, extent) if isinstance(extent, str) else extent
