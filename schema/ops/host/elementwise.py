"""Element-wise host operators on flat arrays: eltwise_forward with two or more operands, unary_32f with one."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Mapping
from functools import reduce
from types import MappingProxyType

import numpy as np

from tpuconvert.schema.arithmetic.elementwise import Arithmetic, combine, in_binary64
from tpuconvert.schema.definition.extents import merge_shapes
from tpuconvert.schema.definition.op import Op, OpKind, UnaryOp, on, tpu_op
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.ops.activation import round_float
from tpuconvert.schema.ops.host.flat_tensors import check_size, flat
from tpuconvert.schema.types import F32, Array, Chip, TensorType


class EltwiseOperation(enum.IntEnum):
    """Operation that combines the arrays."""

    Product = 0
    Sum = 1
    Max = 2
    Min = 3


_ARITHMETIC: Mapping[EltwiseOperation, Arithmetic] = MappingProxyType(
    {
        EltwiseOperation.Product: Arithmetic.MUL,
        EltwiseOperation.Sum: Arithmetic.ADD,
        EltwiseOperation.Max: Arithmetic.MAX,
        EltwiseOperation.Min: Arithmetic.MIN,
    }
)


@tpu_op("eltwise_forward", OpKind.HOST, kw_only=True)
class EltwiseForward(Op):
    """Product, weighted sum, maximum or minimum of two or more arrays, computed in their order; each step is rounded.

    Shapes: every x [size], weight [number of arrays], y [size]. The last operand, weight, is required for a sum and
    None for the other operations.
    """

    type: EltwiseOperation

    inputs = (flat("src", variadic=True), flat("weight", coeff=True, optional=True))
    outputs = (flat("dst"),)
    dtypes = on(F32)

    def __post_init__(self) -> None:
        object.__setattr__(self, "type", EltwiseOperation(self.type))

    def infer(self, *operands: TensorType | None) -> tuple[TensorType]:
        """Shapes: all arrays have the same shape."""
        sources, weight = [x for x in operands[:-1] if x is not None], operands[-1] if operands else None
        if len(sources) < 2:
            raise ShapeError(f"{self.name} takes two or more arrays and the weights, which may be None")
        if (weight is not None) != (self.type is EltwiseOperation.Sum):
            raise ShapeError(f"{self.name}: {self.type.name} with the weights {weight}; only Sum has, and needs, them")
        if weight is not None:
            check_size(self, "weight", weight, len(sources))
        return (TensorType(sources[0].dtype, merge_shapes(self.name, *sources)),)

    def reference(self, *operands: Array | None) -> tuple[Array]:
        """Round after every multiplication and addition."""
        sources, weight = [x for x in operands[:-1] if x is not None], operands[-1]
        if weight is not None:
            sources = [
                combine(Arithmetic.MUL, source, factor, F32, Chip.BM1686)
                for source, factor in zip(sources, weight, strict=True)
            ]
        arithmetic = _ARITHMETIC[self.type]
        return (reduce(lambda a, b: combine(arithmetic, a, b, F32, Chip.BM1686), sources),)


class UnaryOperation(enum.IntEnum):
    """Unary functions."""

    Abs = 0
    Ceil = 1
    Cos = 2
    Erf = 3
    Exp = 4
    Floor = 5
    Log = 6
    Neg = 7
    Not = 8
    Rcp = 9
    Round = 10
    Rsqrt = 11
    Sign = 12
    Sin = 13
    Sqrt = 14
    Tanh = 15
    Zero = 16


def _invert(x: Array) -> Array:
    result: Array = np.invert(np.ascontiguousarray(x).view(np.uint32)).view(np.float32)
    return result


_erf = np.vectorize(math.erf, otypes=[np.float64])

_EXACT: Mapping[UnaryOperation, Callable[[Array], Array]] = MappingProxyType(
    {
        UnaryOperation.Abs: np.abs,
        UnaryOperation.Ceil: lambda x: np.ceil(x) + np.float32(0),
        UnaryOperation.Floor: lambda x: np.floor(x) + np.float32(0),
        UnaryOperation.Neg: np.negative,
        UnaryOperation.Not: _invert,
        UnaryOperation.Rcp: np.reciprocal,
        UnaryOperation.Round: round_float,
        UnaryOperation.Sign: np.sign,
        UnaryOperation.Sqrt: np.sqrt,
        UnaryOperation.Zero: np.zeros_like,
    }
)
"""Functions that are exact, or one IEEE operation in binary32. Results of rounding are never -0."""

_BINARY64: Mapping[UnaryOperation, Callable[[Array], Array]] = MappingProxyType(
    {
        UnaryOperation.Cos: np.cos,
        UnaryOperation.Erf: _erf,
        UnaryOperation.Exp: np.exp,
        UnaryOperation.Log: np.log,
        UnaryOperation.Rsqrt: lambda x: 1 / np.sqrt(x),
        UnaryOperation.Sin: np.sin,
        UnaryOperation.Tanh: np.tanh,
    }
)


@tpu_op("unary_32f", OpKind.HOST, kw_only=True)
class Unary32f(UnaryOp):
    """y = f(x), element-wise. Transcendental functions are evaluated in binary64 and rounded once.

    Round rounds ties away from zero, Not inverts all bits, Rcp is 1 / x, and Rsqrt is 1 / sqrt(x).

    Shapes: x [size], y the same.
    """

    type: UnaryOperation

    inputs = (flat("src"),)
    outputs = (flat("dst"),)
    dtypes = on(F32)

    def __post_init__(self) -> None:
        object.__setattr__(self, "type", UnaryOperation(self.type))

    def reference(self, x: Array) -> tuple[Array]:
        if self.type in _BINARY64:
            return (in_binary64(_BINARY64[self.type], x),)
        with np.errstate(all="ignore"):
            return (_EXACT[self.type](x),)
