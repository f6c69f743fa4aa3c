"""Limit on the memory of a run, checked before the tensors of a model are allocated."""

from __future__ import annotations

import math

from tpuconvert.schema.graph import Graph, Value
from tpuconvert.schema.limits import exceeded, run_bytes_allowed


def check_run_memory(graph: Graph) -> None:
    """Refuse a graph whose run takes far more memory than its inputs and constants. Symbolic extents count as 1.

    Raises:
        ResourceLimitError: the tensors that are live at one time exceed the limit.
    """
    allowed = run_bytes_allowed(sum(map(_size, graph.inputs)) + graph.constant_bytes)
    last: dict[Value, int] = {}
    nodes = graph.sorted_nodes()
    for position, node in enumerate(nodes):
        for value in node.inputs:
            if value is not None:
                last[value] = position
    last.update(dict.fromkeys(graph.outputs, len(nodes)))
    live = 0
    for position, node in enumerate(nodes):
        live += sum([_size(value) for value in node.outputs])
        if live > allowed:
            raise exceeded(f"a run takes {live:,} bytes", "max_run_bytes", file=graph.file, node=node.name)
        ended = {value for value in (*node.inputs, *node.outputs) if value is not None and value.producer is not None}
        live -= sum([_size(value) for value in ended if last.get(value, position) == position])


def _size(value: Value) -> int:
    extents = [extent for extent in value.shape if isinstance(extent, int)]
    return math.prod(extents) * value.dtype.bits // 8
