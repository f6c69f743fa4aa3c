"""The logistic function and tanh of 16-bit fixed point, as the cells of integer LSTMs compute them.

An integer x with i integer bits is x / 2^(15 - i). exp is a polynomial around -1/8, times a constant for each set bit
of the multiple of 1/4. Reciprocals are computed by three steps of Newton's iteration. Every product is rounded to 16
bits.

Source: fixedpoint/fixedpoint.h of gemmlowp, with 16-bit integers.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tpuconvert.schema.arithmetic.fixed_point import shift_half_away
from tpuconvert.schema.types import Array

Integers = npt.NDArray[np.int64]

_ONE = 2**15 - 1
_ONE_WITH_2_BITS = 1 << 13


def _constant(number: int) -> int:
    """Round a constant in 32-bit fixed point to 16 bits."""
    return int(shift_half_away(np.asarray(number), 16))


_EXP_OF_EIGHTH = _constant(1895147668)  # exp(-1/8)
_THIRD = _constant(715827883)
_FACTORS = {-2: 1672461947, -1: 1302514674, 0: 790015084, 1: 290630308, 2: 39332535, 3: 720401, 4: 242}
"""Constants exp(-2^k) in Q0.31, by k."""
_START = _constant(1515870810)  # 48/17 in 16-bit fixed point with 2 integer bits
_SLOPE = _constant(-1010580540)  # -32/17


def _wrap(x: Array) -> Integers:
    wrapped: Integers = np.asarray(x).astype(np.int16).astype(np.int64)
    return wrapped


def _product(a: Array, b: Array | int) -> Integers:
    """Return the upper half of the doubled product, rounded, and saturated if both operands are -1."""
    product: Integers = np.minimum((np.asarray(a, dtype=np.int64) * b + (1 << 14)) >> 15, _ONE)
    return product


def _grown(x: Array, bits: int) -> Integers:
    """Return ``x * 2^bits``, saturated. For negative bits, ties round away from zero."""
    if bits <= 0:
        return shift_half_away(x, -bits)
    grown: Integers = np.clip(np.asarray(x, dtype=np.int64) << bits, -(2**15), _ONE)
    return grown


def _exp_near_zero(x: Integers) -> Integers:
    """Exp of fixed-point numbers in [-1/4, 0) without integer bits."""
    x = _wrap(x + (1 << 12))
    square = _product(x, x)
    cube, fourth = _product(square, x), _product(square, square)
    rest = _grown(_wrap(_product(_wrap(_grown(fourth, -2) + cube), _THIRD) + square), -1)
    power: Integers = np.clip(_EXP_OF_EIGHTH + _product(_wrap(x + rest), _EXP_OF_EIGHTH), -(2**15), _ONE)
    return power


def _exp(x: Integers, bits: int) -> Integers:
    """Exp of fixed-point numbers up to 0 with ``bits`` integer bits."""
    fraction = 15 - bits
    quarter = 1 << (fraction - 2)
    rest = (x & (quarter - 1)) - quarter
    result = _exp_near_zero(_grown(rest, bits))
    above = _wrap(rest - x)
    for bit, factor in _FACTORS.items():
        if bits > bit:
            is_set = (above & (1 << (fraction + bit))) != 0
            result = np.where(is_set, _product(result, _constant(factor)), result)
    if bits > 5:
        result = np.where(x < -(1 << (20 - bits)), 0, result)
    return np.where(x == 0, _ONE, result)


def _reciprocal_of_half_sum(x: Integers) -> tuple[Integers, Integers]:
    """Return 2 / (1 + x) with two integer bits, and (1 + x) / 2, for x in [0, 1]."""
    total = x + _ONE
    half = np.where(total >= 0, (total + 1) // 2, -((1 - total) // 2))
    reciprocal = _wrap(_START + _product(half, _SLOPE))
    for _ in range(3):
        error = _wrap(_ONE_WITH_2_BITS - _product(half, reciprocal))
        reciprocal = _wrap(reciprocal + _grown(_product(reciprocal, error), 2))
    return reciprocal, half


def logistic(x: Array) -> Array:
    """Logistic function of fixed-point numbers with 3 integer bits. The result has no integer bits."""
    x = np.asarray(x, dtype=np.int64)
    magnitude = np.where(x > 0, x, _wrap(-x))
    doubled, _ = _reciprocal_of_half_sum(_exp(_wrap(-magnitude), 3))
    positive = _grown(doubled, 1)  # Halve the value, and convert it from two integer bits to none.
    result = np.where(x > 0, positive, _wrap(_ONE - positive))
    return np.where(x == 0, 1 << 14, result).astype(np.int16)


def tanh(x: Array, bits: int) -> Array:
    """Hyperbolic tangent of fixed-point numbers with ``bits`` integer bits. The result has no integer bits."""
    x = np.asarray(x, dtype=np.int64)
    negative = np.where(x < 0, x, _wrap(-x))
    doubled, _ = _reciprocal_of_half_sum(_exp(negative, bits + 1))
    value = _grown(_wrap(doubled - _ONE_WITH_2_BITS), 2)
    return np.where(x == 0, 0, np.where(x < 0, _wrap(-value), value)).astype(np.int16)
