"""Arithmetic of two and more tensors with right-aligned broadcasting: sums, products, powers, remainders, extremes."""

import math

import numpy as np

from tpuconvert.frontends.onnx import emit
from tpuconvert.frontends.onnx.node import OnnxNode, Result, onnx_op
from tpuconvert.frontends.onnx.small_integers import SMALL, small_product, small_sum
from tpuconvert.frontends.registry import Kind
from tpuconvert.schema.errors import INVALID_NODE, UNSUPPORTED_TYPE
from tpuconvert.schema.graph import Graph, Value
from tpuconvert.schema.ops.activation import ActiveType
from tpuconvert.schema.ops.compare import Eq, Eqs, Lts
from tpuconvert.schema.ops.copy import Constdata
from tpuconvert.schema.ops.round_to_integer import Ceil, Floor
from tpuconvert.schema.ops.selection import ConditionSelect
from tpuconvert.schema.types import Array, DType, Scalar

BEFORE_NUMPY_BROADCASTING = 7
"""Until opset 6 the second operand was aligned by an attribute, and only it was repeated."""


_ARITHMETIC = (DType.FLOAT32, DType.INT32, *SMALL)


def operands(node: OnnxNode) -> tuple[Value, Value]:
    """Both operands of an element-wise operator, aligned on the right."""
    a, b = node.input(0), node.input(1)
    if node.version < BEFORE_NUMPY_BROADCASTING:
        b = _aligned_by_attribute(node, a, b)
    if a.dtype not in _ARITHMETIC:
        raise node.fail(UNSUPPORTED_TYPE, f"its input is {node.element(0)}", "supported: numbers")
    if a.dtype is not b.dtype:
        raise node.fail(INVALID_NODE, f"operands of types {node.element(0)} and {node.element(1)}")
    return a, b


def _aligned_by_attribute(node: OnnxNode, a: Value, b: Value) -> Value:
    axis = node.optional_attr("axis")
    if not node.attr("broadcast", 0):
        if node.shape(0) != node.shape(1):
            raise node.fail(INVALID_NODE, f"shapes {list(node.shape(0))} and {list(node.shape(1))} without broadcast")
        return b
    if axis is None:
        return b
    first = node.axis(axis, node.rank(0))
    behind = node.rank(0) - first - node.rank(1)
    return emit.reshape(node.graph, b, emit.extents(b) + (1,) * max(behind, 0))


def _sum(g: Graph, function: str, a: Value, b: Value) -> Value:
    return small_sum(g, function, a, b) if a.dtype in SMALL else emit.binary(g, function, a, b)


@onnx_op("Add", since=1, kind=Kind.DIRECT)
def add(node: OnnxNode, g: Graph) -> Result:
    """``a + b``."""
    return node.elementwise(_sum(g, "add", *operands(node)))


@onnx_op("Sub", since=1, kind=Kind.DIRECT)
def subtract(node: OnnxNode, g: Graph) -> Result:
    """``a - b``."""
    return node.elementwise(_sum(g, "sub", *operands(node)))


@onnx_op("Mul", since=1, kind=Kind.DIRECT)
def multiply(node: OnnxNode, g: Graph) -> Result:
    """``a * b``."""
    a, b = operands(node)
    return node.elementwise(small_product(g, a, b) if a.dtype in SMALL else emit.mul(g, a, b))


def truncate(g: Graph, x: Value) -> Value:
    """The whole part of x: floor above 0, ceil below."""
    return g.add(ConditionSelect(), g.add(Lts(Scalar.f32(0)), x), g.add(Ceil(), x), g.add(Floor(), x))


@onnx_op("Div", since=1, kind=Kind.DIRECT)
def divide(node: OnnxNode, g: Graph) -> Result:
    """``a / b``; integers are divided towards zero, through FLOAT32 (exact below 2^24)."""
    a, b = operands(node)
    if a.dtype is DType.FLOAT32:
        return node.elementwise(emit.div(g, a, b))
    quotient = emit.div(g, *(_as_float_operand(g, x) for x in (a, b)))
    return node.elementwise(emit.cast(g, truncate(g, quotient), a.dtype))


def _as_float_operand(g: Graph, x: Value) -> Value:
    if x.is_constant:
        return emit.float_constant(g, x.array, x.name)
    return emit.as_float(g, x)


@onnx_op("Mod", since=10)
def modulo(node: OnnxNode, g: Graph) -> Result:
    """``x - y * floor(x / y)``; with fmod the quotient is truncated. Integers go through FLOAT32."""
    a, b = operands(node)
    x, y = (_as_float_operand(g, value) for value in (a, b))
    quotient = emit.div(g, x, y)
    is_truncated = bool(node.attr("fmod", 0))
    whole = truncate(g, quotient) if is_truncated else g.add(Floor(), quotient)
    rest = emit.sub(g, x, emit.mul(g, whole, y))
    if a.dtype.is_integer:
        return node.elementwise(emit.cast(g, rest, a.dtype))
    is_finite = y.is_constant and bool(np.isfinite(y.array).all())
    return node.elementwise(rest if is_finite else _rest(g, x, y, rest, is_truncated))


def _rest(g: Graph, x: Value, y: Value, rest: Value, is_truncated: bool) -> Value:
    """The remainder also for an infinite y, where the product of the formula is not a number."""
    x, y, rest = emit.align(g, x, y, rest)
    shape = emit.broadcast_shape(emit.extents(x), emit.extents(y))
    wide = _widened(g, x, shape)
    is_infinite = g.add(Eqs(Scalar.f32(math.inf)), emit.absolute(g, _widened(g, y, shape)))
    other = wide
    if not is_truncated:  # of different signs: y itself
        is_other_sign = g.add(Lts(Scalar.f32(0)), emit.mul(g, wide, y))
        other = g.add(ConditionSelect(), is_other_sign, _widened(g, y, shape), wide)
    is_finite = g.add(Eq(), emit.sub(g, wide, wide), emit.muls(g, wide, 0))
    is_infinite = emit.mul(g, is_infinite, is_finite)
    return g.add(ConditionSelect(), is_infinite, other, rest)


def _widened(g: Graph, x: Value, shape: tuple[int, ...]) -> Value:
    """A value in the full shape, no constant: the choice takes none."""
    return emit.expand(g, g.add(Constdata(), x) if x.is_constant else x, shape)


def _chain(node: OnnxNode, g: Graph, function: str) -> Value:
    values = [node.input(index) for index in range(len(node.inputs))]
    accepted = (DType.FLOAT32, DType.INT32) if function == "add" else _ARITHMETIC
    if not values or values[0].dtype not in accepted:
        raise node.fail(UNSUPPORTED_TYPE, "its inputs", "supported: floating point, int32, int64")
    found = values[0]
    for value in values[1:]:
        found = emit.binary(g, function, found, value)
    return found


@onnx_op("Sum", since=1)
def sum_(node: OnnxNode, g: Graph) -> Result:
    """Sum of all inputs."""
    return node.elementwise(_chain(node, g, "add"))


@onnx_op("Max", since=1, kind=Kind.DIRECT)
def maximum(node: OnnxNode, g: Graph) -> Result:
    """Largest of all inputs."""
    return node.elementwise(_chain(node, g, "max"))


@onnx_op("Min", since=1, kind=Kind.DIRECT)
def minimum(node: OnnxNode, g: Graph) -> Result:
    """Smallest of all inputs."""
    return node.elementwise(_chain(node, g, "min"))


@onnx_op("Mean", since=1)
def mean(node: OnnxNode, g: Graph) -> Result:
    """Mean of all inputs."""
    return node.elementwise(emit.divs(g, emit.floats(_chain(node, g, "add")), len(node.inputs)))


@onnx_op("Pow", since=1)
def power(node: OnnxNode, g: Graph) -> Result:
    """Power: square, root, reciprocal or products where y is such a constant, else exp(y * ln(x))."""
    x = node.input(0)
    exponent = _exponent(node)
    whole = _whole_exponents(node)
    if x.dtype is not DType.FLOAT32 and (whole is None or x.dtype is not DType.INT32):
        hint = "supported: constant whole exponents from 0 to 64 of int32"
        raise node.fail(UNSUPPORTED_TYPE, "a power of integers", hint, needs=node.tensor(1))
    if whole is not None and (exponent is None or x.dtype is DType.INT32):
        return node.elementwise(_whole_powers(g, x, whole))
    if exponent is not None:
        return node.elementwise(constant_power(g, x, exponent))
    base = node.constant(0) if node.is_constant(0) else None
    y = _as_float_operand(g, node.input(1))
    if base is not None:
        if (base <= 0).any():
            raise node.fail(UNSUPPORTED_TYPE, "a constant base that is not positive", "supported: positive")
        logarithm = emit.float_constant(g, np.log(base.astype(np.float64)), "ln_base")
        return node.elementwise(emit.exp(g, emit.mul(g, y, logarithm)))
    g.notes.append(f"Pow '{node.name}' is exp(y * ln(x)): its base has to be positive")
    return node.elementwise(emit.exp(g, emit.mul(g, y, emit.ln(g, x))))


def _exponent(node: OnnxNode) -> float | None:
    """The exponent, when it is one constant number whose rank does not matter."""
    if not node.is_constant(1):
        return None
    found = node.constant(1)
    if node.version < BEFORE_NUMPY_BROADCASTING:
        node.optional_attr("broadcast")
        node.optional_attr("axis")
    is_one = found.size and (found == found.reshape(-1)[0]).all()
    if not is_one or emit.broadcast_shape(found.shape, node.shape(0)) != node.shape(0):
        return None
    return float(found.reshape(-1)[0])


def _whole_exponents(node: OnnxNode) -> Array | None:
    """Constant exponents that are whole numbers from 0 to 64."""
    if not node.is_constant(1):
        return None
    found = node.constant(1)
    is_whole = found.size > 0 and bool(((found >= 0) & (found <= 64) & (found == np.floor(found))).all())
    return found.astype(np.int32) if is_whole else None


def _whole_powers(g: Graph, x: Value, exponents: Array) -> Value:
    """A power of its own for every element: a factor for each binary digit of the exponents, 1 where it is 0."""
    shape = emit.broadcast_shape(emit.extents(x), exponents.shape)
    base, result = emit.expand(g, x, shape), None
    for digit in range(int(exponents.max()).bit_length()):
        if digit:
            base = emit.mul(g, base, base)
        bits = np.atleast_1d((exponents >> digit) & 1)
        factor = base if bits.all() else _base_or_one(g, base, bits)
        result = factor if result is None else emit.mul(g, result, factor)
    return emit.adds(g, emit.muls(g, base, 0), 1) if result is None else result


def _base_or_one(g: Graph, base: Value, bits: Array) -> Value:
    """The base where the constant is 1, else 1."""
    if base.dtype is DType.INT32:
        kept = emit.mul(g, base, g.constant(bits.astype(np.int32), name="digit"))
        return emit.add(g, kept, g.constant((1 - bits).astype(np.int32), name="digit"))
    condition = _widened(g, emit.float_constant(g, bits, "digit"), emit.extents(base))
    return g.add(ConditionSelect(), condition, base, emit.float_constant(g, np.ones(1), "one"))


def constant_power(g: Graph, x: Value, exponent: float) -> Value:
    """X to a constant power. The general form needs x > 0, as the function itself does."""
    exact = {
        2.0: ActiveType.ACTIVE_SQUARE,
        0.5: ActiveType.ACTIVE_SQRT,
        -0.5: ActiveType.ACTIVE_RSQRT,
    }
    if exponent in exact:
        return emit.active(g, exact[exponent], x)
    if exponent == 0:
        return emit.adds(g, emit.muls(g, x, 0), 1)
    if exponent == int(exponent) and abs(exponent) <= 64:
        whole = _whole_power(g, x, abs(int(exponent)))
        return whole if exponent > 0 else emit.rdivs(g, 1, whole)
    if math.isinf(exponent) or math.isnan(exponent):
        raise ValueError(f"exponent {exponent}")
    return emit.exp(g, emit.muls(g, emit.ln(g, x), exponent))


def _whole_power(g: Graph, x: Value, exponent: int) -> Value:
    """Repeated products, few of them: squares for the binary digits of the exponent."""
    result: Value | None = None
    while True:
        if exponent & 1:
            result = x if result is None else emit.mul(g, result, x)
        exponent >>= 1
        if not exponent:
            assert result is not None
            return result
        x = emit.square(g, x) if x.dtype is DType.FLOAT32 else emit.mul(g, x, x)
