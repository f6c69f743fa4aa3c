"""Folding of a permute that swaps the last two axes into the transpose flag of a matmul.

Reading a matrix by columns needs no copy. Only for two computed operands: constant weights are permuted at conversion
time.
"""

from __future__ import annotations

import dataclasses

from tpuconvert.optimizer.engine import Replacement, rule
from tpuconvert.optimizer.pattern import Match, p
from tpuconvert.schema.graph import Graph, Node
from tpuconvert.schema.ops.batch_matmul import BatchMatmul
from tpuconvert.schema.ops.permute import Permute


def _swaps_last_axes(node: Node) -> bool:
    order = tuple(node.op.attributes()["order"])
    rank = len(order)
    return rank >= 2 and order == (*range(rank - 2), rank - 1, rank - 2)


@rule(
    p(BatchMatmul, p(Permute, "a", name="swap", where=_swaps_last_axes), "b", name="product"),
    stage="fuse",
    formerly="transposed_left",
)
def fold_permute_into_left_operand(graph: Graph, m: Match) -> Replacement:
    """``permute(a) @ b -> a' @ b`` with the transpose flag."""
    op = m.product.op
    return graph.add(dataclasses.replace(op, left_transpose=not op.left_transpose), m.a, m.b)


@rule(
    p(BatchMatmul, "a", p(Permute, "b", name="swap", where=_swaps_last_axes), name="product"),
    stage="fuse",
    formerly="transposed_right",
)
def fold_permute_into_right_operand(graph: Graph, m: Match) -> Replacement:
    """``a @ permute(b) -> a @ b'`` with the transpose flag."""
    op = m.product.op
    return graph.add(dataclasses.replace(op, right_transpose=not op.right_transpose), m.a, m.b)
