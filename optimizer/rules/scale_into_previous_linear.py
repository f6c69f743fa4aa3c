"""Folding of a per-channel scale and bias into the linear operator before it.

``linear(x; W, B) * k + b -> linear(x; W * k, B * k + b)``; ``optimizer.affine`` has the algebra per operator. A reshape
may be in between if the channels stay the second axis or become the last one; any reshape if k and b are scalars, as
for queries of attention that are split into heads.
"""

from __future__ import annotations

import numpy as np

from tpuconvert.optimizer.affine import (
    Affine,
    fold_affine_after,
    is_affine,
    read_affine,
)
from tpuconvert.optimizer.engine import Replacement, Skip, rule
from tpuconvert.optimizer.pattern import Match, p
from tpuconvert.schema.graph import Graph, Node
from tpuconvert.schema.op import Trait
from tpuconvert.schema.ops.batch_norm import BatchNorm
from tpuconvert.schema.ops.shape_change import Reshape

LINEAR = p(Trait.LINEAR, "x", "W", name="linear", sole_user=True)
RESHAPED = p(Reshape, LINEAR, name="reshape", sole_user=True)


@rule(
    p(Trait.AFFINE, LINEAR, name="op", where=is_affine),
    p(Trait.AFFINE, "C", LINEAR, name="op", where=is_affine),
    p(Trait.AFFINE, RESHAPED, name="op", where=is_affine),
    p(Trait.AFFINE, "C", RESHAPED, name="op", where=is_affine),
    stage="fold",
    formerly="fold_into_product_before",
)
def fold_scale_into_previous_linear(graph: Graph, m: Match) -> Replacement:
    """Fold a batch norm, a bias or a per-channel scale into the linear operator before it."""
    axis: int | None = 1
    if m.binds("reshape"):
        axis = _channel_axis(m.linear, m.reshape)
        if axis is None and Trait.UNARY not in m.op.op.traits:
            return Skip("the reshape mixes channels")
    affine = _for_all_channels(graph, m) if axis is None else read_affine(graph, m.op, axis)
    if isinstance(affine, Skip):
        return affine
    if not m.binds("reshape"):
        folded = fold_affine_after(graph, m.linear, affine)
    else:
        folded = fold_affine_after(graph, m.linear, affine, f"{m.op.outputs[0].name}:reshaped")
        if not isinstance(folded, Skip):
            folded = graph.add(m.reshape.op, folded)
    if isinstance(folded, Skip) or not isinstance(m.op.op, BatchNorm):
        return folded
    return folded, None, None


def _for_all_channels(graph: Graph, m: Match) -> Affine | Skip:
    """One scale and bias for all channels of the linear operator, independent of the reshape."""
    found, channels = read_affine(graph, m.op, -1), m.linear.outputs[0].shape[1]
    if isinstance(found, Skip) or not isinstance(channels, int) or not found.k.size:
        return found if isinstance(found, Skip) else Skip("the number of channels is dynamic")
    return Affine(np.full(channels, found.k[0]), np.full(channels, found.b[0]))


def _channel_axis(linear: Node, reshape: Node) -> int | None:
    """The axis of the reshaped result that contains the output channels of the linear operator."""
    before, after = linear.outputs[0].shape, reshape.outputs[0].shape
    if before[:2] == after[:2]:
        return 1
    if len(before) == 2 and before[1] == after[-1]:
        return len(after) - 1
    return None
