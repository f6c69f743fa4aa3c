"""Binary arithmetic and unary mathematical functions."""

from __future__ import annotations

import functools
import math

import numpy as np

from tpuconvert.frontends import emit, functions, powers
from tpuconvert.frontends.registry import Kind
from tpuconvert.frontends.small_integers import (
    as_integers,
    cast_integers,
    small_product,
    small_sum,
    widen_to_int32,
    wrap_to_range,
)
from tpuconvert.frontends.tflite.lowering import align, broadcast_shape, expand, shift_to_result_scale
from tpuconvert.frontends.tflite.node import TfliteNode, tflite_op
from tpuconvert.schema.arithmetic.elementwise import Arithmetic
from tpuconvert.schema.definition.op import Op
from tpuconvert.schema.errors import INVALID_NODE, UNSUPPORTED_ATTRIBUTE, UNSUPPORTED_TYPE
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops import formulas
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.arithmetic import Add, BinaryArithmetic, Div, Max, Min, Mul, Sub
from tpuconvert.schema.ops.arithmetic_with_scalar import Muls
from tpuconvert.schema.ops.bit_logic import BitXor
from tpuconvert.schema.ops.cast import Cast
from tpuconvert.schema.ops.compare import Ges, Lts, Ne, Nes
from tpuconvert.schema.ops.host.trigonometry import InverseFunction, InverseTrigonometry
from tpuconvert.schema.ops.quantization.round_to_integer import Ceil, Floor
from tpuconvert.schema.ops.selection import ConditionSelect
from tpuconvert.schema.ops.shifts.shift_by_amount import ArithLshift, ArithRshift
from tpuconvert.schema.ops.trigonometry import Cos, Sin
from tpuconvert.schema.types import I32, SMALL, Array, Scalar

_FUSED_BINARY: dict[str, BinaryArithmetic] = {"ADD": Add(), "SUB": Sub(), "MUL": Mul()}
_BINARY: dict[str, BinaryArithmetic] = {
    **{"STABLEHLO_ADD": Add(), "STABLEHLO_SUBTRACT": Sub(), "STABLEHLO_MULTIPLY": Mul()},
    **{"MAXIMUM": Max(), "MINIMUM": Min(), "STABLEHLO_MAXIMUM": Max(), "STABLEHLO_MINIMUM": Min()},
}


@tflite_op(*_FUSED_BINARY, kind=Kind.DIRECT)
def arithmetic(node: TfliteNode, g: Graph) -> Value:
    """Add, subtract or multiply, with broadcasting."""
    if node.op_type == "MUL" and node.input(0).dtype in SMALL:
        raise node.fail(UNSUPPORTED_TYPE, f"{node.tensor(0).type} without a scale, which the kernel needs")
    operands = align(g, node.input(0), node.input(1))
    if node.op_type != "MUL" and node.option("pot_scale_int16", False):
        operands = tuple(shift_to_result_scale(node, g, value) for value in operands)
    return node.activate(_combine(g, _FUSED_BINARY[node.op_type], *operands))


def _combine(g: Graph, op: BinaryArithmetic, a: Value, b: Value) -> Value:
    """Apply an operator; 8- and 16-bit integers without a scale wrap around."""
    if a.dtype not in SMALL or op.arithmetic in (Arithmetic.MAX, Arithmetic.MIN):
        return g.add(op, a, b)
    return small_product(g, a, b) if op.arithmetic is Arithmetic.MUL else small_sum(g, op.arithmetic.value, a, b)


@tflite_op(*_BINARY, kind=Kind.DIRECT)
def plain_arithmetic(node: TfliteNode, g: Graph) -> Value:
    """Binary operators without a fused activation."""
    return _combine(g, _BINARY[node.op_type], *align(g, node.input(0), node.input(1)))


@tflite_op("RIGHT_SHIFT", "STABLEHLO_SHIFT_LEFT")
def shift(node: TfliteNode, g: Graph) -> Value:
    """``x >> y`` with ``y`` clamped to the width of the type, or ``x << y``; 8- and 16-bit integers in INT32."""
    x, amount = align(g, node.input(0), node.input(1))
    if not x.dtype.is_integer or not amount.dtype.is_integer:
        raise node.fail(UNSUPPORTED_TYPE, f"shifts {node.tensor(0).type}", "supported: integers")
    wide, by = widen_to_int32(g, x), widen_to_int32(g, amount)
    shape = broadcast_shape(wide, by)
    wide, by = expand(node.graph, wide, shape), expand(node.graph, by, shape)
    if node.op_type == "RIGHT_SHIFT":
        by = emit.clamp(g, by, 0, x.dtype.bits - 1)
        return cast_integers(g, g.add(ArithRshift(), wide, by), x.dtype)
    return (
        wrap_to_range(g, g.add(ArithLshift(), wide, by), x.dtype)
        if x.dtype in SMALL
        else g.add(ArithLshift(), wide, by)
    )


@tflite_op("DIV", "STABLEHLO_DIVIDE", kind=Kind.DIRECT)
def div(node: TfliteNode, g: Graph) -> Value:
    """``x / y``; integer division truncates and is computed in FLOAT32, which is exact below 2^24."""
    if node.is_quantized and node.tensor(0).type == "INT16":
        g.note_deviation("quotients of the 16-bit kernel overflow near 0, here they do not")
    a, b = align(g, node.input(0), node.input(1))
    quotient = g.add(Div(), emit.as_float(g, a), emit.as_float(g, b))
    if not a.dtype.is_float:
        quotient = as_integers(g, functions.truncate(g, quotient), a.dtype)
    return node.activate(quotient) if node.op_type == "DIV" else quotient


@tflite_op("FLOOR_DIV")
def floor_div(node: TfliteNode, g: Graph) -> Value:
    """``floor(x / y)``."""
    a, b = align(g, node.input(0), node.input(1))
    quotient = g.add(Floor(), g.add(Div(), emit.as_float(g, a), emit.as_float(g, b)))
    return quotient if a.dtype.is_float else as_integers(g, quotient, a.dtype)


@tflite_op("FLOOR_MOD", "STABLEHLO_REMAINDER")
def remainder(node: TfliteNode, g: Graph) -> Value:
    """``x - y * floor(x / y)``; STABLEHLO_REMAINDER truncates the quotient, so that x determines the sign."""
    x, y = align(g, node.input(0), node.input(1))
    a, b = emit.as_float(g, x), emit.as_float(g, y)
    quotient = g.add(Div(), a, b)
    integer = g.add(Floor(), quotient) if node.op_type == "FLOOR_MOD" else functions.truncate(g, quotient)
    return emit.cast(g, g.add(Sub(), a, g.add(Mul(), b, integer)), x.dtype)


@tflite_op("SQUARED_DIFFERENCE")
def squared_difference(node: TfliteNode, g: Graph) -> Value:
    """``(x - y) ** 2``."""
    difference = _combine(g, Sub(), *align(g, node.input(0), node.input(1)))
    if difference.dtype.is_integer:
        return _combine(g, Mul(), difference, difference)
    return g.add(Active(ActiveType.ACTIVE_SQUARE), difference)


@tflite_op("ADD_N", kind=Kind.DIRECT)
def add_n(node: TfliteNode, g: Graph) -> Value:
    """Element-wise sum of tensors of equal shape."""
    return functools.reduce(lambda a, b: _combine(g, Add(), a, b), node.values())


@tflite_op("POW", "STABLEHLO_POWER", limits="integer bases with constant exponents from 0 to 64")
def power(node: TfliteNode, g: Graph) -> Value:
    """``x ** y``: products and roots for small integer exponents and +-0.5, otherwise ``exp(y * ln(x))``."""
    x = node.input(0)
    if x.dtype.is_integer:
        exponents = node.constant(1) if node.is_constant(1) else None
        if x.dtype is not I32 or exponents is None or not exponents.size or exponents.min() < 0 or exponents.max() > 64:
            raise node.fail(UNSUPPORTED_ATTRIBUTE, "integer powers", "supported: constant exponents from 0 to 64")
        return powers.whole_powers(g, x, exponents.astype(np.int32))
    if node.is_constant(1) and node.constant(1).size == 1 and x.rank >= node.constant(1).ndim and not x.is_constant:
        return powers.constant_power(g, x, node.scalar(1))
    return powers.power(g, emit.as_computed(g, x) if node.is_constant(1) else x, node.input(1))


_UNARY: dict[str, Op] = {
    **dict.fromkeys(("ABS", "STABLEHLO_ABS"), Active(ActiveType.ACTIVE_ABSVAL)),
    **dict.fromkeys(("EXP", "STABLEHLO_EXPONENTIAL"), Active(ActiveType.ACTIVE_EXP)),
    **dict.fromkeys(("LOG", "STABLEHLO_LOG"), Active(ActiveType.ACTIVE_LN)),
    **dict.fromkeys(("RSQRT", "STABLEHLO_RSQRT"), Active(ActiveType.ACTIVE_RSQRT)),
    **{"SQRT": Active(ActiveType.ACTIVE_SQRT), "SQUARE": Active(ActiveType.ACTIVE_SQUARE)},
    **{"SIN": Sin(), "COS": Cos(), "STABLEHLO_COSINE": Cos()},
    **{"FLOOR": Floor(), "STABLEHLO_FLOOR": Floor(), "CEIL": Ceil()},
}


@tflite_op(*_UNARY, kind=Kind.DIRECT)
def unary(node: TfliteNode, g: Graph) -> Value:
    """Unary operator that maps to one TPU operator; integers are cast to FLOAT32, exact below 2^24."""
    x = node.input(0)
    y = g.add(_UNARY[node.op_type], emit.as_float(g, x))
    return y if x.dtype.is_float else as_integers(g, y, x.dtype)  # the magnitude of the lowest integer wraps around


@tflite_op("NEG", "STABLEHLO_NEGATE", kind=Kind.DIRECT)
def neg(node: TfliteNode, g: Graph) -> Value:
    """``-x``."""
    x = node.input(0)
    if x.dtype not in SMALL:
        return g.add(Muls(Scalar(x.dtype, -1)), x)
    return wrap_to_range(g, emit.muls(g, widen_to_int32(g, x), -1), x.dtype)


@tflite_op("ROUND")
def round_(node: TfliteNode, g: Graph) -> Value:
    """Round to the nearest integer, ties to even."""
    return functions.round_half_even(g, node.input(0))


@tflite_op("SIGN")
def sign(node: TfliteNode, g: Graph) -> Value:
    """Sign of each element: 1, 0, -1, or NaN."""
    x = node.input(0)
    signs = formulas.sign(g, emit.as_float(g, x)) if x.dtype.is_integer else functions.sign(g, x)
    return emit.cast(g, signs, x.dtype)


@tflite_op("STABLEHLO_CLAMP", kind=Kind.DIRECT)
def stablehlo_clamp(node: TfliteNode, g: Graph) -> Value:
    """Clamp the second input between the first and the third."""
    low, x, high = align(g, node.input(0), node.input(1), node.input(2))
    return g.add(Min(), g.add(Max(), x, low), high)


@tflite_op("STABLEHLO_CBRT")
def stablehlo_cbrt(node: TfliteNode, g: Graph) -> Value:
    """Cube root: ``sign(x) * exp(ln|x| / 3)``."""
    x = node.input(0)
    logarithm = formulas.ln(g, formulas.absolute(g, x))
    magnitude = formulas.exp(g, emit.muls(g, logarithm, 1 / 3))
    return g.add(Mul(), formulas.sign(g, x), magnitude)


@tflite_op("ATAN2", kind=Kind.HOST, limits="the sign of a zero y is lost")
def atan2(node: TfliteNode, g: Graph) -> Value:
    """``atan2(y, x)`` from -pi to pi. The arc tangent is a host operator; the sign of a zero y is lost."""
    y, x = align(g, node.input(0), node.input(1))
    shape = broadcast_shape(y, x)
    is_left, is_below = g.add(Lts(Scalar.f32(0)), x), g.add(Lts(Scalar.f32(0)), y)
    side = emit.adds(g, emit.muls(g, is_below, -2 * math.pi), math.pi)  # -pi if y < 0, else pi
    base = g.add(InverseTrigonometry(InverseFunction.ATAN), g.add(Div(), y, x))
    angle = g.add(Add(), base, g.add(Mul(), is_left, side))
    is_anywhere = g.add(Max(), g.add(Nes(Scalar.f32(0)), x), g.add(Nes(Scalar.f32(0)), y))  # 0 / 0 is NaN
    zero = g.constant(np.zeros(1, np.float32), "zero")
    return g.add(ConditionSelect(), expand(node.graph, is_anywhere, shape), angle, zero)


@tflite_op("BITWISE_XOR", kind=Kind.DIRECT)
def bitwise_xor(node: TfliteNode, g: Graph) -> Value:
    """Bitwise exclusive OR of integers, or logical exclusive OR of Boolean tensors."""
    a, b = align(g, node.input(0), node.input(1))
    if node.tensor(0).type == "BOOL":
        return g.add(Ne(), a, b)
    shape = broadcast_shape(a, b)
    return g.add(BitXor(), expand(node.graph, a, shape), expand(node.graph, b, shape))


@tflite_op("BUCKETIZE")
def bucketize(node: TfliteNode, g: Graph) -> Value:
    """Bucket index of each element: the number of boundaries that are less than or equal to it."""
    boundaries = node.option("boundaries", ())
    if not boundaries or list(boundaries) != sorted(boundaries):
        raise node.fail(INVALID_NODE, f"boundaries {list(boundaries)} must rise")
    x = emit.as_float(g, node.input(0))
    total = g.add(Ges(Scalar.f32(boundaries[0])), x)
    for boundary in boundaries[1:]:
        total = g.add(Add(), total, g.add(Ges(Scalar.f32(boundary)), x))
    return g.add(Cast(I32), total)


@tflite_op("CUMSUM")
def cumsum(node: TfliteNode, g: Graph) -> Value | Array:
    """Cumulative sum along an axis: a matmul with a constant triangular matrix."""
    shape = node.shape(0)
    axis = node.axis(node.one_int(1), len(shape))
    if node.is_empty(0):
        return node.empty(shape)
    node.check_size([shape[axis], shape[axis]])
    x = emit.as_float(g, node.input(0))
    summed = functions.cumulative_sum(
        g, x, axis, exclusive=node.option("exclusive", False), reverse=node.option("reverse", False)
    )
    return summed if node.input(0).dtype.is_float else as_integers(g, summed, node.input(0).dtype)
