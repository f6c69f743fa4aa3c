"""Which float nodes decide integers: what they round differently could become a different integer later."""

from __future__ import annotations

from tpuconvert.schema.graph import Graph, Node


def deciding_nodes(graph: Graph) -> set[Node]:
    """Nodes with float results from which some node with float operands and integer results is reached.

    Kernels add their sums for these in binary64, as the references do, so that both round alike.
    """
    deciding: set[Node] = set()
    for node in reversed(graph.sorted_nodes()):
        if node in deciding or any(value.dtype.is_integer for value in node.outputs):
            for value in node.inputs:
                if value is not None and value.dtype.is_float and value.producer is not None:
                    deciding.add(value.producer)
    return deciding
