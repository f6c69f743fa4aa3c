"""Constants that ``constdata`` makes tensors: for a chip they differ, for the engine they are the same memory."""

from __future__ import annotations

from tpuconvert.schema.graph import Graph
from tpuconvert.schema.graph_copy import copy_graph
from tpuconvert.schema.ops.copy import Constdata


def reading_constants(graph: Graph) -> Graph:
    """A copy in which nodes read the constants themselves, or the graph where there is no ``constdata``.

    Kernels prepare constants when the plan is made. A result of ``constdata`` that leaves the graph stays one.
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
