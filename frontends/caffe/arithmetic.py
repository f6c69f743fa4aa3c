"""Small formulas that several layers share, as operators."""

import math
from collections.abc import Sequence

from tpuconvert.schema.graph import Graph, Value
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.arithmetic import Add, Mul
from tpuconvert.schema.ops.arithmetic_with_scalar import Adds, Maxs, Mins, Muls, Rdivs
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.types import Scalar

_MOST_FACTORS = 64
"""Integer powers up to here are products; others go through the logarithm."""


def active(g: Graph, x: Value, kind: str) -> Value:
    """One of the functions without parameters, such as ``EXP``."""
    return g.add(Active(ActiveType[f"ACTIVE_{kind}"]), x)


def times(g: Graph, x: Value, factor: float) -> Value:
    """Multiply: x * factor; x itself when the factor is 1."""
    return x if factor == 1 else g.add(Muls(Scalar.f32(factor)), x)


def plus(g: Graph, x: Value, summand: float) -> Value:
    """Add: x + summand; x itself when the summand is 0."""
    return x if summand == 0 else g.add(Adds(Scalar.f32(summand)), x)


def at_least(g: Graph, x: Value, bound: float) -> Value:
    """max(x, bound)."""
    return g.add(Maxs(Scalar.f32(bound)), x)


def at_most(g: Graph, x: Value, bound: float) -> Value:
    """min(x, bound)."""
    return g.add(Mins(Scalar.f32(bound)), x)


def softplus(g: Graph, x: Value) -> Value:
    """ln(1 + exp(x)), written so that no exponential grows: max(x, 0) + ln(1 + exp(-abs(x)))."""
    decay = active(g, times(g, active(g, x, "ABSVAL"), -1), "EXP")
    return g.add(Add(), at_least(g, x, 0), active(g, plus(g, decay, 1), "LN"))


def power(g: Graph, x: Value, exponent: float) -> Value:
    """Raise to a power: x ** exponent, as C's pow for every x that a network may have.

    Whole exponents up to 64 and the square roots are exact operators or products of them. Other exponents are
    exp(exponent * ln(x)): NaN for negative x, as pow.
    """
    if exponent == 0:
        return plus(g, times(g, x, 0), 1)
    if exponent == 0.5:
        return active(g, x, "SQRT")
    if exponent == -0.5:
        return active(g, x, "RSQRT")
    whole = abs(exponent)
    if whole == int(whole) and whole <= _MOST_FACTORS:
        product = _whole_power(g, x, int(whole))
        return product if exponent > 0 else g.add(Rdivs(Scalar.f32(1)), product)
    if exponent == int(exponent):  # the logarithm needs the magnitude; odd powers would lose the sign
        raise ValueError(f"power {exponent:g}: whole powers beyond {_MOST_FACTORS} are not supported")
    return active(g, times(g, active(g, x, "LN"), exponent), "EXP")


def _whole_power(g: Graph, x: Value, exponent: int) -> Value:
    """By squaring: x**5 is (x**2)**2 * x."""
    result: Value | None = None
    square = x
    while exponent:
        if exponent & 1:
            result = square if result is None else g.add(Mul(), result, square)
        exponent >>= 1
        if exponent:
            square = active(g, square, "SQUARE")
    assert result is not None
    return result


def reshaped(g: Graph, x: Value, shape: Sequence[int]) -> Value:
    """Give x another shape; x itself when it has that shape."""
    return x if tuple(x.shape) == tuple(shape) else g.add(Reshape(tuple(shape)), x)


def product(extents: Sequence[int]) -> int:
    """Number of elements of a shape."""
    return math.prod(extents)
