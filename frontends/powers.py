"""Powers: multiplications for small whole exponents, roots for +-0.5, otherwise ``exp(y * ln|x|)`` and a sign.

Special cases are defined as for ``pow`` in IEEE 754: ``x ** 0 = 1`` and ``1 ** y = 1`` even for NaN, ``(-0) ** -1 =
-inf``, and NaN only for finite ``x < 0`` and fractional ``y``.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tpuconvert.frontends import emit
from tpuconvert.frontends.value_bounds import ValueBounds
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops import formulas
from tpuconvert.schema.ops.compare import Eqs, Gts, Lts, Ne, ScalarComparison
from tpuconvert.schema.ops.generation import NumberLike
from tpuconvert.schema.ops.quantization.round_to_integer import Floor
from tpuconvert.schema.ops.selection import ConditionSelect
from tpuconvert.schema.types import Array, DType, Scalar

MAX_WHOLE_EXPONENT = 64
"""Largest magnitude of an integer exponent that is converted to multiplications."""


def constant_power(g: Graph, x: Value, exponent: float) -> Value:
    """``x ** exponent`` for one exponent; x is a computed value.

    NaN becomes a constant, which the conversion refuses like others that are not finite.
    """
    if exponent == 0:
        return g.add(NumberLike(Scalar.f32(1)), x)
    if exponent == 2:
        return formulas.square(g, x)
    if abs(exponent) <= MAX_WHOLE_EXPONENT and exponent == math.floor(exponent):
        integer_power = whole_power(g, x, abs(int(exponent)))
        return integer_power if exponent > 0 else emit.rdivs(g, 1, integer_power)
    if not math.isfinite(exponent) or exponent == math.floor(exponent):
        return power(g, x, emit.float_constant(g, np.full(1, exponent), "exponent"))
    is_known = ValueBounds(g).of(x)[0] >= 0
    return positive_power(g, x, exponent) if is_known else _fractional_power(g, x, exponent)


def positive_power(g: Graph, x: Value, exponent: float) -> Value:
    """``x ** exponent`` for one finite exponent; the result is NaN for negative ``x``."""
    if exponent == 0.5:
        return formulas.sqrt(g, x)
    if exponent == -0.5:
        return formulas.rsqrt(g, x)
    return formulas.exp(g, emit.muls(g, formulas.ln(g, x), exponent))


def _fractional_power(g: Graph, x: Value, exponent: float) -> Value:
    """``x ** exponent`` for a fractional exponent: NaN for finite ``x < 0``; ``-inf`` gives the same as ``inf``."""
    infinite = g.add(Eqs(Scalar.f32(-math.inf)), x)
    x = g.add(ConditionSelect(), infinite, emit.float_constant(g, np.full(1, np.inf), "infinity"), x)
    if exponent == -0.5:  # rsqrt(-0) is -inf
        zero = g.add(Eqs(Scalar.f32(0)), x)
        x = g.add(ConditionSelect(), zero, emit.float_constant(g, np.zeros(1), "zero"), x)
    return positive_power(g, x, exponent)


def whole_power(g: Graph, x: Value, exponent: int) -> Value:
    """``x ** exponent`` for integers from 1 on, by repeated squaring: ``x**5 = (x**2)**2 * x``. x may be INT32."""
    result: Value | None = None
    while True:
        if exponent & 1:
            result = x if result is None else emit.mul(g, result, x)
        exponent >>= 1
        if not exponent:
            assert result is not None
            return result
        x = formulas.square(g, x) if x.dtype is DType.FLOAT32 else emit.mul(g, x, x)


def are_small_and_whole(exponents: Array) -> bool:
    """Return True if all exponents are integers of magnitude 64 or less."""
    return bool(((np.abs(exponents) <= MAX_WHOLE_EXPONENT) & (exponents == np.floor(exponents))).all())


def whole_powers(g: Graph, x: Value, exponents: Array) -> Value:
    """Raise each element to its own whole exponent: multiply by a square of ``x`` for each bit that is 1.

    Args:
        g: graph that is extended.
        x: FLOAT32 or INT32.
        exponents: integers of magnitude 64 or less, nonnegative for INT32.
    """
    shape = emit.broadcast_shape(emit.extents(x), exponents.shape)
    base, result, sizes = emit.expand(g, x, shape), None, np.abs(exponents)
    for digit in range(int(sizes.max()).bit_length()):
        if digit:
            base = emit.mul(g, base, base)
        bits = np.atleast_1d((sizes >> digit) & 1)
        factor = base if bits.all() else _base_or_one(g, base, bits)
        result = factor if result is None else emit.mul(g, result, factor)
    if result is None:
        return g.add(NumberLike(Scalar(x.dtype, 1)), base)
    negative = np.atleast_1d(exponents < 0)
    if not negative.any():
        return result
    inverse = emit.rdivs(g, 1, result)
    return inverse if negative.all() else _select(g, emit.float_constant(g, negative, "negative"), inverse, result)


def _base_or_one(g: Graph, base: Value, bits: Array) -> Value:
    """``where(bits == 1, base, 1)``."""
    if base.dtype is DType.INT32:
        factor = emit.mul(g, base, g.constant(bits.astype(np.int32), name="digit"))
        return emit.add(g, factor, g.constant((1 - bits).astype(np.int32), name="digit"))
    return _select(g, emit.float_constant(g, bits, "digit"), base, _one(g))


def _select(g: Graph, condition: Value, chosen: Value, other: Value) -> Value:
    """``where(condition, chosen, other)``; a constant condition is expanded to the shape of ``chosen``."""
    if condition.is_constant:
        condition = emit.expand(g, emit.as_computed(g, condition), emit.extents(chosen))
    return g.add(ConditionSelect(), condition, chosen, other)


def _one(g: Graph) -> Value:
    return emit.float_constant(g, np.ones(1), "one")


def power(g: Graph, x: Value, y: Value) -> Value:
    """``x ** y`` with broadcasting, for any FLOAT32 x and y of which at least one is a computed value."""
    x, y = emit.align(g, x, y)
    size = _apply(g, np.abs, formulas.absolute, x)
    logarithm = _apply(g, _log, formulas.ln, size)
    magnitude = formulas.exp(g, emit.mul(g, y, logarithm))
    is_one = emit.binary(g, "max", _mask(g, y, _IS_ZERO), _mask(g, size, _IS_ONE))
    magnitude = g.add(ConditionSelect(), is_one, _one(g), magnitude)
    if ValueBounds(g).of(x)[0] > 0:
        return magnitude
    result, odd, fractional = magnitude, _apply(g, _is_odd, _odd, y), _apply(g, _is_fractional, _fractional, y)
    if _may_hold(odd):
        flipped = emit.mul(g, _apply(g, np.signbit, _has_sign, x), odd)
        result = emit.mul(g, result, emit.adds(g, emit.muls(g, flipped, -2), 1))
    if _may_hold(fractional):
        negative = emit.mul(g, _mask(g, x, _IS_NEGATIVE), _mask(g, x, _IS_ABOVE_MINUS_INFINITY))
        undefined = emit.mul(g, negative, fractional)
        nan = formulas.ln(g, emit.adds(g, emit.muls(g, undefined, -2), 1))  # ln(-1), or ln(1), which is 0
        result = emit.add(g, result, nan)
    return result


_IS_ZERO, _IS_ONE, _IS_NEGATIVE = Eqs(Scalar.f32(0)), Eqs(Scalar.f32(1)), Lts(Scalar.f32(0))
_IS_ABOVE_MINUS_INFINITY = Gts(Scalar.f32(-math.inf))


def _log(x: Array) -> Array:
    """Logarithm of a constant; the logarithm of 0 is the lowest finite number, because constants must be finite."""
    logarithm: Array = np.maximum(np.log(x.astype(np.float64)), -np.finfo(np.float32).max)
    return logarithm


def _apply(g: Graph, function: Callable[[Array], Array], add: Callable[[Graph, Value], Value], x: Value) -> Value:
    """Apply a function to a constant, or emit the nodes that compute it."""
    if not x.is_constant:
        return add(g, x)
    with np.errstate(all="ignore"):
        return emit.float_constant(g, function(x.array), x.name)


def _mask(g: Graph, x: Value, comparison: ScalarComparison) -> Value:
    return _apply(g, lambda data: comparison.reference(data)[0], lambda g, value: g.add(comparison, value), x)


def _may_hold(mask: Value) -> bool:
    return not mask.is_constant or bool(mask.array.any())


def _is_odd(y: Array) -> Array:
    return np.asarray(y - 2 * np.floor(y * 0.5) == 1)


def _odd(g: Graph, y: Value) -> Value:
    """1 where y is an odd integer; ``inf - inf`` is NaN, which is not 1."""
    rest = emit.sub(g, y, emit.muls(g, g.add(Floor(), emit.muls(g, y, 0.5)), 2))
    return g.add(_IS_ONE, rest)


def _is_fractional(y: Array) -> Array:
    return np.asarray(y != np.floor(y))


def _fractional(g: Graph, y: Value) -> Value:
    return g.add(Ne(), y, g.add(Floor(), y))


def _has_sign(g: Graph, x: Value) -> Value:
    """1 where x is negative or -0, whose reciprocal is -inf."""
    return emit.binary(g, "max", g.add(_IS_NEGATIVE, x), g.add(_IS_NEGATIVE, emit.rdivs(g, 1, x)))
