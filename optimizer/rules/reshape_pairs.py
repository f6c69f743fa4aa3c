"""Hoisting of unary operators above a reshape: ``reshape(f(g(reshape(x)))) -> reshape(f(g(x)))``.

Such pairs result from operators that exist for 4-D tensors only. The inner reshape is removed, and the outer one too if
it restores the shape of x.
"""

from __future__ import annotations

from tpuconvert.optimizer.annotations import rounds
from tpuconvert.optimizer.engine import Replacement, Skip, rule
from tpuconvert.optimizer.pattern import Match, p
from tpuconvert.optimizer.rules.identity import reshape_like
from tpuconvert.schema.graph import Graph, Node
from tpuconvert.schema.op import Trait
from tpuconvert.schema.ops.shape_change import Reshape

_LONGEST = 16


def _chain(node: Node) -> list[Node]:
    """The unary operators between a reshape and the one before it, the last one first; empty if there is no chain."""
    found: list[Node] = []
    value = node.inputs[0]
    while value is not None and len(value.uses) == 1 and len(found) <= _LONGEST:
        producer = value.producer
        if producer is None or rounds(producer):
            return []
        if isinstance(producer.op, Reshape):
            return found
        if Trait.UNARY not in producer.op.traits:
            return []
        found.append(producer)
        value = producer.inputs[0]
    return []


def _ends_a_chain(node: Node) -> bool:
    return bool(_chain(node))


@rule(
    p(Reshape, p(Trait.UNARY, name="last", sole_user=True), name="reshape", where=_ends_a_chain),
    stage="canonicalize",
    formerly="meet_reshapes",
)
def hoist_unary_chain_above_reshape(graph: Graph, m: Match) -> Replacement:
    """``reshape(f(reshape(x))) -> reshape(f(x))`` for a chain f of element-wise unary operators."""
    chain = _chain(m.reshape)
    if not all(graph.is_sole_use(node.outputs[0]) for node in chain):
        return Skip("a value between them is a graph output")
    inner = chain[-1].inputs[0]
    assert inner is not None and inner.producer is not None
    (x,) = inner.producer.inputs
    assert x is not None
    for node in reversed(chain):
        x = graph.add(node.op, x, name=f"{node.outputs[0].name}:reshaped")
    return x if x.type == m.reshape.output.type else reshape_like(graph, x, m.reshape.output)
