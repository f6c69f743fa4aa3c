"""Simplification of activations and limits.

- ``relu``, ``maxs``, ``mins`` and ``clamp`` clamp to an interval. Two of them in a row clamp to the intersection, if it
  is not empty.
- |x|, and a lower limit of 0 or less, change nothing if x is never negative; rounding changes no rounded value.
- hard_sigmoid after a linear operator is decomposed: its scale and bias fold into the weights, a clamp remains.
- relu(x) + a * min(x, 0) is x for x >= 0 and a * x below; so is max(x, a * x) for 0 < a <= 1. No TPU operator has
  per-channel slopes: for them max(x, a * x) is the shortest form, for slopes up to 1. A slope of 0 stays, because 0 * x
  is NaN for an infinite x.
"""

from __future__ import annotations

import math

from tpuconvert.optimizer.engine.annotations import is_interchangeable
from tpuconvert.optimizer.engine.engine import Replacement, Skip, rule
from tpuconvert.optimizer.engine.node_properties import is_float32, operand
from tpuconvert.optimizer.engine.pattern import Match, either_order, p
from tpuconvert.optimizer.rules.value_properties import is_never_negative
from tpuconvert.schema.definition.op import Op, Trait
from tpuconvert.schema.graph.graph import Graph, Node
from tpuconvert.schema.ops.activation import Active, ActiveParam, ActiveType
from tpuconvert.schema.ops.arithmetic import Add, Max, Mul
from tpuconvert.schema.ops.arithmetic_with_scalar import Maxs, Mins, Muls
from tpuconvert.schema.ops.clamp import Clamp
from tpuconvert.schema.ops.quantization.round_to_integer import Rounding
from tpuconvert.schema.ops.smooth_activation import HardSigmoid
from tpuconvert.schema.types import F32, Scalar

_POSITIVE, _NEGATIVE = (0, math.inf), (-math.inf, 0)
_ROUNDINGS = (ActiveType.ACTIVE_ROUND, ActiveType.ACTIVE_CEIL, ActiveType.ACTIVE_FLOOR)


def _is_limit(node: Node) -> bool:
    return node.op.clamp_range() is not None and is_float32(node)


@rule(
    p(Trait.LUT, p(Trait.LUT, "x", name="inner", sole_user=True, where=_is_limit), name="outer", where=_is_limit),
    stage="fuse",
    sees_annotations=True,
)
def merge_clamps(graph: Graph, m: Match) -> Replacement:
    """``clamp(clamp(x)) -> clamp(x)``.

    Rounding to a scale is monotone: if both results have the same scale, rounding once gives the same values.
    """
    if m.inner.output.quant is not None and m.inner.output.quant != m.outer.output.quant:
        return Skip("the source file quantizes the result of inner")
    lows, highs = zip(m.inner.op.clamp_range(), m.outer.op.clamp_range(), strict=True)
    low, high = max(lows), min(highs)
    if low > high:
        return Skip("the intervals are disjoint")
    return graph.add(_limit(low, high), m.x)


@rule(p(Maxs, "x", name="op", where=lambda node: is_float32(node) and node.op.clamp_range() == _POSITIVE), stage="fuse")
def replace_max_by_relu(graph: Graph, m: Match) -> Replacement:
    """``max(x, 0) -> relu(x)``."""
    return graph.add(Active(ActiveType.ACTIVE_RELU), m.x)


def _limit(low: float, high: float) -> Op:
    if low == 0 and math.isinf(high):
        return Active(ActiveType.ACTIVE_RELU)
    if math.isinf(high):
        return Maxs(Scalar(F32, low))
    return Mins(Scalar(F32, high)) if math.isinf(low) else Clamp(min=Scalar(F32, low), max=Scalar(F32, high))


def _changes_nothing(node: Node) -> bool:
    """Return True if a limit or absolute value has a non-negative operand, or a rounding an integral one."""
    if not is_float32(node):
        return False
    x, bounds = operand(node), node.op.clamp_range()
    if bounds is not None:
        return bounds[0] <= 0 and math.isinf(bounds[1]) and is_never_negative(x)
    if isinstance(node.op, Active) and node.op.active_type == ActiveType.ACTIVE_ABSVAL:
        return is_never_negative(x)
    return _rounds_to_integers(node) and x.producer is not None and _rounds_to_integers(x.producer)


def _rounds_to_integers(node: Node) -> bool:
    return isinstance(node.op, Rounding) or (isinstance(node.op, Active) and node.op.active_type in _ROUNDINGS)


@rule(p(Trait.LUT, "x", name="op", where=_changes_nothing), stage="fuse")
def remove_redundant_activation(graph: Graph, m: Match) -> Replacement:
    """``|x| -> x`` and ``max(x, 0) -> x`` for x >= 0, and ``round(round(x)) -> round(x)``."""
    return m.x if is_interchangeable(m.x, m.op.output) else Skip("it changes the quantization")


@rule(p(HardSigmoid, p(Trait.LINEAR, name="linear", sole_user=True), name="op"), stage="canonicalize")
def decompose_hard_sigmoid(graph: Graph, m: Match) -> Replacement:
    """``hard_sigmoid(linear(x)) -> clamp(linear(x) * alpha + beta, 0, 1)``."""
    op: HardSigmoid = m.op.op
    return op.expand(graph, m.linear.output)


POSITIVE = p(
    (Active, Maxs), "x", name="positive", sole_user=True, where=lambda node: node.op.clamp_range() == _POSITIVE
)
NEGATIVE = p(Mins, "x", name="negative", sole_user=True, where=lambda node: node.op.clamp_range() == _NEGATIVE)


@rule(*either_order(Add, POSITIVE, p(Muls, NEGATIVE, name="scaled", sole_user=True), name="sum"), stage="fuse")
def fuse_leaky_relu(graph: Graph, m: Match) -> Replacement:
    """``relu(x) + a * min(x, 0) -> leaky_relu(x)``."""
    return _leaky(graph, m)


@rule(*either_order(Add, POSITIVE, p(Mul, NEGATIVE, "SLOPES", name="scaled", sole_user=True), name="sum"), stage="fuse")
def fuse_prelu_as_max(graph: Graph, m: Match) -> Replacement:
    """``relu(x) + SLOPES * min(x, 0) -> max(x, SLOPES * x)``."""
    slopes = m.SLOPES
    if m.x.dtype is not F32 or slopes.stored is not None or m.sum.output.type != m.x.type:
        return Skip("it is not a float operator that keeps the shape")
    if not ((slopes.array <= 1) & (slopes.array != 0)).all():
        return Skip("a slope is 0 or larger than 1")
    return graph.add(Max(), m.x, graph.add(Mul(), m.x, slopes, name=f"{m.sum.name}:sloped"))


@rule(*either_order(Max, "x", p(Muls, "x", name="scaled", sole_user=True), name="maximum"), stage="fuse")
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
