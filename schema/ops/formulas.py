"""Functions that add TPU operators to a graph, for the expansions of composite operators.

Operands and results are FLOAT32. A constant is reshaped, permuted or sliced immediately, without adding a node.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import numpy as np

from tpuconvert.schema.definition.op import Op
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.arithmetic import Add, BinaryArithmetic, Div, Mul, Sub
from tpuconvert.schema.ops.arithmetic_with_scalar import Adds, Muls, Rsubs
from tpuconvert.schema.ops.clamp import Clamp
from tpuconvert.schema.ops.compare import Gts, Lts
from tpuconvert.schema.ops.concat import Concat
from tpuconvert.schema.ops.extract import Extract
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.reduce import Reduce, ReduceMethodType
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.types import Array, Scalar


def extents(op: Op, x: Value) -> tuple[int, ...]:
    """Return the shape of an operand, which must be static for the expansion.

    Raises:
        ShapeError: an extent is symbolic.

    """
    if not x.type.is_static:
        raise ShapeError(f"{op.name} can only be expanded for extents that are numbers, got {x.type}")
    return x.type.static_shape


def _binary(kind: type[BinaryArithmetic]) -> Callable[[Graph, Value, Value], Value]:
    return lambda g, x, y: g.add(kind(), x, y)


add = _binary(Add)


sub = _binary(Sub)


mul = _binary(Mul)


div = _binary(Div)


def adds(g: Graph, x: Value, number: float) -> Value:
    """``x + number``."""
    return g.add(Adds(Scalar.f32(number)), x)


def muls(g: Graph, x: Value, number: float) -> Value:
    """``number * x``."""
    return g.add(Muls(Scalar.f32(number)), x)


def rsubs(g: Graph, number: float, x: Value) -> Value:
    """``number - x``."""
    return g.add(Rsubs(Scalar.f32(number)), x)


def reciprocal(g: Graph, x: Value) -> Value:
    """``1 / x``, as a division of tensors because every chip supports it."""
    return g.add(Div(), g.constant(np.ones((1,) * x.rank, np.float32), "one"), x)


def clamp(g: Graph, x: Value, low: float, high: float) -> Value:
    """``min(max(x, low), high)``."""
    return g.add(Clamp(Scalar.f32(low), Scalar.f32(high)), x)


def active(g: Graph, function: ActiveType, x: Value) -> Value:
    """Apply an activation function."""
    return g.add(_active(function), x)


@functools.lru_cache
def _active(function: ActiveType) -> Active:
    """Create the operator once per function, because networks have many such nodes."""
    return Active(function)


def _unary(function: ActiveType) -> Callable[[Graph, Value], Value]:
    return lambda g, x: active(g, function, x)


relu = _unary(ActiveType.ACTIVE_RELU)
sigmoid = _unary(ActiveType.ACTIVE_SIGMOID)
tanh = _unary(ActiveType.ACTIVE_TANH)
exp = _unary(ActiveType.ACTIVE_EXP)
ln = _unary(ActiveType.ACTIVE_LN)
sqrt = _unary(ActiveType.ACTIVE_SQRT)
square = _unary(ActiveType.ACTIVE_SQUARE)
rsqrt = _unary(ActiveType.ACTIVE_RSQRT)
absolute = _unary(ActiveType.ACTIVE_ABSVAL)


def sign(g: Graph, x: Value) -> Value:
    """Sign of x: 1, 0 or -1; 0 for NaN."""
    return sub(g, g.add(Gts(Scalar.f32(0)), x), g.add(Lts(Scalar.f32(0)), x))


def erf(g: Graph, x: Value) -> Value:
    """Approximate the error function by a polynomial. The absolute error is below 1e-6.

    erf(x) = sign(x) * (1 - p(t) * exp(-x * x)) with t = 1 / (1 + 0.3275911 * |x|).
    """
    t = reciprocal(g, adds(g, muls(g, absolute(g, x), 0.3275911), 1))
    p = muls(g, t, 1.061405429)
    for coefficient in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        p = mul(g, adds(g, p, coefficient), t)
    tail = mul(g, p, exp(g, muls(g, square(g, x), -1)))
    return mul(g, sign(g, x), rsubs(g, 1, tail))


def softplus(g: Graph, x: Value) -> Value:
    """``max(x, 0) + ln(1 + exp(-|x|))``, which cannot overflow."""
    return add(g, relu(g, x), ln(g, adds(g, exp(g, muls(g, absolute(g, x), -1)), 1)))


def reduce(g: Graph, method: ReduceMethodType, x: Value, axes: Sequence[int]) -> Value:
    """Reduce along axes, which keep extent 1."""
    return g.add(Reduce(tuple(axes), method), x)


def mean(g: Graph, x: Value, axes: Sequence[int]) -> Value:
    """Mean along axes, which keep extent 1."""
    return reduce(g, ReduceMethodType.REDUCE_MEAN, x, axes)


def total(g: Graph, x: Value, axes: Sequence[int]) -> Value:
    """Sum along axes, which keep extent 1."""
    return reduce(g, ReduceMethodType.REDUCE_SUM, x, axes)


def matmul(g: Graph, x: Value, w: Value, bias: Value | None = None) -> Value:
    """``x @ w + bias``."""
    return g.add(MatrixMul(), x, w) if bias is None else g.add(MatrixMul(), x, w, bias)


def concat(g: Graph, parts: Sequence[Value], axis: int) -> Value:
    """Join tensors along an axis; one tensor stays as it is."""
    return g.add(Concat(axis), *parts) if len(parts) > 1 else parts[0]


def reshape(g: Graph, x: Value, shape: Sequence[int]) -> Value:
    """Reshape x. Add no node if x has this shape already."""
    if tuple(shape) == x.shape:
        return x
    if x.data is not None:
        return g.constant(x.data.reshape(shape), x.name)
    return g.add(Reshape(tuple(shape)), x)


def permute(g: Graph, x: Value, order: Sequence[int]) -> Value:
    """Permute axes: axis k of the result is axis ``order[k]`` of x."""
    if x.data is not None:
        return g.constant(np.ascontiguousarray(x.data.transpose(order)), x.name)
    return g.add(Permute(tuple(order)), x)


def multiply_along_axis(g: Graph, x: Value, axis: int, matrix: Array) -> Value:
    """Multiply every vector along an axis of x, which has a static shape, by a constant matrix [extent, new extent]."""
    shape = x.type.static_shape
    order = [k for k in range(x.rank) if k != axis] + [axis]
    lead = [shape[k] for k in order[:-1]]
    rows = reshape(g, permute(g, x, order), (math.prod(lead), shape[axis]))
    y = g.add(MatrixMul(), rows, g.constant(np.ascontiguousarray(matrix), "matrix"))
    return permute(g, reshape(g, y, (*lead, matrix.shape[1])), [order.index(k) for k in range(x.rank)])


def slice_axis(g: Graph, x: Value, axis: int, start: int, end: int) -> Value:
    """Slice x, which has a static shape, from ``start`` to ``end`` on one axis. Add no node if that is all of x."""
    shape = x.type.static_shape
    if (start, end) == (0, shape[axis]):
        return x
    if x.data is not None:
        return g.constant(np.ascontiguousarray(x.data[(slice(None),) * axis + (slice(start, end),)]), x.name)
    first = [0] * len(shape)
    last = list(shape)
    first[axis], last[axis] = start, end
    return g.add(Extract(tuple(first), tuple(last), (1,) * len(shape)), x)
