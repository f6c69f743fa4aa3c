"""Attention in pieces becomes one operator.

softmax(query @ key' * scale + mask) @ value: two batched products with a softmax along the last axis between them. The
scale may be a product or a quotient, before or behind the first product, or 1. A mask must be a constant of numbers:
the composite gives zeros where a mask hides a whole row, the pieces give no number there.
"""

from __future__ import annotations

import math

import numpy as np

from tpuconvert.optimizer.annotations import rounds
from tpuconvert.optimizer.engine import Replacement, Skip, rule
from tpuconvert.optimizer.pattern import Match, p
from tpuconvert.schema.graph import Graph, Node, Value
from tpuconvert.schema.op import Op
from tpuconvert.schema.ops.arithmetic import Add
from tpuconvert.schema.ops.arithmetic_with_scalar import Divs, Muls
from tpuconvert.schema.ops.attention import Attention
from tpuconvert.schema.ops.batch_matmul import BatchMatmul
from tpuconvert.schema.ops.softmax import Softmax


def _is_along_rows(node: Node) -> bool:
    x = node.inputs[0]
    return isinstance(node.op, Softmax) and x is not None and node.op.axis % x.rank == x.rank - 1


def _is_plain(node: Node) -> bool:
    return node.op == BatchMatmul()


@rule(
    p(
        BatchMatmul,
        p(Softmax, "scores", name="softmax", where=_is_along_rows, sole_user=True),
        "value",
        name="product",
        where=_is_plain,
    ),
    stage="fuse",
)
def recognize_attention(graph: Graph, m: Match) -> Replacement:
    """softmax(query @ key' * scale + mask) @ value."""
    scores, inner = m.scores, [m.softmax]
    mask: Value | None = None
    node = _inner(graph, scores, Add)
    if node is not None:
        first, second = node.inputs
        assert first is not None and second is not None
        mask, scores = (first, second) if first.is_constant else (second, first)
        if not mask.is_constant or mask.stored is not None or not np.isfinite(mask.array).all():
            return Skip("its mask is not a constant of numbers")
        inner.append(node)
    scale = 1.0
    scores, factor, node = _unscaled(graph, scores)
    scale *= factor
    inner += [] if node is None else [node]
    node = _inner(graph, scores, BatchMatmul)
    if node is None or node.op != BatchMatmul(right_transpose=True):
        return Skip("the scores are no product with the rows of the keys")
    inner.append(node)
    operands: list[Value] = []
    for value in node.inputs:
        assert value is not None
        plain, factor, scaled = _unscaled(graph, value)
        scale *= factor
        inner += [] if scaled is None else [scaled]
        operands.append(plain)
    if any(rounds(item) for item in inner):
        return Skip("the source file quantizes what lies inside")
    if not math.isfinite(scale) or {value.rank for value in (*operands, m.value)} != {m.scores.rank}:
        return Skip("its operands have no common rank, or the scale is no number")
    sources = tuple(dict.fromkeys(source for item in reversed(inner) for source in item.sources))
    if mask is None:
        return graph.add(Attention(scale), *operands, m.value, sources=(*sources, *m.product.sources))
    shape = (1,) * (m.scores.rank - mask.rank) + mask.array.shape
    aligned = graph.constant(mask.array.reshape(shape), mask.name)
    return graph.add(Attention(scale), *operands, m.value, aligned, sources=(*sources, *m.product.sources))


def _inner(graph: Graph, value: Value, op: type[Op]) -> Node | None:
    """The producer of a value that nobody else reads, if it is of one operator."""
    node = value.producer
    return node if node is not None and isinstance(node.op, op) and graph.is_sole_use(value) else None


def _unscaled(graph: Graph, value: Value) -> tuple[Value, float, Node | None]:
    """What a value is a multiple of, the factor, and the node that multiplies."""
    node = _inner(graph, value, Muls) or _inner(graph, value, Divs)
    if node is None:
        return value, 1.0, None
    assert isinstance(node.op, (Muls, Divs))
    (x,) = node.inputs
    assert x is not None
    number = node.op.scalar.value
    if isinstance(node.op, Divs):
        number = 1 / number if number else math.inf
    return x, number, node
