"""Memory of the tensors of a run that are live at one time, from the shapes in a graph."""

from __future__ import annotations

import math
from typing import NamedTuple

from tpuconvert.schema.graph.graph import Graph, Node, Value


class Excess(NamedTuple):
    """A node at which the live tensors take too much memory, in bytes."""

    node: Node
    size: int


def find_excess(graph: Graph, allowed: int) -> Excess | None:
    """Return the first node at which the live results of nodes take more than ``allowed`` bytes, or None.

    Symbolic extents count as 1.
    """
    last: dict[Value, int] = {}
    nodes = graph.sorted_nodes()
    for position, node in enumerate(nodes):
        for value in node.inputs:
            if value is not None:
                last[value] = position
    last.update(dict.fromkeys(graph.outputs, len(nodes)))
    live = 0
    for position, node in enumerate(nodes):
        live += sum([value_bytes(value) for value in node.outputs])
        if live > allowed:
            return Excess(node, live)
        ended = {value for value in (*node.inputs, *node.outputs) if value is not None and value.producer is not None}
        live -= sum([value_bytes(value) for value in ended if last.get(value, position) == position])
    return None


def value_bytes(value: Value) -> int:
    """Size of a tensor in bytes. Symbolic extents count as 1."""
    extents = [extent for extent in value.shape if isinstance(extent, int)]
    return math.prod(extents) * value.dtype.bits // 8
