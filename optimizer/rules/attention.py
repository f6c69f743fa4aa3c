"""Recognition of decomposed attention: softmax(query @ key' * scale + mask) @ value.

These are two batch matmuls with a softmax along the last axis between them. The scale may be a multiply or a division,
before or after the first matmul, or 1.

A mask is an addition or a selection: where(c, scores, low) = scores + where(c, 0, low), if low is minus infinity or so
low that adding a score does not change it. Several masks are added first, at the size that they have for one head. They
may be constant or computed.

A row that is masked entirely with minus infinity is the one difference: its softmax is NaN, while the composite returns
zeros. So does a guarded softmax, which some sources write in one of two ways:

    powers / (sum + (sum == 0)), powers = exp(x - max(largest, lowest));    where(w != w, 0, w), w = softmax(x).

With a constant mask that hides a whole row, attention stays decomposed. A computed mask may hide a row in some runs
only: it is assumed that zeros are wanted, since no source needs NaN, and preserving NaN would cost a pass over the mask
in every run (documented in docs/numerics.md).
"""

from __future__ import annotations

import dataclasses
import functools
import math

from tpuconvert.optimizer.annotations import rounds
from tpuconvert.optimizer.attention_scores import HIDDEN, Scores, merge_masks
from tpuconvert.optimizer.engine import Replacement, Skip, rule
from tpuconvert.optimizer.node_properties import is_active, operand, reduced_axes
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
    rank = operand(node).rank
    return isinstance(node.op, Softmax) and node.op.axis % rank == rank - 1


def _is_plain(node: Node) -> bool:
    return node.op == BatchMatmul()


def _reduces_rows(node: Node, method: ReduceMethodType) -> bool:
    op = node.op
    assert isinstance(op, Reduce)
    return op.method == method and op.keep_dims and reduced_axes(node) == [operand(node).rank - 1]


_IS_LARGEST = functools.partial(_reduces_rows, method=ReduceMethodType.REDUCE_MAX)
_IS_TOTAL = functools.partial(_reduces_rows, method=ReduceMethodType.REDUCE_SUM)


def _is_lowest(node: Node) -> bool:
    return isinstance(node.op, Maxs) and -math.inf < node.op.scalar.value <= HIDDEN


def _is_zero(node: Node) -> bool:
    return isinstance(node.op, Eqs) and node.op.scalar_i1.value == 0


LOWEST = p(Maxs, p(Reduce, "scores", name="largest", where=_IS_LARGEST), name="lowest", where=_is_lowest)
POWERS = p(
    Active,
    p(Sub, "scores", LOWEST, name="shifted", sole_user=True),
    name="powers",
    where=is_active(ActiveType.ACTIVE_EXP),
)
SUMS = p(Reduce, POWERS, name="sums", where=_IS_TOTAL)
GUARDED = p(Add, SUMS, p(Eqs, SUMS, name="empty", sole_user=True, where=_is_zero), name="guarded", sole_user=True)
PLAIN = p(Softmax, "scores", name="softmax", where=_is_along_rows)
IS_NAN = p(Ne, PLAIN, PLAIN, name="guarded", sole_user=True)
WEIGHTS = (
    dataclasses.replace(PLAIN, sole_user=True),
    p(Div, POWERS, GUARDED, name="softmax", sole_user=True),
    p(ConditionSelect, IS_NAN, "ZERO", PLAIN, name="selected", sole_user=True),
)


@rule(*(p(BatchMatmul, weights, "value", name="product", where=_is_plain) for weights in WEIGHTS), stage="fuse")
def recognize_attention(graph: Graph, m: Match) -> Replacement:
    """``softmax(query @ key' * scale + mask) @ value -> attention(query, key, value, mask)``."""
    is_guarded = m.binds("guarded")
    if m.binds("selected") and m.ZERO.array.any():
        return Skip("the replacement of NaN is not 0")
    if m.binds("selected") and (len(m.softmax.output.uses) > 3 or graph.is_output(m.softmax.output)):
        return Skip("softmax has other users")
    if set(m.scores.users) - set(m.nodes.values()) or graph.is_output(m.scores):
        return Skip("the scores have other users")
    found = Scores(graph, m.scores)
    if not found.operands:
        return Skip("the scores are not a matmul with transposed keys")
    inner = [*(node for node in m.nodes.values() if node is not m.product), *found.inner]
    if any(rounds(item) for item in inner):
        return Skip("the source file quantizes an inner value")
    operands: list[Value] = [*found.operands, m.value]
    if not math.isfinite(found.scale) or {value.rank for value in operands} != {m.scores.rank}:
        return Skip("its operands differ in rank, or the scale is not a number")
    if is_guarded and not found.masks:
        return Skip("its softmax is guarded, but there is no mask")
    mask = merge_masks(graph, found.masks, m.product.output.name, m.scores.rank)
    if isinstance(mask, Skip):
        return mask
    operands += [] if mask is None else [mask]
    sources = tuple(dict.fromkeys(source for item in reversed(inner) for source in item.sources))
    return graph.add(Attention(found.scale), *operands, sources=(*sources, *m.product.sources))
