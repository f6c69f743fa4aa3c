"""Arithmetic of element-wise operators, selected by data type and chip.

Source: docs/inside/semantics.md, sections 3.1, 4, 5 and 6.
"""

from __future__ import annotations

import enum
from collections.abc import Callable

import numpy as np

from tpuconvert.schema.arithmetic.fixed_point import rhaz_i32, saturate
from tpuconvert.schema.types import I32, Array, Chip, DType


class Arithmetic(enum.Enum):
    """Binary operations."""

    ADD = "add"
    SUB = "sub"
    MUL = "mul"
    DIV = "div"
    MAX = "max"
    MIN = "min"


def combine(arithmetic: Arithmetic, a: Array, b: Array, out: DType, chip: Chip) -> Array:
    """Apply a binary operation element-wise; the result has the type ``out``.

    FLOAT32 is one IEEE operation; FLOAT16 is computed in float32 and rounded once. Integers are computed exactly and
    saturated once, but BM1682 and BM1684 compute INT32 in float32.
    """
    operation = _OPERATIONS[arithmetic]
    with np.errstate(all="ignore"):
        if out.is_float:
            return operation(_f32(a), _f32(b)).astype(out.numpy, copy=False)
        if out is I32 and chip is not Chip.BM1686:
            return through_binary32(operation(_f32(a), _f32(b)))

        return saturate(operation(a.astype(np.int64), b.astype(np.int64)), out)


def through_binary32(x: Array) -> Array:
    """Round the float32 result of an INT32 computation to INT32; ties round away from zero."""
    return rhaz_i32(x).astype(np.int32)


def in_binary64(function: Callable[[Array], Array], x: Array) -> Array:
    """Apply a function in float64 and round once to the type of ``x``."""
    with np.errstate(all="ignore"):
        return function(x.astype(np.float64)).astype(x.dtype)


def maximum(a: Array, b: Array) -> Array:
    """Maximum; NaN if an operand is NaN. Of two equal operands (0 and -0) it is the second."""
    result: Array = np.where((a > b) | (a != a), a, b)
    return result


def minimum(a: Array, b: Array) -> Array:
    """Minimum; NaN if an operand is NaN. Of two equal operands (0 and -0) it is the second."""
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
