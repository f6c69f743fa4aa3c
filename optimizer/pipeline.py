"""The written order of the optimizer's stages."""

from __future__ import annotations

from collections.abc import Callable

from tpuconvert.optimizer.constant_folding import fold_constants
from tpuconvert.optimizer.engine import Trace, rules_of, run_rules
from tpuconvert.schema.graph import Graph

STAGES = ("canonicalize", "layout", "fold", "fuse")
"""Rule stages in running order. All of them run again until a whole round changes nothing."""


def optimize(graph: Graph, trace: Callable[[str], None] | None = None) -> Trace:
    """Simplify a float graph in place; what it computes stays the same up to float rounding.

    Args:
        graph: with or without quantization annotations; annotated values keep theirs.
        trace: called with one line per rule and outcome.

    Returns:
        How often every rule fired or was skipped.
    """
    counts = Trace()
    graph.prune()
    changed = True
    while changed:
        folded, left = fold_constants(graph)
        counts.fired["fold_constants"] += folded
        counts.skipped.update(("fold_constants", reason) for reason in left)
        fired = sum(run_rules(graph, rules_of(stage), counts) for stage in STAGES)
        changed = folded + fired > 0
    removed = graph.prune()
    if removed:
        counts.fired["remove_dead_nodes"] += removed
    graph.sort()
    if trace is not None:
        for line in counts.lines():
            trace(line)
    return counts
