"""Arithmetic identities of float operators. Each is exact or differs by one rounding."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tpuconvert.optimizer.annotations import is_interchangeable
from tpuconvert.optimizer.elementwise import may_round_integers
from tpuconvert.optimizer.engine import Replacement, Skip, rule
from tpuconvert.optimizer.pattern import Match, p
from tpuconvert.schema.graph import Graph, Node
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.arithmetic import Add, Div, Max, Min, Mul, Sub
from tpuconvert.schema.ops.arithmetic_with_scalar import Adds, Muls, Rdivs, Rsubs
from tpuconvert.schema.types import F32, Scalar

_SMALLEST, _LARGEST = 2.0**-126, 2.0**127
_CANCELS = 2.0**-10


def _is_float(node: Node) -> bool:
    return all(value is not None and value.dtype is F32 for value in (*node.inputs, *node.outputs))


def _is(kind: ActiveType) -> Callable[[Node], bool]:
    return lambda node: isinstance(node.op, Active) and node.op.active_type == kind and _is_float(node)


@rule(p(Add, "x", "x", name="op", where=_is_float), stage="canonicalize", formerly="sum_of_same")
def replace_self_add_by_muls(graph: Graph, m: Match) -> Replacement:
    """``x + x -> 2 * x``."""
    return graph.add(Muls(Scalar.f32(2)), m.x)


@rule(p(Mul, "x", "x", name="op", where=_is_float), stage="fuse", formerly="product_of_same")
def replace_self_multiply_by_square(graph: Graph, m: Match) -> Replacement:
    """``x * x -> square(x)``."""
    return graph.add(Active(ActiveType.ACTIVE_SQUARE), m.x)


@rule(p((Max, Min), "x", "x", name="op"), stage="canonicalize", formerly="extremum_of_same")
def remove_self_min_max(graph: Graph, m: Match) -> Replacement:
    """``max(x, x) -> x`` and ``min(x, x) -> x``."""
    if may_round_integers(m.op):
        return Skip("INT32 is computed in float32 on some chips")
    return m.x if is_interchangeable(m.x, m.op.output) else Skip("it changes the quantization")


@rule(
    p(Rsubs, p(Rsubs, "x", name="inner", sole_user=True, where=_is_float), name="outer", where=_is_float),
    stage="canonicalize",
    formerly="merge_differences",
)
def merge_rsubs(graph: Graph, m: Match) -> Replacement:
    """``c - (d - x) -> x + (c - d)``."""
    c, d = m.outer.op.scalar.value, m.inner.op.scalar.value
    if not math.isfinite(c - d) or (c != d and abs(c - d) < _CANCELS * max(abs(c), abs(d))):
        return Skip("the constants nearly cancel, which may be meant to round")
    return graph.add(Adds(Scalar.f32(c - d)), m.x)


@rule(
    p(Rdivs, p(Rdivs, "x", name="inner", sole_user=True, where=_is_float), name="outer", where=_is_float),
    stage="canonicalize",
    formerly="merge_quotients",
)
def merge_rdivs(graph: Graph, m: Match) -> Replacement:
    """``c / (d / x) -> x * (c / d)``."""
    c, d = m.outer.op.scalar.value, m.inner.op.scalar.value
    factor = c / d if d else math.inf
    if not _SMALLEST <= abs(factor) <= _LARGEST:
        return Skip("the quotient of the constants is beyond the range of float32")
    return graph.add(Muls(Scalar.f32(factor)), m.x)


def _is_zero_of_integers(node: Node) -> bool:
    return isinstance(node.op, Muls) and node.op.scalar.value == 0 and node.output.dtype.is_integer


@rule(p(Muls, "x", name="op", where=_is_zero_of_integers), stage="canonicalize", formerly="integer_product_with_zero")
def fold_integer_multiply_by_zero(graph: Graph, m: Match) -> Replacement:
    """``0 * x -> 0`` for integers. Some exporters compute zeros of a given shape like this."""
    result = m.op.output
    if graph.is_output(result) or result.quant is not None or not result.type.is_static:
        return Skip("it is a graph output, is quantized, or its shape is dynamic")
    return graph.constant(np.zeros(result.type.static_shape, result.dtype.numpy), f"{result.name}:zeros")


def _negates(node: Node) -> bool:
    return (isinstance(node.op, Muls) and node.op.scalar.value == -1) or (
        isinstance(node.op, Rsubs) and node.op.scalar.value == 0
    )


NEGATED = p((Muls, Rsubs), "y", name="negated", sole_user=True, where=_negates)


@rule(
    p(Add, "x", NEGATED, name="op", where=_is_float),
    p(Add, NEGATED, "x", name="op", where=_is_float),
    stage="fuse",
    formerly="sum_with_negative",
)
def fuse_negation_into_sub(graph: Graph, m: Match) -> Replacement:
    """``x + (-1) * y -> x - y``."""
    return graph.add(Sub(), m.x, m.y)


@rule(p(Sub, "x", NEGATED, name="op", where=_is_float), stage="fuse", formerly="difference_with_negative")
def fuse_negation_into_add(graph: Graph, m: Match) -> Replacement:
    """``x - (-1) * y -> x + y``."""
    return graph.add(Add(), m.x, m.y)


@rule(
    p(
        Active,
        p(Active, "x", name="square", sole_user=True, where=_is(ActiveType.ACTIVE_SQUARE)),
        name="root",
        where=_is(ActiveType.ACTIVE_SQRT),
    ),
    stage="canonicalize",
    formerly="root_of_square",
)
def replace_sqrt_of_square_by_abs(graph: Graph, m: Match) -> Replacement:
    """``sqrt(x^2) -> |x|``, which neither overflows nor underflows."""
    return graph.add(Active(ActiveType.ACTIVE_ABSVAL), m.x)


ROOT = p(Active, "y", name="root", sole_user=True, where=_is(ActiveType.ACTIVE_SQRT))


@rule(p(Rdivs, ROOT, name="op", where=_is_float), stage="fuse", formerly="reciprocal_of_root")
def fuse_reciprocal_sqrt(graph: Graph, m: Match) -> Replacement:
    """``1 / sqrt(y) -> rsqrt(y)``."""
    if m.op.op.scalar.value != 1:
        return Skip("the dividend is not 1")
    return graph.add(Active(ActiveType.ACTIVE_RSQRT), m.y)


RECIPROCAL = p(
    Rdivs,
    "y",
    name="reciprocal",
    sole_user=True,
    where=lambda node: isinstance(node.op, Rdivs) and node.op.scalar.value == 1,
)


@rule(
    p(Mul, "x", RECIPROCAL, name="op", where=_is_float),
    p(Mul, RECIPROCAL, "x", name="op", where=_is_float),
    stage="fuse",
    formerly="product_as_quotient",
)
def fuse_reciprocal_into_div(graph: Graph, m: Match) -> Replacement:
    """``x * (1 / y) -> x / y``."""
    return graph.add(Div(), m.x, m.y)
