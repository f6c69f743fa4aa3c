"""hard_sigmoid after a linear operator is decomposed: its scale and bias fold into the weights, a clamp remains."""

from __future__ import annotations

from tpuconvert.optimizer.engine import Replacement, rule
from tpuconvert.optimizer.pattern import Match, p
from tpuconvert.schema.graph import Graph
from tpuconvert.schema.op import Trait
from tpuconvert.schema.ops.smooth_activation import HardSigmoid


@rule(p(HardSigmoid, p(Trait.LINEAR, name="linear", sole_user=True), name="op"), stage="canonicalize")
def decompose_hard_sigmoid(graph: Graph, m: Match) -> Replacement:
    """``hard_sigmoid(linear(x)) -> clamp(linear(x) * alpha + beta, 0, 1)``."""
    op: HardSigmoid = m.op.op
    return op.expand(graph, m.linear.output)
