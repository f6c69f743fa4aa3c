"""Functions that the operator set does not have, written with the operators it has. All on FLOAT32."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tpuconvert.schema.graph import Graph, Value, static
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.arithmetic import Add, Mul, Sub
from tpuconvert.schema.ops.arithmetic_with_scalar import Adds, Mins, Muls, Rdivs, Rsubs
from tpuconvert.schema.ops.clamp import Clamp
from tpuconvert.schema.ops.compare import Eqs, Gts, Lts, Ne, Nes
from tpuconvert.schema.ops.matrix_mul import MatrixMul
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.round_to_integer import Floor
from tpuconvert.schema.ops.selection import ConditionSelect
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.types import Scalar

Function = Callable[[Graph, Value], Value]

_ERF = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)


def active(g: Graph, kind: ActiveType, x: Value) -> Value:
    """An activation function."""
    return g.add(Active(kind), x)


def adds(g: Graph, x: Value, number: float) -> Value:
    """Adds a number: x + number."""
    return g.add(Adds(Scalar.f32(number)), x)


def muls(g: Graph, x: Value, number: float) -> Value:
    """Multiplies by a number: x * number."""
    return g.add(Muls(Scalar.f32(number)), x)


def sign(g: Graph, x: Value) -> Value:
    """1, 0 or -1."""
    return g.add(Sub(), g.add(Gts(Scalar.f32(0)), x), g.add(Lts(Scalar.f32(0)), x))


def erf(g: Graph, x: Value) -> Value:
    """The error function by a polynomial in 1 / (1 + p |x|); absolute error below 1e-6.

    Source: Abramowitz and Stegun, formula 7.1.26.
    """
    a = active(g, ActiveType.ACTIVE_ABSVAL, x)
    t = g.add(Rdivs(Scalar.f32(1)), adds(g, muls(g, a, 0.3275911), 1))
    p = muls(g, t, _ERF[0])
    for coefficient in _ERF[1:]:
        p = g.add(Mul(), t, adds(g, p, coefficient))
    falling = active(g, ActiveType.ACTIVE_EXP, muls(g, active(g, ActiveType.ACTIVE_SQUARE, a), -1))
    magnitude = g.add(Rsubs(Scalar.f32(1)), g.add(Mul(), p, falling))
    return g.add(Mul(), sign(g, x), magnitude)


def gelu(g: Graph, x: Value) -> Value:
    """0.5 x (1 + erf(x / sqrt(2)))."""
    return g.add(Mul(), muls(g, x, 0.5), adds(g, erf(g, muls(g, x, 0.70710678118654752)), 1))


def gelu_tanh(g: Graph, x: Value) -> Value:
    """0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))."""
    cube = g.add(Mul(), active(g, ActiveType.ACTIVE_SQUARE, x), x)
    inner = muls(g, g.add(Add(), x, muls(g, cube, 0.044715)), 0.79788456080286536)
    return g.add(Mul(), muls(g, x, 0.5), adds(g, active(g, ActiveType.ACTIVE_TANH, inner), 1))


def hard_swish(g: Graph, x: Value) -> Value:
    """Computes x * clamp(x / 6 + 0.5, 0, 1)."""
    gate = g.add(Clamp(Scalar.f32(0), Scalar.f32(1)), adds(g, muls(g, x, 1 / 6), 0.5))
    return g.add(Mul(), x, gate)


def truncate(g: Graph, x: Value) -> Value:
    """The integer towards zero: sign(x) floor(|x|)."""
    return g.add(Mul(), sign(g, x), g.add(Floor(), active(g, ActiveType.ACTIVE_ABSVAL, x)))


def round_half_even(g: Graph, x: Value) -> Value:
    """The nearest integer, halves to the even one; exact for every finite x."""
    whole = g.add(Floor(), x)
    rest = g.add(Sub(), x, whole)
    up = g.add(Gts(Scalar.f32(0.5)), rest)
    tie = g.add(Eqs(Scalar.f32(0.5)), rest)
    odd = g.add(Sub(), whole, muls(g, g.add(Floor(), muls(g, whole, 0.5)), 2))
    return g.add(Add(), g.add(Add(), whole, up), g.add(Mul(), tie, odd))


def power(g: Graph, x: Value, y: Value) -> Value:
    """The power x^y for every x, operands of one shape.

    |x|^y as exp(y ln|x|), 1 where y is 0, negated for negative x and odd y, NaN for negative x and broken y.
    """
    logarithm = active(g, ActiveType.ACTIVE_LN, active(g, ActiveType.ACTIVE_ABSVAL, x))
    magnitude = active(g, ActiveType.ACTIVE_EXP, g.add(Mul(), y, logarithm))
    one = g.constant(np.ones(1, dtype=np.float32), "one")
    magnitude = g.add(ConditionSelect(), g.add(Nes(Scalar.f32(0)), y), magnitude, one)
    negative = g.add(Lts(Scalar.f32(0)), x)
    odd = g.add(Sub(), y, muls(g, g.add(Floor(), muls(g, y, 0.5)), 2))
    flipped = g.add(Mul(), negative, g.add(Eqs(Scalar.f32(1)), odd))
    signed = g.add(Mul(), magnitude, adds(g, muls(g, flipped, -2), 1))
    broken = g.add(Mul(), negative, g.add(Ne(), y, g.add(Floor(), y)))
    nan = g.constant(np.full(1, np.nan, dtype=np.float32), "nan")
    return g.add(ConditionSelect(), broken, nan, signed)


def minimum_with_zero(g: Graph, x: Value) -> Value:
    """min(x, 0)."""
    return g.add(Mins(Scalar.f32(0)), x)


def running_sum(g: Graph, x: Value, axis: int, *, exclusive: bool, reverse: bool) -> Value:
    """Sums of the elements up to each one along an axis: a product with a triangular matrix of ones."""
    shape = static(x.shape)
    extent = shape[axis]
    order = (*(i for i in range(len(shape)) if i != axis), axis)
    rows = np.ones((extent, extent), dtype=np.float32)
    triangle = np.tril(rows, -1 if exclusive else 0) if reverse else np.triu(rows, 1 if exclusive else 0)
    moved = x if order == tuple(range(len(shape))) else g.add(Permute(order=order), x)
    flat = g.add(Reshape(reshape_param=(-1, extent)), moved)
    product = g.add(MatrixMul(), flat, g.constant(triangle, "triangle"))
    shaped = g.add(Reshape(reshape_param=tuple(shape[i] for i in order)), product)
    if moved is x:
        return shaped
    return g.add(Permute(order=tuple(int(i) for i in np.argsort(order))), shaped)
