"""Merging of operators that only clamp their operand.

``relu``, ``maxs``, ``mins`` and ``clamp`` clamp to an interval. Two of them in a row clamp to the intersection, if it
is not empty.
"""

from __future__ import annotations

import math

from tpuconvert.optimizer.engine import Replacement, Skip, rule
from tpuconvert.optimizer.pattern import Match, p
from tpuconvert.schema.graph import Graph, Node
from tpuconvert.schema.op import Op, Trait
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.arithmetic_with_scalar import Maxs, Mins
from tpuconvert.schema.ops.clamp import Clamp
from tpuconvert.schema.types import F32, Scalar


def _is_limit(node: Node) -> bool:
    x, y = node.inputs[0], node.outputs[0]
    return node.op.clamp_range() is not None and x is not None and x.dtype is F32 and y.dtype is F32


@rule(
    p(Trait.LUT, p(Trait.LUT, "x", name="inner", sole_user=True, where=_is_limit), name="outer", where=_is_limit),
    stage="fuse",
    sees_annotations=True,
    formerly="merge_limits",
)
def merge_clamps(graph: Graph, m: Match) -> Replacement:
    """``clamp(clamp(x)) -> clamp(x)``.

    Rounding to a scale is monotone: if both results have the same scale, rounding once gives the same values.
    """
    if m.inner.output.quant is not None and m.inner.output.quant != m.outer.output.quant:
        return Skip("the source file quantizes the result of inner")
    inner, outer = m.inner.op.clamp_range(), m.outer.op.clamp_range()
    assert inner is not None and outer is not None
    low, high = max(inner[0], outer[0]), min(inner[1], outer[1])
    if low > high:
        return Skip("the intervals are disjoint")
    return graph.add(_limit(low, high), m.x)


@rule(
    p(Maxs, "x", name="op", where=lambda node: _is_limit(node) and node.op.clamp_range() == (0, math.inf)),
    stage="fuse",
    formerly="spell_as_relu",
)
def replace_max_by_relu(graph: Graph, m: Match) -> Replacement:
    """``max(x, 0) -> relu(x)``."""
    return graph.add(Active(ActiveType.ACTIVE_RELU), m.x)


def _limit(low: float, high: float) -> Op:
    if low == 0 and math.isinf(high):
        return Active(ActiveType.ACTIVE_RELU)
    if math.isinf(high):
        return Maxs(Scalar(F32, low))
    if math.isinf(low):
        return Mins(Scalar(F32, high))
    return Clamp(min=Scalar(F32, low), max=Scalar(F32, high))
