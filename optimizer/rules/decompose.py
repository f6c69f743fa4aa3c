"""Decomposition of operators whose parts quantize better than the whole.

- Attention: its matmuls have integer forms, but the composite operator does not. If the mask may be minus infinity in a
  whole row, the composite returns zeros for it, but softmax returns NaN: the mask is then clamped to finite numbers,
  and the result is multiplied by 0 in rows without a larger element.
- Nearest upsampling of one axis by an integer factor, written as index_select with constant indices: index_select is
  float only, tile supports integers.
- ``max(x, slopes * x)``: the positive and the negative part of a PReLU get separate scales, and the slopes become
  per-channel scales.
"""

from __future__ import annotations

import math

import numpy as np

from tpuconvert.optimizer.engine.engine import Replacement, Skip, rule
from tpuconvert.optimizer.engine.node_properties import operands
from tpuconvert.optimizer.engine.pattern import Match, p
from tpuconvert.optimizer.rules.value_properties import is_finite
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.arithmetic import Add, Max, Mul
from tpuconvert.schema.ops.arithmetic_with_scalar import Maxs, Mins, Muls
from tpuconvert.schema.ops.attention import Attention, causal_mask
from tpuconvert.schema.ops.batch_matmul import BatchMatmul
from tpuconvert.schema.ops.compare import Gts
from tpuconvert.schema.ops.index_select import IndexSelect
from tpuconvert.schema.ops.reduce import Reduce, ReduceMethodType
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.ops.softmax import Softmax
from tpuconvert.schema.ops.tile import Tile
from tpuconvert.schema.types import F32, Scalar


@rule(p(Attention, name="op"), stage="decompose")
def decompose_attention(graph: Graph, m: Match) -> Replacement:
    """``attention(q, k, v) -> softmax(q @ k' * scale + mask) @ v``; a causal mask of static shape is a constant."""
    query, key, value, *rest = operands(m.op)
    mask = rest[0] if rest else None
    if not isinstance(query.shape[-1], int):
        return Skip("the size of a query is dynamic")
    name = m.op.output.name
    if m.op.op.is_causal:
        rows, columns = query.shape[-2], key.shape[-2]
        if not isinstance(rows, int) or not isinstance(columns, int) or columns < rows:
            return Skip("the causal mask depends on dynamic extents")
        hidden = np.maximum(causal_mask(rows, columns), np.float32(_LOWEST))
        causal = graph.constant(hidden.reshape((1,) * (query.rank - 2) + hidden.shape), f"{name}:causal")
        mask = causal if mask is None else graph.add(Add(), mask, causal, name=f"{name}:mask")
    visible: Value | None = None
    if mask is not None and not is_finite(graph, mask):
        mask, visible = _finite_mask(graph, mask, name)
    factor = 1 / math.sqrt(query.shape[-1]) if m.op.op.scale is None else m.op.op.scale
    scores = graph.add(BatchMatmul(right_transpose=True), query, key, name=f"{name}:product")
    if factor != 1:
        scores = graph.add(Muls(Scalar.f32(factor)), scores, name=f"{name}:scaled")
    if mask is not None:
        scores = graph.add(Add(), scores, mask, name=f"{name}:masked")
    weights = graph.add(Softmax(scores.rank - 1), scores, name=f"{name}:weights")
    if visible is not None:
        weights = graph.add(Mul(), weights, visible, name=f"{name}:visible")
    return graph.add(BatchMatmul(), weights, value)


_LOWEST = -(2.0**126)
"""Finite replacement of minus infinity in masks. Adding a score does not change it."""


def _finite_mask(graph: Graph, mask: Value, name: str) -> tuple[Value, Value | None]:
    """Return the mask clamped to finite numbers, and a tensor that is 0 for rows of minus infinity only, else 1.

    The second result is None if the mask is constant and has no such row.
    """
    if mask.is_constant:
        numbers = np.maximum(mask.array, np.float32(_LOWEST))
        if (mask.array.max(axis=-1, initial=-np.inf) > -np.inf).all():
            return graph.constant(numbers, mask.name), None
    limited = graph.add(Maxs(Scalar.f32(_LOWEST)), mask, name=f"{name}:limited")
    largest = Reduce((mask.rank - 1,), ReduceMethodType.REDUCE_MAX)
    rows = graph.add(largest, mask, name=f"{name}:largest")
    return limited, graph.add(Gts(Scalar(F32, -math.inf)), rows, name=f"{name}:rows")


@rule(p(Max, "x", p(Mul, "x", "SLOPES", name="sloped", sole_user=True), name="op"), stage="decompose")
def decompose_prelu(graph: Graph, m: Match) -> Replacement:
    """``max(x, SLOPES * x) -> relu(x) + SLOPES * min(x, 0)`` for slopes up to 1."""
    if m.x.is_constant or not (m.SLOPES.array <= 1).all() or m.op.output.type != m.x.type:
        return Skip("it is not a PReLU")
    name = m.op.output.name
    positive = graph.add(Active(ActiveType.ACTIVE_RELU), m.x, name=f"{name}:positive")
    negative = graph.add(Mins(Scalar.f32(0)), m.x, name=f"{name}:negative")
    return graph.add(Add(), positive, graph.add(Mul(), negative, m.SLOPES, name=f"{name}:sloped"))


@rule(p(IndexSelect, "x", "INDEX", name="op"), stage="decompose")
def decompose_repeated_selection(graph: Graph, m: Match) -> Replacement:
    """``index_select(x, [0, 0, 1, 1, ...]) -> reshape(tile(reshape(x)))`` if every slice is repeated equally often."""
    if not m.x.type.is_static or 0 in m.x.shape or not m.x.dtype.is_float:
        return Skip("the operand is not a non-empty float tensor of static shape")
    axis, shape, index = m.op.op.dim % m.x.rank, m.x.type.static_shape, m.INDEX.array
    count, remainder = divmod(index.size, shape[axis])
    if remainder or count < 2 or not np.array_equal(index, np.repeat(np.arange(shape[axis]), count)):
        return Skip("it does not repeat every slice")
    name = m.op.output.name
    flat = (math.prod(shape[: axis + 1]), 1, math.prod(shape[axis + 1 :]), 1)
    rows = graph.add(Reshape(flat), m.x, name=f"{name}:rows")
    repeated = graph.add(Tile((1, count, 1, 1)), rows, name=f"{name}:repeated")
    return graph.add(Reshape(m.op.output.type.static_shape), repeated)
