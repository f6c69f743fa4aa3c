"""Arithmetic of two tensors and mathematical functions of one."""

from __future__ import annotations

import math

import numpy as np

from tpuconvert.frontends.registry import Kind
from tpuconvert.frontends.tflite import recipes
from tpuconvert.frontends.tflite.lowering import (
    aligned,
    as_float,
    as_type_of,
    broadcast_shape,
    expanded,
    shifted_to_result,
)
from tpuconvert.frontends.tflite.node import TfliteNode, tflite_op
from tpuconvert.schema.errors import INVALID_NODE, UNSUPPORTED_ATTRIBUTE
from tpuconvert.schema.graph import Graph, Value
from tpuconvert.schema.op import Op
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.arithmetic import Add, Div, Max, Min, Mul, Sub
from tpuconvert.schema.ops.arithmetic_with_scalar import Muls, Rdivs
from tpuconvert.schema.ops.bit_logic import BitXor
from tpuconvert.schema.ops.cast import Cast
from tpuconvert.schema.ops.compare import Ges, Lts, Ne, Nes
from tpuconvert.schema.ops.generation import NumberLike
from tpuconvert.schema.ops.host_trigonometry import InverseFunction, InverseTrigonometry
from tpuconvert.schema.ops.round_to_integer import Ceil, Floor
from tpuconvert.schema.ops.selection import ConditionSelect
from tpuconvert.schema.ops.shift_by_amount import ArithRshift
from tpuconvert.schema.ops.trigonometry import Cos, Sin
from tpuconvert.schema.types import I32, Scalar

_BINARY: dict[str, Op] = {
    **{"ADD": Add(), "SUB": Sub(), "MUL": Mul(), "MAXIMUM": Max(), "MINIMUM": Min()},
    **{"STABLEHLO_ADD": Add(), "STABLEHLO_SUBTRACT": Sub(), "STABLEHLO_MULTIPLY": Mul()},
    **{"STABLEHLO_MAXIMUM": Max(), "STABLEHLO_MINIMUM": Min()},
}


@tflite_op("ADD", "SUB", "MUL", kind=Kind.DIRECT)
def arithmetic(node: TfliteNode, g: Graph) -> Value:
    """Sum, difference or product with broadcasting."""
    operands = aligned(g, node.input(0), node.input(1))
    if node.op_type != "MUL" and node.option("pot_scale_int16", False):
        operands = tuple(shifted_to_result(node, g, value) for value in operands)
    return node.activated(g.add(_BINARY[node.op_type], *operands))


@tflite_op(*(name for name in _BINARY if name not in ("ADD", "SUB", "MUL")), kind=Kind.DIRECT)
def plain_arithmetic(node: TfliteNode, g: Graph) -> Value:
    """The operators that never carry an activation."""
    return g.add(_BINARY[node.op_type], *aligned(g, node.input(0), node.input(1)))


@tflite_op("DIV", kind=Kind.DIRECT)
def div(node: TfliteNode, g: Graph) -> Value:
    """Quotient; of integers it is cut towards zero, exact below 2^24."""
    return node.activated(_quotient(node, g, recipes.truncate))


@tflite_op("STABLEHLO_DIVIDE", kind=Kind.DIRECT)
def stablehlo_divide(node: TfliteNode, g: Graph) -> Value:
    """Quotient; of integers it is cut towards zero, exact below 2^24."""
    return _quotient(node, g, recipes.truncate)


@tflite_op("FLOOR_DIV")
def floor_div(node: TfliteNode, g: Graph) -> Value:
    """The largest integer not above the quotient."""
    a, b = aligned(g, node.input(0), node.input(1))
    return as_type_of(g, g.add(Floor(), g.add(Div(), as_float(g, a), as_float(g, b))), a)


@tflite_op("FLOOR_MOD")
def floor_mod(node: TfliteNode, g: Graph) -> Value:
    """The remainder x - y * floor(x / y)."""
    x, y = aligned(g, node.input(0), node.input(1))
    a, b = as_float(g, x), as_float(g, y)
    whole = g.add(Floor(), g.add(Div(), a, b))
    return as_type_of(g, g.add(Sub(), a, g.add(Mul(), b, whole)), x)


def _quotient(node: TfliteNode, g: Graph, rounding: recipes.Function) -> Value:
    a, b = aligned(g, node.input(0), node.input(1))
    quotient = g.add(Div(), as_float(g, a), as_float(g, b))
    return quotient if a.dtype.is_float else as_type_of(g, rounding(g, quotient), a)


@tflite_op("SQUARED_DIFFERENCE")
def squared_difference(node: TfliteNode, g: Graph) -> Value:
    """(x - y)^2."""
    difference = g.add(Sub(), *aligned(g, node.input(0), node.input(1)))
    if difference.dtype.is_integer:
        return g.add(Mul(), difference, difference)
    return g.add(Active(ActiveType.ACTIVE_SQUARE), difference)


@tflite_op("ADD_N", kind=Kind.DIRECT)
def add_n(node: TfliteNode, g: Graph) -> Value:
    """The sum of tensors of one shape."""
    total, *rest = node.values()
    for value in rest:
        total = g.add(Add(), total, value)
    return total


@tflite_op("POW", "STABLEHLO_POWER", limits="floating point")
def power(node: TfliteNode, g: Graph) -> Value:
    """x^y: usual constant exponents by themselves, others as exp(y * ln(x))."""
    x = node.input(0)
    if x.dtype.is_integer:
        raise node.fail(UNSUPPORTED_ATTRIBUTE, "integer powers", "supported: FLOAT32")
    if node.is_constant(1) and node.constant(1).size == 1:
        exponent = node.scalar(1)
        simple = _simple_power(g, x, exponent)
        if simple is not None:
            return simple
        if not exponent.is_integer():  # negative x has no result, as in the source
            logarithm = recipes.active(g, ActiveType.ACTIVE_LN, x)
            return recipes.active(g, ActiveType.ACTIVE_EXP, recipes.muls(g, logarithm, exponent))
    shape = broadcast_shape(node, *aligned(g, x, node.input(1)))
    return recipes.power(g, expanded(node, x, shape), expanded(node, node.input(1), shape))


_ROOTS = {0.5: ActiveType.ACTIVE_SQRT, -0.5: ActiveType.ACTIVE_RSQRT, 2.0: ActiveType.ACTIVE_SQUARE}


def _simple_power(g: Graph, x: Value, exponent: float) -> Value | None:
    if exponent in _ROOTS:
        return recipes.active(g, _ROOTS[exponent], x)
    if exponent == 0:
        return g.add(NumberLike(Scalar.f32(1)), x)
    if exponent == -1:
        return g.add(Rdivs(Scalar.f32(1)), x)
    if exponent.is_integer() and 1 <= exponent <= 8:
        result = x
        for _ in range(int(exponent) - 1):
            result = g.add(Mul(), result, x)
        return result
    return None


# Functions of one tensor

_UNARY: dict[str, Op] = {
    "ABS": Active(ActiveType.ACTIVE_ABSVAL),
    "STABLEHLO_ABS": Active(ActiveType.ACTIVE_ABSVAL),
    "EXP": Active(ActiveType.ACTIVE_EXP),
    "STABLEHLO_EXPONENTIAL": Active(ActiveType.ACTIVE_EXP),
    "LOG": Active(ActiveType.ACTIVE_LN),
    "STABLEHLO_LOG": Active(ActiveType.ACTIVE_LN),
    "SQRT": Active(ActiveType.ACTIVE_SQRT),
    "RSQRT": Active(ActiveType.ACTIVE_RSQRT),
    "STABLEHLO_RSQRT": Active(ActiveType.ACTIVE_RSQRT),
    "SQUARE": Active(ActiveType.ACTIVE_SQUARE),
    "SIN": Sin(),
    "COS": Cos(),
    "STABLEHLO_COSINE": Cos(),
    "FLOOR": Floor(),
    "STABLEHLO_FLOOR": Floor(),
    "CEIL": Ceil(),
}


@tflite_op(*_UNARY, kind=Kind.DIRECT)
def unary(node: TfliteNode, g: Graph) -> Value:
    """One operator of the target set; integers go through FLOAT32, exact below 2^24."""
    x = node.input(0)
    return as_type_of(g, g.add(_UNARY[node.op_type], as_float(g, x)), x)


@tflite_op("NEG", "STABLEHLO_NEGATE", kind=Kind.DIRECT)
def neg(node: TfliteNode, g: Graph) -> Value:
    """-x."""
    x = node.input(0)
    return g.add(Muls(Scalar(x.dtype, -1)), x)


@tflite_op("ROUND")
def round_(node: TfliteNode, g: Graph) -> Value:
    """The nearest integer, halves to the even one."""
    return recipes.round_half_even(g, node.input(0))


@tflite_op("SIGN")
def sign(node: TfliteNode, g: Graph) -> Value:
    """1, 0 or -1."""
    x = node.input(0)
    return as_type_of(g, recipes.sign(g, as_float(g, x)), x)


@tflite_op("STABLEHLO_CLAMP", kind=Kind.DIRECT)
def stablehlo_clamp(node: TfliteNode, g: Graph) -> Value:
    """The second input, not below the first and not above the third."""
    low, x, high = aligned(g, node.input(0), node.input(1), node.input(2))
    return g.add(Min(), g.add(Max(), x, low), high)


@tflite_op("STABLEHLO_REMAINDER")
def stablehlo_remainder(node: TfliteNode, g: Graph) -> Value:
    """The remainder with the sign of the dividend: x - y * trunc(x / y)."""
    x, y = aligned(g, node.input(0), node.input(1))
    a, b = as_float(g, x), as_float(g, y)
    whole = recipes.truncate(g, g.add(Div(), a, b))
    return as_type_of(g, g.add(Sub(), a, g.add(Mul(), b, whole)), x)


@tflite_op("STABLEHLO_CBRT")
def stablehlo_cbrt(node: TfliteNode, g: Graph) -> Value:
    """The cube root: sign(x) * exp(ln|x| / 3)."""
    x = node.input(0)
    logarithm = recipes.active(g, ActiveType.ACTIVE_LN, recipes.active(g, ActiveType.ACTIVE_ABSVAL, x))
    magnitude = recipes.active(g, ActiveType.ACTIVE_EXP, recipes.muls(g, logarithm, 1 / 3))
    return g.add(Mul(), recipes.sign(g, x), magnitude)


@tflite_op("ATAN2", kind=Kind.HOST, limits="the sign of a zero y is lost")
def atan2(node: TfliteNode, g: Graph) -> Value:
    """The angle of the point (x, y) from -pi to pi, the tangent's inverse on the host; the sign of a zero y is lost."""
    y, x = aligned(g, node.input(0), node.input(1))
    shape = broadcast_shape(node, y, x)
    is_left, is_below = g.add(Lts(Scalar.f32(0)), x), g.add(Lts(Scalar.f32(0)), y)
    side = recipes.adds(g, recipes.muls(g, is_below, -2 * math.pi), math.pi)  # pi above the axis, -pi below
    base = g.add(InverseTrigonometry(InverseFunction.ATAN), g.add(Div(), y, x))
    angle = g.add(Add(), base, g.add(Mul(), is_left, side))
    is_anywhere = g.add(Max(), g.add(Nes(Scalar.f32(0)), x), g.add(Nes(Scalar.f32(0)), y))  # 0/0 has no quotient
    zero = g.constant(np.zeros(1, np.float32), "zero")
    return g.add(ConditionSelect(), expanded(node, is_anywhere, shape), angle, zero)


@tflite_op("BITWISE_XOR", kind=Kind.DIRECT)
def bitwise_xor(node: TfliteNode, g: Graph) -> Value:
    """Exclusive or of bits, or of truth values."""
    a, b = aligned(g, node.input(0), node.input(1))
    if node.tensor(0).type == "BOOL":
        return g.add(Ne(), a, b)
    shape = broadcast_shape(node, a, b)
    return g.add(BitXor(), expanded(node, a, shape), expanded(node, b, shape))


@tflite_op("RIGHT_SHIFT", kind=Kind.DIRECT)
def right_shift(node: TfliteNode, g: Graph) -> Value:
    """Bits moved to the right; the sign stays."""
    return g.add(ArithRshift(), *aligned(g, node.input(0), node.input(1)))


@tflite_op("BUCKETIZE")
def bucketize(node: TfliteNode, g: Graph) -> Value:
    """The number of boundaries that are not above the input."""
    boundaries = node.option("boundaries", ())
    if not boundaries or list(boundaries) != sorted(boundaries):
        raise node.fail(INVALID_NODE, f"boundaries {list(boundaries)} must rise")
    x = as_float(g, node.input(0))
    total = g.add(Ges(Scalar.f32(boundaries[0])), x)
    for boundary in boundaries[1:]:
        total = g.add(Add(), total, g.add(Ges(Scalar.f32(boundary)), x))
    return g.add(Cast(I32), total)


@tflite_op("CUMSUM")
def cumsum(node: TfliteNode, g: Graph) -> Value:
    """Running sums along an axis: a product with a constant triangular matrix."""
    shape = node.shape(0)
    axis = node.axis(node.one_int(1), len(shape))
    if math.prod(shape) == 0:
        raise node.fail(INVALID_NODE, f"input {list(shape)} is empty")
    node.check_size([shape[axis], shape[axis]])
    x = as_float(g, node.input(0))
    summed = recipes.running_sum(
        g, x, axis, exclusive=node.option("exclusive", False), reverse=node.option("reverse", False)
    )
    return as_type_of(g, summed, node.input(0))
