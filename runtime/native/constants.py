"""Removal of ``constdata``, which copies a constant to a tensor: the engine reads the constant itself."""

from __future__ import annotations

from tpuconvert.schema.graph import Graph
from tpuconvert.schema.graph_copy import copy_graph
from tpuconvert.schema.ops.copy import Constdata


def remove_constdata(graph: Graph) -> Graph:
    """Return a copy in which users of ``constdata`` read its constant, or the graph itself without ``constdata``.

    Kernels pack constants when the plan is made. A ``constdata`` whose result is a graph output is not removed.
    """
    if not any(isinstance(node.op, Constdata) for node in graph.nodes):
        return graph
    graph = copy_graph(graph)
    for node in graph.nodes:
        constant = node.inputs[0] if isinstance(node.op, Constdata) else None
        if constant is not None and not graph.is_output(node.output):
            graph.replace_uses(node.output, constant)
            graph.remove(node)
    return graph
