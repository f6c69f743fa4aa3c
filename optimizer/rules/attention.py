"""Attention in pieces becomes one operator.

softmax(query @ key' * scale + mask) @ value: two batched products with a softmax along the last axis between them. The
scale may be a product or a quotient, before or behind the first product, or 1.

A mask is a sum, or a choice: choose(c, scores, low) = scores + choose(c, 0, low) where low is minus infinity, or so low
that no sum with a score differs from it. Masks one after the other are added first, at the size that they have for one
head. They may be constant or computed.

A row that a mask hides as a whole, with minus infinity, is the one difference: its softmax has no numbers (NaN), the
composite gives zeros, as does the softmax with a guard that some sources write, in one of two ways:

    powers / (sum + (sum == 0)), powers = exp(x - max(largest, lowest));    choose(w != w, 0, w), w = softmax(x).

A constant mask that hides a whole row is left to the pieces. One that is computed may hide a row in some runs and none
in others: it is taken for one that means zeros there, since no source asks for NaN, and what would keep it costs a pass
over the mask in every run (docs/numerics.md says so to the user).
"""

from __future__ import annotations

import dataclasses
import math

from tpuconvert.optimizer.annotations import rounds
from tpuconvert.optimizer.attention_scores import HIDDEN, Scores, joined_masks
from tpuconvert.optimizer.engine import Replacement, Skip, rule
from tpuconvert.optimizer.pattern import Match, p
from tpuconvert.schema.graph import Graph, Node, Value
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.arithmetic import Add, Div, Sub
from tpuconvert.schema.ops.arithmetic_with_scalar import Maxs
from tpuconvert.schema.ops.attention import Attention
from tpuconvert.schema.ops.batch_matmul import BatchMatmul
from tpuconvert.schema.ops.compare import Eqs, Ne
from tpuconvert.schema.ops.reduce import Reduce, ReduceMethodType
from tpuconvert.schema.ops.selection import ConditionSelect
from tpuconvert.schema.ops.softmax import Softmax


def _is_along_rows(node: Node) -> bool:
    x = node.inputs[0]
    return isinstance(node.op, Softmax) and x is not None and node.op.axis % x.rank == x.rank - 1


def _is_plain(node: Node) -> bool:
    return node.op == BatchMatmul()


def _of_rows(node: Node, method: ReduceMethodType) -> bool:
    op, (x,) = node.op, node.inputs
    assert isinstance(op, Reduce) and x is not None
    axes = [axis % x.rank for axis in op.axis_list[: op.axis_num]]
    return op.method == method and op.keep_dims and axes == [x.rank - 1]


def _is_largest(node: Node) -> bool:
    return _of_rows(node, ReduceMethodType.REDUCE_MAX)


def _is_total(node: Node) -> bool:
    return _of_rows(node, ReduceMethodType.REDUCE_SUM)


def _is_power(node: Node) -> bool:
    return isinstance(node.op, Active) and node.op.active_type == ActiveType.ACTIVE_EXP


def _is_lowest(node: Node) -> bool:
    return isinstance(node.op, Maxs) and -math.inf < node.op.scalar.value <= HIDDEN


def _is_zero(node: Node) -> bool:
    return isinstance(node.op, Eqs) and node.op.scalar_i1.value == 0


LOWEST = p(Maxs, p(Reduce, "scores", name="largest", where=_is_largest), name="lowest", where=_is_lowest)
POWERS = p(Active, p(Sub, "scores", LOWEST, name="shifted", sole_user=True), name="powers", where=_is_power)
SUMS = p(Reduce, POWERS, name="sums", where=_is_total)
GUARDED = p(Add, SUMS, p(Eqs, SUMS, name="empty", sole_user=True, where=_is_zero), name="guarded", sole_user=True)
PLAIN = p(Softmax, "scores", name="softmax", where=_is_along_rows)
NO_NUMBER = p(Ne, PLAIN, PLAIN, name="guarded", sole_user=True)
WEIGHTS = (
    dataclasses.replace(PLAIN, sole_user=True),
    p(Div, POWERS, GUARDED, name="softmax", sole_user=True),
    p(ConditionSelect, NO_NUMBER, "ZERO", PLAIN, name="choice", sole_user=True),
)


@rule(*(p(BatchMatmul, weights, "value", name="product", where=_is_plain) for weights in WEIGHTS), stage="fuse")
def recognize_attention(graph: Graph, m: Match) -> Replacement:
    """softmax(query @ key' * scale + mask) @ value."""
    is_guarded = m.binds("guarded")
    if m.binds("choice") and m.ZERO.array.any():
        return Skip("what stands for no number is not 0")
    if m.binds("choice") and (len(m.softmax.output.uses) > 3 or graph.is_output(m.softmax.output)):
        return Skip("softmax has other users")
    if set(m.scores.users) - set(m.nodes.values()) or graph.is_output(m.scores):
        return Skip("the scores have other users")
    found = Scores(graph, m.scores)
    if not found.operands:
        return Skip("the scores are no product with the rows of the keys")
    inner = [*(node for node in m.nodes.values() if node is not m.product), *found.inner]
    if any(rounds(item) for item in inner):
        return Skip("the source file quantizes what lies inside")
    operands: list[Value] = [*found.operands, m.value]
    if not math.isfinite(found.scale) or {value.rank for value in operands} != {m.scores.rank}:
        return Skip("its operands have no common rank, or the scale is no number")
    if is_guarded and not found.masks:
        return Skip("its softmax has a guard, and nothing is hidden")
    mask = joined_masks(graph, found.masks, m.product.output.name, m.scores.rank)
    if isinstance(mask, Skip):
        return mask
    operands += [] if mask is None else [mask]
    sources = tuple(dict.fromkeys(source for item in reversed(inner) for source in item.sources))
    return graph.add(Attention(found.scale), *operands, sources=(*sources, *m.product.sources))
