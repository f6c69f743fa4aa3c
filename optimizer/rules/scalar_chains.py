"""Canonicalization and merging of constant operands.

A constant whose elements are all equal becomes a scalar; ``x * a * b -> x * (a * b)`` and ``x + a - b -> x + (a - b)``.
Sums and products of constants are computed in float64 and rounded once.

Additions whose constants nearly cancel are not merged: adding and subtracting a large number rounds to a multiple of
its ULP on purpose.
"""

from __future__ import annotations

import math

import numpy as np

from tpuconvert.optimizer.engine.engine import Replacement, Skip, rule
from tpuconvert.optimizer.engine.node_properties import is_float32, operand, operands, scalar_factor
from tpuconvert.optimizer.engine.pattern import Match, either_order, p
from tpuconvert.schema.definition.op import Op
from tpuconvert.schema.graph.graph import Graph, Node, Value
from tpuconvert.schema.ops.arithmetic import Add, BinaryArithmetic, Div, Mul, Sub
from tpuconvert.schema.ops.arithmetic_with_scalar import Adds, Divs, Muls, Rsubs, ScalarArithmetic, Subs, with_scalar
from tpuconvert.schema.types import F32, Scalar

_CANCELS = 2.0**-10
_SMALLEST = float(np.finfo(np.float32).tiny)


def _has_uniform_constant(node: Node) -> bool:
    first, second = operands(node)
    constant, other = (first, second) if first.is_constant else (second, first)
    if not constant.is_constant or other.is_constant or constant.dtype is not F32 or constant.stored is not None:
        return False
    if (first.is_constant and isinstance(node.op, Div)) or other.type != node.outputs[0].type:
        return False
    data = constant.array
    if data.size == 0 or data.flat[0] != data.flat[-1]:
        return False
    return bool((data == data.flat[0]).all() and (np.signbit(data) == np.signbit(data.flat[0])).all())


@rule(*either_order(BinaryArithmetic, "C", "x", name="op", where=_has_uniform_constant), stage="canonicalize")
def convert_uniform_constant_to_scalar(graph: Graph, m: Match) -> Replacement:
    """``x + C -> x + c`` if all elements of C are equal, and likewise for other operators."""
    number = Scalar(F32, float(m.C.array.flat[0]))
    if isinstance(m.op.op, Sub) and m.C is m.op.inputs[0]:
        return graph.add(Rsubs(number), m.x)
    return graph.add(with_scalar(m.op.op.arithmetic, number), m.x)


SCALED = p((Muls, Divs), "x", name="first", sole_user=True, where=is_float32)
SHIFTED = p((Adds, Subs), "x", name="first", sole_user=True, where=is_float32)


@rule(p((Muls, Divs), SCALED, name="second", where=is_float32), stage="canonicalize")
def merge_scalar_multiplies(graph: Graph, m: Match) -> Replacement:
    """``x * a * b -> x * (a * b)``. A division counts as a multiply by the reciprocal."""
    first, second = scalar_factor(m.first.op), scalar_factor(m.second.op)
    factor = first * second
    if not math.isfinite(factor) or not _SMALLEST <= abs(factor) <= float(np.finfo(np.float32).max):
        return Skip("the product of the factors is beyond the range of float32")
    return graph.add(Muls(Scalar.f32(factor)), m.x)


@rule(p((Adds, Subs), SHIFTED, name="second", where=is_float32), stage="canonicalize")
def merge_scalar_adds(graph: Graph, m: Match) -> Replacement:
    """``x + a + b -> x + (a + b)``."""
    first, second = _shift(m.first.op), _shift(m.second.op)
    total = first + second
    if not math.isfinite(total) or abs(total) < _CANCELS * max(abs(first), abs(second)):
        return Skip("the constants nearly cancel, which may be meant to round")
    return graph.add(Adds(Scalar.f32(total)), m.x)


def _shift(op: Op) -> float:
    assert isinstance(op, (Adds, Subs))
    return op.scalar.value if isinstance(op, Adds) else -op.scalar.value


@rule(
    p(Mul, p(Mul, "x", "A", name="first", sole_user=True), "B", name="second", where=is_float32),
    p(Add, p(Add, "x", "A", name="first", sole_user=True), "B", name="second", where=is_float32),
    stage="canonicalize",
)
def merge_constants(graph: Graph, m: Match) -> Replacement:
    """``(x op A) op B -> x op (A op B)`` for add and mul with constants of equal rank."""
    if m.x.is_constant or m.A.stored is not None or m.B.stored is not None or m.A.dtype is not F32:
        return Skip("an operand is not a plain constant")
    shape = np.broadcast_shapes(m.A.array.shape, m.B.array.shape)
    if math.prod(shape) > max(m.A.array.size, m.B.array.size):
        return Skip("the merged constant would be larger than both")
    a, b = (value.array.astype(np.float64) for value in (m.A, m.B))
    joined = a * b if isinstance(m.second.op, Mul) else a + b
    if _loses_digits(m.second.op, joined, a, b):
        return Skip("the merged constant loses precision")
    constant: Value = graph.constant(joined.astype(np.float32), m.B.name)
    return graph.add(m.second.op, m.x, constant)


def _has_plain_constant(node: Node) -> bool:
    constant = operand(node, 1)
    return constant.is_constant and constant.stored is None and is_float32(node)


@rule(
    p(Mul, SCALED, "C", name="op", where=_has_plain_constant),
    p(Add, SHIFTED, "C", name="op", where=_has_plain_constant),
    p((Muls, Divs), p(Mul, "x", "C", name="first", sole_user=True, where=_has_plain_constant), name="op"),
    p((Adds, Subs), p(Add, "x", "C", name="first", sole_user=True, where=_has_plain_constant), name="op"),
    stage="canonicalize",
)
def fold_scalar_into_constant(graph: Graph, m: Match) -> Replacement:
    """``x * a * C -> x * (a * C)`` and ``x + a + C -> x + (a + C)``, also with the constant first."""
    if m.x.is_constant or m.C.array.size == 0:
        return Skip("the other operand is constant, or the constant is empty")
    scalar = m.op.op if isinstance(m.op.op, ScalarArithmetic) else m.first.op
    is_product = isinstance(scalar, (Muls, Divs))
    number = scalar_factor(scalar) if is_product else _shift(scalar)
    data = m.C.array.astype(np.float64)
    with np.errstate(all="ignore"):
        joined = data * number if is_product else data + number
    op: Op = Mul() if is_product else Add()
    if _loses_digits(op, joined, data, np.full_like(data, number)):
        return Skip("the merged constant loses precision")
    return graph.add(op, m.x, graph.constant(joined.astype(np.float32), m.C.name))


def _loses_digits(op: Op, joined: np.ndarray, a: np.ndarray, b: np.ndarray) -> bool:
    if not np.isfinite(joined).all() or (np.abs(joined) > np.finfo(np.float32).max).any():
        return True
    if isinstance(op, Mul):
        return bool((np.abs(joined) < np.where(a * b == 0, 0.0, _SMALLEST)).any())
    return bool((np.abs(joined) < _CANCELS * np.maximum(np.abs(a), np.abs(b))).any())


@rule(
    p((Add, Mul), "C", "x", name="op", where=lambda node: not (node.inputs[1] is None or node.inputs[1].is_constant)),
    stage="canonicalize",
)
def move_constant_second(graph: Graph, m: Match) -> Replacement:
    """``C + x -> x + C`` and ``C * x -> x * C``. Other rules expect the constant as second operand."""
    return graph.add(m.op.op, m.x, m.C)
