"""Element-wise arithmetic with broadcasting: Add, Sub, Mul, Div, Mod, Pow, and Sum, Max, Min, Mean of all inputs."""

from __future__ import annotations

import math

import numpy as np

from tpuconvert.frontends import emit, functions, powers
from tpuconvert.frontends.onnx.file.element_types import SMALL
from tpuconvert.frontends.onnx.node import OnnxNode, Result, onnx_op
from tpuconvert.frontends.registry import Kind
from tpuconvert.frontends.small_integers import as_integers, small_product, small_sum
from tpuconvert.schema.errors import UNSUPPORTED_TYPE
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops import formulas
from tpuconvert.schema.ops.compare import Eq, Eqs, Lts
from tpuconvert.schema.ops.quantization.round_to_integer import Floor
from tpuconvert.schema.ops.selection import ConditionSelect
from tpuconvert.schema.types import Array, DType, Scalar

BEFORE_NUMPY_BROADCASTING = 7
"""First opset with NumPy broadcasting. Before, only the second operand is broadcast, aligned by an attribute."""


_ARITHMETIC = (DType.FLOAT32, DType.INT32, *SMALL)


def operands(node: OnnxNode) -> tuple[Value, Value]:
    """Return both operands of an element-wise operator, aligned on the right."""
    a, b = node.input(0), node.input(1)
    if node.version < BEFORE_NUMPY_BROADCASTING:
        b = _aligned_by_attribute(node, a, b)
    if a.dtype not in _ARITHMETIC:
        raise node.fail(UNSUPPORTED_TYPE, f"its input is {node.element(0)}", "supported: numbers")
    if a.dtype is not b.dtype:
        raise node.invalid(f"operands of types {node.element(0)} and {node.element(1)}")
    return a, b


def _aligned_by_attribute(node: OnnxNode, a: Value, b: Value) -> Value:
    axis = node.optional_attr("axis")
    if not node.attr("broadcast", 0):
        if node.shape(0) != node.shape(1):
            raise node.invalid(f"shapes {list(node.shape(0))} and {list(node.shape(1))} without broadcast")
        return b
    if axis is None:
        return b
    first = node.axis(axis, node.rank(0))
    after = node.rank(0) - first - node.rank(1)
    return emit.reshape(node.graph, b, emit.extents(b) + (1,) * max(after, 0))


@onnx_op("Add", "Sub", since=1, kind=Kind.DIRECT)
def add_or_subtract(node: OnnxNode, g: Graph) -> Result:
    """``a + b``, or ``a - b``."""
    a, b = operands(node)
    add = small_sum if a.dtype in SMALL else emit.binary
    return node.elementwise(add(g, node.op_type.lower(), a, b))


@onnx_op("Mul", since=1, kind=Kind.DIRECT)
def multiply(node: OnnxNode, g: Graph) -> Result:
    """``a * b``."""
    a, b = operands(node)
    if a.dtype in SMALL:
        return node.elementwise(small_product(g, a, b))
    return node.elementwise(emit.mul(g, a, b))


@onnx_op("Div", since=1, kind=Kind.DIRECT)
def divide(node: OnnxNode, g: Graph) -> Result:
    """``a / b``; integer division truncates toward zero and is computed in FLOAT32 (exact below 2^24)."""
    a, b = operands(node)
    if a.dtype is DType.FLOAT32:
        return node.elementwise(emit.div(g, a, b))
    quotient = functions.truncate(g, emit.div(g, *(as_float_operand(g, x) for x in (a, b))))
    return node.elementwise(as_integers(g, quotient, a.dtype))  # the lowest integer divided by -1 wraps around


def as_float_operand(g: Graph, x: Value) -> Value:
    """Cast an operand to FLOAT32; a constant is converted directly."""
    if x.is_constant and x.dtype is not DType.FLOAT32:
        return emit.float_constant(g, x.array, x.name)
    return emit.as_float(g, x)


def _chain(node: OnnxNode, g: Graph, function: str) -> Value:
    values = [node.input(index) for index in range(len(node.inputs))]
    if not values or values[0].dtype not in _ARITHMETIC:
        raise node.fail(UNSUPPORTED_TYPE, "its inputs", "supported: numbers")
    combine = small_sum if function == "add" and values[0].dtype in SMALL else emit.binary
    y = values[0]
    for value in values[1:]:
        y = combine(g, function, y, value)
    return y


@onnx_op("Sum", since=1)
def sum_(node: OnnxNode, g: Graph) -> Result:
    """Element-wise sum of all inputs."""
    return node.elementwise(_chain(node, g, "add"))


@onnx_op("Max", "Min", since=1, kind=Kind.DIRECT)
def maximum_or_minimum(node: OnnxNode, g: Graph) -> Result:
    """Element-wise maximum or minimum of all inputs."""
    return node.elementwise(_chain(node, g, node.op_type.lower()))


@onnx_op("Mean", since=1)
def mean(node: OnnxNode, g: Graph) -> Result:
    """Element-wise mean of all inputs."""
    return node.elementwise(emit.divs(g, emit.floats(_chain(node, g, "add")), len(node.inputs)))


@onnx_op("Mod", since=10, limits="floats: quotients up to 2^24")
def modulo(node: OnnxNode, g: Graph) -> Result:
    """``x - y * floor(x / y)``; with ``fmod`` the division truncates. Integers are cast to FLOAT32."""
    a, b = operands(node)
    x, y = (as_float_operand(g, value) for value in (a, b))
    quotient = emit.div(g, x, y)
    is_truncated = bool(node.attr("fmod", 0))
    integer = functions.truncate(g, quotient) if is_truncated else g.add(Floor(), quotient)
    rest = emit.sub(g, x, emit.mul(g, integer, y))
    if a.dtype.is_integer:
        return node.elementwise(emit.cast(g, rest, a.dtype))
    is_finite = y.is_constant and bool(np.isfinite(y.array).all())
    return node.elementwise(rest if is_finite else _rest(g, x, y, rest, is_truncated))


def _rest(g: Graph, x: Value, y: Value, rest: Value, is_truncated: bool) -> Value:
    """Correct the remainder of finite ``x`` by infinite ``y``, for which the formula gives NaN."""
    x, y, rest = emit.align(g, x, y, rest)
    shape = emit.broadcast_shape(emit.extents(x), emit.extents(y))
    wide = widened_to(g, x, shape)
    is_infinite = g.add(Eqs(Scalar.f32(math.inf)), formulas.absolute(g, widened_to(g, y, shape)))
    other = wide
    if not is_truncated:  # with floored division, the remainder is y if the signs differ
        is_other_sign = g.add(Lts(Scalar.f32(0)), emit.mul(g, wide, y))
        other = g.add(ConditionSelect(), is_other_sign, widened_to(g, y, shape), wide)
    is_finite = g.add(Eq(), emit.sub(g, wide, wide), emit.muls(g, wide, 0))
    is_infinite = emit.mul(g, is_infinite, is_finite)
    return g.add(ConditionSelect(), is_infinite, other, rest)


def widened_to(g: Graph, x: Value, shape: tuple[int, ...]) -> Value:
    """Broadcast ``x`` to a shape; the result is never a constant, because ``condition_select`` does not accept one."""
    return emit.expand(g, emit.as_computed(g, x), shape)


@onnx_op("Pow", since=1, limits="integer bases with constant whole exponents from 0 to 64")
def power(node: OnnxNode, g: Graph) -> Result:
    """``x ** y``: multiplications and roots for constant ``y``, otherwise ``exp(y * ln|x|)`` with its sign."""
    if node.version < BEFORE_NUMPY_BROADCASTING:
        exponents = _aligned_by_attribute(node, node.input(0), node.input(1)).array if node.is_constant(1) else None
    else:
        exponents = node.constant(1) if node.is_constant(1) else None
    if not node.element(0).is_float:
        return node.elementwise(_integer_power(node, g, exponents))
    x = node.input(0)
    if exponents is None or x.is_constant:
        return node.elementwise(powers.power(g, x, as_float_operand(g, node.input(1))))
    exponents = exponents.astype(np.float32)
    is_one = exponents.size == 1 or (exponents.size > 0 and bool((exponents == exponents.reshape(-1)[0]).all()))
    if is_one and emit.broadcast_shape(exponents.shape, emit.extents(x)) == emit.extents(x):
        return node.elementwise(powers.constant_power(g, x, float(exponents.reshape(-1)[0])))
    if exponents.size and powers.are_small_and_whole(exponents):
        return node.elementwise(powers.whole_powers(g, x, exponents.astype(np.int32)))
    return node.elementwise(powers.power(g, x, emit.float_constant(g, np.atleast_1d(exponents), "exponents")))


def _integer_power(node: OnnxNode, g: Graph, exponents: Array | None) -> Value:
    """Raise integers to constant exponents."""
    x = node.input(0)
    if exponents is None or not exponents.size or not powers.are_small_and_whole(exponents) or (exponents < 0).any():
        hint = "supported: constant whole exponents from 0 to 64"
        raise node.fail(UNSUPPORTED_TYPE, "a power of integers", hint, needs=node.tensor(1))
    if x.dtype not in SMALL:
        return powers.whole_powers(g, x, exponents.astype(np.int32))
    raise node.fail(UNSUPPORTED_TYPE, f"a power of {node.element(0)}", "supported: int32, int64 and floating point")
