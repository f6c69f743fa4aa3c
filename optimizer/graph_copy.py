"""A second graph that computes the same, to try something on."""

from __future__ import annotations

from tpuconvert.schema.graph import Graph, Value


def copied(graph: Graph) -> Graph:
    """The graph with nodes and values of its own, under the same names. The data of constants are shared."""
    copy = Graph(graph.name, graph.file)
    copy.rescale, copy.notes = graph.rescale, list(graph.notes)
    twin: dict[Value, Value] = {}
    for value, port in zip(graph.inputs, graph.input_ports, strict=True):
        twin[value] = copy.input(value.name, value.type, port, value.quant)
    for value in graph.values:
        if value.is_constant:
            twin[value] = copy.constant(value.array, value.name, value.quant, value.stored)
    for node in graph.sorted_nodes():
        operands = [None if value is None else twin[value] for value in node.inputs]
        names = [value.name for value in node.outputs]
        for old, new in zip(
            node.outputs, copy.add_all(node.op, *operands, names=names, sources=node.sources), strict=True
        ):
            new.type, new.quant = old.type, old.quant
            twin[old] = new
    for value, port in zip(graph.outputs, graph.output_ports, strict=True):
        copy.output(twin[value], port)
    return copy
