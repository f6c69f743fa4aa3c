"""The written order of the optimizer's stages."""

from __future__ import annotations

from collections.abc import Callable

from tpuconvert.optimizer.constant_folding import fold_constants
from tpuconvert.optimizer.engine import Trace, rules_of, run_rules
from tpuconvert.optimizer.sharing import share_constants, share_nodes
from tpuconvert.schema.errors import InternalError
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

    Raises:
        InternalError: when the rules do not come to an end.
    """
    counts = Trace()
    counts.fired["remove_dead_nodes"] += graph.prune()
    stages = [rules_of(stage) for stage in STAGES]
    rounds = len(graph) + 10
    while _passes(graph, counts) + sum(run_rules(graph, rules, counts) for rules in stages):
        rounds -= 1
        if rounds == 0:
            raise InternalError(f"the stages undo each other's work: {counts.fired.most_common(5)}")
    counts.fired["remove_dead_nodes"] += graph.prune()
    graph.sort()
    if trace is not None:
        for line in counts.lines():
            trace(line)
    return counts


def _passes(graph: Graph, counts: Trace) -> int:
    """What looks at the whole graph instead of a pattern. Returns how much it changed."""
    folded, left = fold_constants(graph)
    for reason in left:
        counts.note("fold_constants", reason)
    counts.fired["fold_constants"] += folded
    changes = folded
    for share in (share_constants, share_nodes):
        count = share(graph)
        counts.fired[share.__name__] += count
        changes += count
    return changes
