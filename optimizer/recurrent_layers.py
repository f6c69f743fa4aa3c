"""Expansion of recurrent layers before the optimizer, for models that need the operators of every step."""

from __future__ import annotations

from tpuconvert.optimizer.expand_composites import expand_composites, is_expandable
from tpuconvert.schema.graph import Graph
from tpuconvert.schema.ops.recurrent import RecurrentLayer


def expand_recurrent_layers(graph: Graph) -> int:
    """Unroll recurrent layers with a static number of steps, in place, so that the optimizer simplifies their steps.

    Returns:
        The number of layers that were expanded.
    """
    return expand_composites(graph, lambda node: isinstance(node.op, RecurrentLayer) and is_expandable(node))
