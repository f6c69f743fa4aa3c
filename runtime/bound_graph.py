"""A graph with open extents, in which they are numbers."""

from __future__ import annotations

from collections.abc import Mapping

from tpuconvert.schema.graph import Graph, Value
from tpuconvert.schema.types import Dim, TensorType


def are_open_at_inputs_only(graph: Graph) -> bool:
    """Whether every extent is known as soon as those of the inputs are, so that none depends on data."""
    extents = (extent for value in graph.values for extent in value.shape)
    return not any(isinstance(extent, str) and "?" in extent for extent in extents)


def bind(graph: Graph, extents: Mapping[str, int]) -> Graph:
    """A copy of a graph with numbers for the names of open extents. Operators, constants and names are shared.

    Raises:
        ShapeError: an operator cannot take these extents.
    """
    bound = Graph(graph.name, graph.file)
    bound.rescale = graph.rescale
    made: dict[Value, Value] = {}
    for value, port in zip(graph.inputs, graph.input_ports, strict=True):
        type_ = TensorType(value.dtype, tuple(_number(extent, extents) for extent in value.shape))
        made[value] = bound.input(value.name, type_, port, value.quant)
    for value in graph.values:
        if value.is_constant:
            made[value] = bound.constant(value.array, value.name, value.quant, value.stored)
    for node in graph.sorted_nodes():
        operands = [None if operand is None else made[operand] for operand in node.inputs]
        names = [value.name for value in node.outputs]
        results = bound.add_all(node.op, *operands, names=names, sources=node.sources)
        for value, result in zip(node.outputs, results, strict=True):
            result.quant = value.quant
            made[value] = result
    for value, port in zip(graph.outputs, graph.output_ports, strict=True):
        bound.output(made[value], port)
    return bound


def _number(extent: Dim, extents: Mapping[str, int]) -> Dim:
    return extents.get(extent, extent) if isinstance(extent, str) else extent
