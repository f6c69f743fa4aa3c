"""Arithmetic identities of float operators. Each is exact or differs by one rounding."""

from __future__ import annotations

import math

import numpy as np

from tpuconvert.optimizer.engine.annotations import is_interchangeable
from tpuconvert.optimizer.engine.engine import Replacement, Skip, rule
from tpuconvert.optimizer.engine.node_properties import is_active, is_float32, may_round_integers
from tpuconvert.optimizer.engine.pattern import Match, either_order, p
from tpuconvert.optimizer.rules.value_properties import is_never_negative
from tpuconvert.schema.graph.graph import Graph, Node
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.arithmetic import Add, Div, Max, Min, Mul, Sub
from tpuconvert.schema.ops.arithmetic_with_scalar import Adds, Maxs, Muls, Rdivs, Rsubs
from tpuconvert.schema.types import Scalar

_SMALLEST, _LARGEST = 2.0**-126, 2.0**127
_CANCELS = 2.0**-10
_SMALLEST_ROOT, _LARGEST_ROOT = 2.0**-63, 2.0**63
"""Numbers between these limits have squares that are normal float32 numbers."""


@rule(p(Add, "x", "x", name="op", where=is_float32), stage="canonicalize")
def replace_self_add_by_muls(graph: Graph, m: Match) -> Replacement:
    """``x + x -> 2 * x``."""
    return graph.add(Muls(Scalar.f32(2)), m.x)


@rule(p(Mul, "x", "x", name="op", where=is_float32), stage="fuse")
def replace_self_multiply_by_square(graph: Graph, m: Match) -> Replacement:
    """``x * x -> square(x)``."""
    return graph.add(Active(ActiveType.ACTIVE_SQUARE), m.x)


@rule(p((Max, Min), "x", "x", name="op"), stage="canonicalize")
def remove_self_min_max(graph: Graph, m: Match) -> Replacement:
    """``max(x, x) -> x`` and ``min(x, x) -> x``."""
    if may_round_integers(m.op):
        return Skip("INT32 is computed in float32 on some chips")
    return m.x if is_interchangeable(m.x, m.op.output) else Skip("it changes the quantization")


@rule(
    p(Rsubs, p(Rsubs, "x", name="inner", sole_user=True, where=is_float32), name="outer", where=is_float32),
    stage="canonicalize",
)
def merge_rsubs(graph: Graph, m: Match) -> Replacement:
    """``c - (d - x) -> x + (c - d)``."""
    c, d = m.outer.op.scalar.value, m.inner.op.scalar.value
    if not math.isfinite(c - d) or (c != d and abs(c - d) < _CANCELS * max(abs(c), abs(d))):
        return Skip("the constants nearly cancel, which may be meant to round")
    return graph.add(Adds(Scalar.f32(c - d)), m.x)


@rule(
    p(Rdivs, p(Rdivs, "x", name="inner", sole_user=True, where=is_float32), name="outer", where=is_float32),
    stage="canonicalize",
)
def merge_rdivs(graph: Graph, m: Match) -> Replacement:
    """``c / (d / x) -> x * (c / d)``."""
    c, d = m.outer.op.scalar.value, m.inner.op.scalar.value
    factor = c / d if d else math.inf
    if not _SMALLEST <= abs(factor) <= _LARGEST:
        return Skip("c / d is beyond the range of float32")
    return graph.add(Muls(Scalar.f32(factor)), m.x)


def _is_zero_of_integers(node: Node) -> bool:
    return isinstance(node.op, Muls) and node.op.scalar.value == 0 and node.output.dtype.is_integer


@rule(p(Muls, "x", name="op", where=_is_zero_of_integers), stage="canonicalize")
def fold_integer_multiply_by_zero(graph: Graph, m: Match) -> Replacement:
    """``0 * x -> 0`` for integers. Some exporters create a tensor of zeros like this."""
    result = m.op.output
    if graph.is_output(result) or result.quant is not None or not result.type.is_static:
        return Skip("it is a graph output, is quantized, or its shape is dynamic")
    return graph.constant(np.zeros(result.type.static_shape, result.dtype.numpy), f"{result.name}:zeros")


def _negates(node: Node) -> bool:
    return (isinstance(node.op, Muls) and node.op.scalar.value == -1) or (
        isinstance(node.op, Rsubs) and node.op.scalar.value == 0
    )


NEGATED = p((Muls, Rsubs), "y", name="negated", sole_user=True, where=_negates)


@rule(*either_order(Add, "x", NEGATED, name="op", where=is_float32), stage="fuse")
def fuse_negation_into_sub(graph: Graph, m: Match) -> Replacement:
    """``x + (-1) * y -> x - y``."""
    return graph.add(Sub(), m.x, m.y)


@rule(p(Sub, "x", NEGATED, name="op", where=is_float32), stage="fuse")
def fuse_negation_into_add(graph: Graph, m: Match) -> Replacement:
    """``x - (-1) * y -> x + y``."""
    return graph.add(Add(), m.x, m.y)


SQUARE = p(Active, "x", name="square", sole_user=True, where=is_active(ActiveType.ACTIVE_SQUARE))


@rule(p(Active, SQUARE, name="root", where=is_active(ActiveType.ACTIVE_SQRT)), stage="canonicalize")
def replace_sqrt_of_square_by_abs(graph: Graph, m: Match) -> Replacement:
    """``sqrt(x^2) -> |x|``, which neither overflows nor underflows."""
    return graph.add(Active(ActiveType.ACTIVE_ABSVAL), m.x)


ROOT = p(Active, "y", name="root", sole_user=True, where=is_active(ActiveType.ACTIVE_SQRT))


@rule(p(Rdivs, ROOT, name="op", where=is_float32), stage="fuse")
def fuse_reciprocal_sqrt(graph: Graph, m: Match) -> Replacement:
    """``1 / sqrt(y) -> rsqrt(y)``."""
    if m.op.op.scalar.value != 1:
        return Skip("the dividend is not 1")
    return graph.add(Active(ActiveType.ACTIVE_RSQRT), m.y)


@rule(
    p(Div, "x", ROOT, name="op", where=is_float32),
    p(Div, "x", p(Maxs, ROOT, name="limit", sole_user=True), name="op", where=is_float32),
    stage="fuse",
)
def replace_div_by_sqrt_by_rsqrt(graph: Graph, m: Match) -> Replacement:
    """``x / sqrt(y) -> x * rsqrt(y)``, and ``x / max(sqrt(y), d) -> x * rsqrt(max(y, d^2))``.

    The second form is the L2 norm at the end of many networks, with a lower limit d of the norm. The square root is
    monotone, so that max(sqrt(y), d) = sqrt(max(y, d^2)) for y >= 0. For y < 0 the root is NaN but the maximum is not:
    y must be known to be non-negative. ``x / sqrt(y + e)`` is an rms_norm, which an earlier rule recognizes.
    """
    y, name = m.y, m.op.output.name
    if m.binds("limit"):
        least = m.limit.op.scalar.value
        if not _SMALLEST_ROOT <= least <= _LARGEST_ROOT:
            return Skip("the square of the limit is beyond the range of float32")
        if not is_never_negative(y):
            return Skip("the operand of the root may be negative")
        y = graph.add(Maxs(Scalar.f32(least * least)), y, name=f"{name}:limited")
    reciprocal = graph.add(Active(ActiveType.ACTIVE_RSQRT), y, name=f"{name}:reciprocal")
    return graph.add(Mul(), m.x, reciprocal)


RECIPROCAL = p(
    Rdivs,
    "y",
    name="reciprocal",
    sole_user=True,
    where=lambda node: isinstance(node.op, Rdivs) and node.op.scalar.value == 1,
)


@rule(*either_order(Mul, "x", RECIPROCAL, name="op", where=is_float32), stage="fuse")
def fuse_reciprocal_into_div(graph: Graph, m: Match) -> Replacement:
    """``x * (1 / y) -> x / y``."""
    return graph.add(Div(), m.x, m.y)
