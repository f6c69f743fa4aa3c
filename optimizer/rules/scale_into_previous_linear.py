"""A factor and a shift per channel behind a product disappear into its weights and bias.

product(x; W, B) * k + b = product(x; W * k, B * k + b); the algebra per operator is that of ``optimizer.affine``. The
product may be reshaped first, as long as its channels stay the second axis, or become the last one; or in any way where
one number is for all channels, as that of the scores of attention is for queries which were cut into heads.
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

PRODUCT = p(Trait.LINEAR, "x", "W", name="product", sole_user=True)
RESHAPED = p(Reshape, PRODUCT, name="reshape", sole_user=True)


@rule(
    p(Trait.AFFINE, PRODUCT, name="op", where=is_affine),
    p(Trait.AFFINE, "C", PRODUCT, name="op", where=is_affine),
    p(Trait.AFFINE, RESHAPED, name="op", where=is_affine),
    p(Trait.AFFINE, "C", RESHAPED, name="op", where=is_affine),
    stage="fold",
    formerly="fold_into_product_before",
)
def fold_scale_into_previous_linear(graph: Graph, m: Match) -> Replacement:
    """Batch normalization, a bias, or a factor per channel disappears into the product before it."""
    axis: int | None = 1
    if m.binds("reshape"):
        axis = _channel_axis(m.product, m.reshape)
        if axis is None and Trait.UNARY not in m.op.op.traits:
            return Skip("the reshape mixes channels")
    affine = _for_all_channels(graph, m) if axis is None else read_affine(graph, m.op, axis)
    if isinstance(affine, Skip):
        return affine
    if not m.binds("reshape"):
        folded = fold_affine_after(graph, m.product, affine)
    else:
        folded = fold_affine_after(graph, m.product, affine, f"{m.op.outputs[0].name}:reshaped")
        if not isinstance(folded, Skip):
            folded = graph.add(m.reshape.op, folded)
    if isinstance(folded, Skip) or not isinstance(m.op.op, BatchNorm):
        return folded
    return folded, None, None


def _for_all_channels(graph: Graph, m: Match) -> Affine | Skip:
    """One factor and shift for every channel of the product, whatever the reshape makes of them."""
    found, channels = read_affine(graph, m.op, -1), m.product.outputs[0].shape[1]
    if isinstance(found, Skip) or not isinstance(channels, int) or not found.k.size:
        return found if isinstance(found, Skip) else Skip("the number of channels is not known before the model runs")
    return Affine(np.full(channels, found.k[0]), np.full(channels, found.b[0]))


def _channel_axis(product: Node, reshape: Node) -> int | None:
    """The axis of the reshaped result that counts the output channels of the product."""
    before, after = product.outputs[0].shape, reshape.outputs[0].shape
    if before[:2] == after[:2]:
        return 1
    if len(before) == 2 and before[1] == after[-1]:
        return len(after) - 1
    return None
