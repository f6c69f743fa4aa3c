"""Removal of operators with constant results: the engine reads the constants themselves."""

from __future__ import annotations

from tpuconvert.schema.graph.graph import Graph, Node, Value
from tpuconvert.schema.graph.graph_copy import copy_graph
from tpuconvert.schema.ops.copy import Constdata
from tpuconvert.schema.ops.positions import Positions


def remove_constdata(graph: Graph) -> Graph:
    """Return a copy in which users of ``constdata`` and ``positions`` read constants, or the graph itself without both.

    Kernels pack constants when the plan is made. An operator whose result is a graph output is not removed, nor are the
    positions of a symbolic extent.
    """
    if not any(isinstance(node.op, (Constdata, Positions)) for node in graph.nodes):
        return graph
    graph = copy_graph(graph)
    for node in graph.nodes:
        if isinstance(node.op, (Constdata, Positions)) and not graph.is_output(node.output):
            constant = _constant(graph, node)
            if constant is not None:
                graph.replace_uses(node.output, constant)
                graph.remove(node)
    return graph


def _constant(graph: Graph, node: Node) -> Value | None:
    """Return the result of a node as a constant, or None if it is not constant."""
    (x,) = node.inputs
    assert x is not None, "both operators have one operand"
    if isinstance(node.op, Positions):
        return node.op.expand(graph, x)[0] if all(isinstance(extent, int) for extent in x.shape) else None
    return x
