"""Folding of a per-channel scale and bias into the linear operator that follows.

``linear(k * x + b; W, B) -> linear(x; k * W, B + b * W)``, unless padding is between them; ``optimizer.affine`` has the
algebra per operator. This folds the input normalization of many networks, and normalizations without a linear operator
before them. A permute may be in between, as after a channels-last input.
"""

from __future__ import annotations

from tpuconvert.optimizer.affine import fold_affine_before, is_affine, read_affine
from tpuconvert.optimizer.engine import Replacement, Skip, rule
from tpuconvert.optimizer.pattern import Match, p
from tpuconvert.schema.graph import Graph
from tpuconvert.schema.op import Trait
from tpuconvert.schema.ops.permute import Permute

SCALED = p(Trait.AFFINE, name="op", sole_user=True, where=is_affine)


@rule(
    p(Trait.LINEAR, SCALED, "W", name="linear"),
    p(Trait.LINEAR, p(Permute, SCALED, name="permute", sole_user=True), "W", name="linear"),
    stage="fold",
    formerly="fold_into_product_behind",
)
def fold_scale_into_next_linear(graph: Graph, m: Match) -> Replacement:
    """Fold a per-channel scale and bias into the linear operator that follows."""
    axis = m.permute.op.order[1] if m.binds("permute") else 1
    affine = read_affine(graph, m.op, axis)
    if isinstance(affine, Skip):
        return affine
    (x,) = (value for value in m.op.inputs if value is not None and not value.is_constant)
    if m.binds("permute"):
        quant = x.quant
        x = graph.add(m.permute.op, x, name=f"{m.permute.output.name}:unscaled")
        x.quant = quant
    return fold_affine_before(graph, m.linear, x, affine)
