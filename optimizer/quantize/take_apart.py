"""Forms that are shorter in float than quantization likes them: they are taken apart again before it begins.

- Attention: its products have integer forms, which the composite has not.
- max(x, slopes * x): the two sides of a rectifier have scales of their own, and the slopes' factor one per channel.
"""

from __future__ import annotations

import math

import numpy as np

from tpuconvert.optimizer.engine import Replacement, Skip, rule
from tpuconvert.optimizer.pattern import Match, p
from tpuconvert.schema.graph import Graph
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.arithmetic import Add, Max, Mul
from tpuconvert.schema.ops.arithmetic_with_scalar import Mins, Muls
from tpuconvert.schema.ops.attention import Attention
from tpuconvert.schema.ops.batch_matmul import BatchMatmul
from tpuconvert.schema.ops.softmax import Softmax
from tpuconvert.schema.types import Scalar

STAGE = "take apart"


@rule(p(Attention, name="op"), stage=STAGE)
def attention_in_pieces(graph: Graph, m: Match) -> Replacement:
    """Attention is two batched products with a softmax between them, where no mask is computed."""
    query, key, value, *rest = m.op.inputs
    mask = rest[0] if rest else None
    assert query is not None
    if not isinstance(query.shape[-1], int):
        return Skip("the size of a query is not known before the model runs")
    if mask is not None and not (mask.is_constant and np.isfinite(mask.array).all()):
        return Skip("its mask is not a constant of numbers")
    name = m.op.output.name
    factor = 1 / math.sqrt(query.shape[-1]) if m.op.op.scale is None else m.op.op.scale
    scores = graph.add(BatchMatmul(right_transpose=True), query, key, name=f"{name}:product")
    if factor != 1:
        scores = graph.add(Muls(Scalar.f32(factor)), scores, name=f"{name}:scaled")
    if mask is not None:
        scores = graph.add(Add(), scores, mask, name=f"{name}:masked")
    weights = graph.add(Softmax(scores.rank - 1), scores, name=f"{name}:weights")
    return graph.add(BatchMatmul(), weights, value)


@rule(p(Max, "x", p(Mul, "x", "SLOPES", name="sloped", sole_user=True), name="op"), stage=STAGE)
def maximum_in_pieces(graph: Graph, m: Match) -> Replacement:
    """max(x, SLOPES * x) = relu(x) + SLOPES * min(x, 0), for slopes up to 1."""
    if m.x.is_constant or not (m.SLOPES.array <= 1).all() or m.op.output.type != m.x.type:
        return Skip("it is no rectifier")
    name = m.op.output.name
    positive = graph.add(Active(ActiveType.ACTIVE_RELU), m.x, name=f"{name}:positive")
    negative = graph.add(Mins(Scalar.f32(0)), m.x, name=f"{name}:negative")
    return graph.add(Add(), positive, graph.add(Mul(), negative, m.SLOPES, name=f"{name}:sloped"))
