"""Preparation of an optimized float graph for quantization. The graph stays a float graph."""

from __future__ import annotations

from collections.abc import Collection

from tpuconvert.optimizer.engine.engine import Trace, run_rules
from tpuconvert.optimizer.engine.registry import rules_of
from tpuconvert.optimizer.recurrent_layers import add_cell_results
from tpuconvert.schema.graph.graph import Graph

STAGES = ("decompose", "prepare quantization")


def prepare(graph: Graph, disabled: Collection[str] = ()) -> None:
    """Apply the rules of both stages to a float graph, in place, and add the results that calibration measures.

    Args:
        graph: optimized.
        disabled: names of rules that do not run.
    """
    for stage in STAGES:
        run_rules(graph, [item for item in rules_of(stage) if item.name not in disabled], Trace())
    add_cell_results(graph)
