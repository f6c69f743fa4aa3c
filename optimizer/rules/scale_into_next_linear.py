"""A factor and a shift per channel before a product disappear into its weights and bias.

product(k * x + b; W, B) = product(x; k * W, B + b * W), where padding does not come between; the algebra per operator
is that of ``optimizer.affine``. This takes up the normalization that leads many networks, and normalizations that have
no product before them. A permute may stand between, as it does behind a channel-last input.
"""

from __future__ import annotations

from tpuconvert.optimizer.affine import fold_before, is_affine, read_affine
from tpuconvert.optimizer.engine import Replacement, Skip, rule
from tpuconvert.optimizer.pattern import Match, p
from tpuconvert.schema.graph import Graph
from tpuconvert.schema.op import Trait
from tpuconvert.schema.ops.permute import Permute

SCALED = p(Trait.AFFINE, name="op", sole_user=True, where=is_affine)


@rule(
    p(Trait.LINEAR, SCALED, "W", name="product"),
    p(Trait.LINEAR, p(Permute, SCALED, name="permute", sole_user=True), "W", name="product"),
    stage="fold",
    formerly="fold_into_product_behind",
)
def fold_scale_into_next_linear(graph: Graph, m: Match) -> Replacement:
    """A factor and shift per input channel disappear into the product that reads the result."""
    axis = m.permute.op.order[1] if m.binds("permute") else 1
    affine = read_affine(graph, m.op, axis)
    if isinstance(affine, Skip):
        return affine
    (x,) = (value for value in m.op.inputs if value is not None and not value.is_constant)
    if m.binds("permute"):
        quant = x.quant
        x = graph.add(m.permute.op, x, name=f"{m.permute.output.name}:unscaled")
        x.quant = quant
    return fold_before(graph, m.product, x, affine)
