"""How element-wise operators compute: one function per arithmetic, chosen by data type and chip.

Source: docs/semantics.md, sections 3.1, 4, 5 and 6.
"""

from __future__ import annotations

import enum
from collections.abc import Callable

import numpy as np

from tpuconvert.schema.types import I32, Array, Chip, DType


class Arithmetic(enum.Enum):
    """The operations on two numbers."""

    ADD = "add"
    SUB = "sub"
    MUL = "mul"
    DIV = "div"
    MAX = "max"
    MIN = "min"


def combine(arithmetic: Arithmetic, a: Array, b: Array, out: DType, chip: Chip) -> Array:
    """Two operands, element by element, with a result of type ``out``.

    FLOAT32 is one IEEE operation; FLOAT16 is evaluated in binary32 and rounded once. Integers are exact and saturate
    once, except INT32 on chips that compute it in binary32.
    """
    operation = _OPERATIONS[arithmetic]
    with np.errstate(all="ignore"):
        if out.is_float:
            return operation(_f32(a), _f32(b)).astype(out.numpy, copy=False)
        if out is I32 and chip is not Chip.BM1686:
            return through_binary32(operation(_f32(a), _f32(b)))
        from tpuconvert.schema.fixed_point import saturate

        return saturate(operation(a.astype(np.int64), b.astype(np.int64)), out)


def through_binary32(x: Array) -> Array:
    """The INT32 result of a computation in binary32."""
    from tpuconvert.schema.fixed_point import rhaz_i32

    return rhaz_i32(x).astype(np.int32)


def in_binary64(function: Callable[[Array], Array], x: Array) -> Array:
    """A function of binary64 numbers, rounded once to the type of ``x``."""
    with np.errstate(all="ignore"):
        return function(x.astype(np.float64)).astype(x.dtype)


def maximum(a: Array, b: Array) -> Array:
    """The larger operand; NaN where one is NaN; the second of two equal ones, which makes the sign of zero certain."""
    result: Array = np.where((a > b) | (a != a), a, b)
    return result


def minimum(a: Array, b: Array) -> Array:
    """The smaller operand; NaN where one is NaN; the second of two equal ones, which makes the sign of zero certain."""
    result: Array = np.where((a < b) | (a != a), a, b)
    return result


_OPERATIONS: dict[Arithmetic, Callable[[Array, Array], Array]] = {
    Arithmetic.ADD: np.add,
    Arithmetic.SUB: np.subtract,
    Arithmetic.MUL: np.multiply,
    Arithmetic.DIV: np.divide,
    Arithmetic.MAX: maximum,
    Arithmetic.MIN: minimum,
}


def _f32(x: Array) -> Array:
    return x.astype(np.float32, copy=False)
