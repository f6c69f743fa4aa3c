"""Limit on the memory of a run, checked before the tensors of a model are allocated."""

from __future__ import annotations

from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.graph.live_memory import find_excess, value_bytes
from tpuconvert.schema.system.limits import exceeded, run_bytes_allowed


def check_run_memory(graph: Graph) -> None:
    """Refuse a graph whose run takes far more memory than its inputs and constants. Symbolic extents count as 1.

    Raises:
        ResourceLimitError: the tensors that are live at one time exceed the limit.
    """
    excess = find_excess(graph, run_bytes_allowed(sum(map(value_bytes, graph.inputs)) + graph.constant_bytes))
    if excess is not None:
        raise exceeded(f"a run takes {excess.size:,} bytes", "max_run_bytes", file=graph.file, node=excess.node.name)
