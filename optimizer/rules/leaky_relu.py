"""Fusion of decomposed leaky ReLU and PReLU.

relu(x) + a * min(x, 0) is x for x >= 0 and a * x below; so is max(x, a * x) for 0 < a <= 1. No TPU operator has
per-channel slopes: for them max(x, a * x) is the shortest form, for slopes up to 1. A slope of 0 stays, because 0 * x
is NaN for an infinite x.
"""

from __future__ import annotations

import math

from tpuconvert.optimizer.engine import Replacement, Skip, rule
from tpuconvert.optimizer.pattern import Match, p
from tpuconvert.schema.graph import Graph, Node
from tpuconvert.schema.ops.activation import Active, ActiveParam, ActiveType
from tpuconvert.schema.ops.arithmetic import Add, Max, Mul
from tpuconvert.schema.ops.arithmetic_with_scalar import Maxs, Mins, Muls
from tpuconvert.schema.types import F32


def _is_positive_part(node: Node) -> bool:
    return node.op.clamp_range() == (0, math.inf)


def _is_negative_part(node: Node) -> bool:
    return node.op.clamp_range() == (-math.inf, 0)


POSITIVE = p((Active, Maxs), "x", name="positive", sole_user=True, where=_is_positive_part)
NEGATIVE = p(Mins, "x", name="negative", sole_user=True, where=_is_negative_part)
SCALED = p(Muls, NEGATIVE, name="scaled", sole_user=True)
SLOPED = p(Muls, "x", name="scaled", sole_user=True)


@rule(p(Add, POSITIVE, SCALED, name="sum"), p(Add, SCALED, POSITIVE, name="sum"), stage="fuse")
def fuse_leaky_relu(graph: Graph, m: Match) -> Replacement:
    """``relu(x) + a * min(x, 0) -> leaky_relu(x)``."""
    return _leaky(graph, m)


SLOPES = p(Mul, NEGATIVE, "SLOPES", name="scaled", sole_user=True)


@rule(
    p(Add, POSITIVE, SLOPES, name="sum"),
    p(Add, SLOPES, POSITIVE, name="sum"),
    stage="fuse",
    formerly="fuse_slopes_as_maximum",
)
def fuse_prelu_as_max(graph: Graph, m: Match) -> Replacement:
    """``relu(x) + SLOPES * min(x, 0) -> max(x, SLOPES * x)``."""
    slopes = m.SLOPES
    if m.x.dtype is not F32 or slopes.stored is not None or m.sum.output.type != m.x.type:
        return Skip("it is not a float operator that keeps the shape")
    if not ((slopes.array <= 1) & (slopes.array != 0)).all():
        return Skip("a slope is 0 or larger than 1")
    return graph.add(Max(), m.x, graph.add(Mul(), m.x, slopes, name=f"{m.sum.name}:sloped"))


@rule(
    p(Max, "x", SLOPED, name="maximum"),
    p(Max, SLOPED, "x", name="maximum"),
    stage="fuse",
    formerly="fuse_maximum_as_leaky_relu",
)
def fuse_max_as_leaky_relu(graph: Graph, m: Match) -> Replacement:
    """``max(x, a * x) -> leaky_relu(x)``."""
    if not 0 < m.scaled.op.scalar.value <= 1:
        return Skip("the slope is not between 0 and 1")
    return _leaky(graph, m)


def _leaky(graph: Graph, m: Match) -> Replacement:
    slope = m.scaled.op.scalar.value
    if m.x.dtype is not F32 or not math.isfinite(slope):
        return Skip("it is not a float operator")
    return graph.add(ActiveParam(ActiveType.ACTIVE_LEAKY_RELU, (slope,)), m.x)
