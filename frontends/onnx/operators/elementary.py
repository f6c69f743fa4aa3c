"""Elementary functions: exponential, logarithmic and trigonometric ones, rounding, absolute value and sign."""

from __future__ import annotations

import math

import numpy as np

from tpuconvert.frontends import emit, functions
from tpuconvert.frontends.onnx.node import OnnxNode, Result, direct, onnx_op
from tpuconvert.frontends.registry import Kind
from tpuconvert.frontends.small_integers import cast_integers, widen_to_int32
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.ops import formulas
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.compare import Eqs
from tpuconvert.schema.ops.host.trigonometry import InverseFunction, InverseTrigonometry
from tpuconvert.schema.ops.quantization.round_to_integer import Ceil, Floor
from tpuconvert.schema.ops.selection import ConditionSelect
from tpuconvert.schema.ops.trigonometry import Cos, Sin
from tpuconvert.schema.types import DType, Scalar

direct("Exp", Active(ActiveType.ACTIVE_EXP))
direct("Log", Active(ActiveType.ACTIVE_LN))
direct("Sqrt", Active(ActiveType.ACTIVE_SQRT))
direct("Floor", Floor())
direct("Ceil", Ceil())
direct("Sin", Sin(), since=7)
direct("Cos", Cos(), since=7)
direct("Acos", InverseTrigonometry(InverseFunction.ACOS), since=7)
direct("Asin", InverseTrigonometry(InverseFunction.ASIN), since=7)
direct("Atan", InverseTrigonometry(InverseFunction.ATAN), since=7)


@onnx_op("Abs", since=1, kind=Kind.DIRECT)
def absolute(node: OnnxNode, g: Graph) -> Result:
    """``|x|``; of integers ``max(x, -x)``. The result for the lowest 8- or 16-bit integer is that integer."""
    x = node.input(0)
    if x.dtype is DType.FLOAT32:
        return node.elementwise(formulas.absolute(g, x))
    if not node.element(0).is_signed:
        return node.elementwise(x)
    wide = widen_to_int32(g, x)
    return node.elementwise(cast_integers(g, emit.binary(g, "max", wide, emit.muls(g, wide, -1)), x.dtype))


@onnx_op("Neg", since=1, kind=Kind.DIRECT)
def negate(node: OnnxNode, g: Graph) -> Result:
    """``-x``. The result for the lowest 8- or 16-bit integer is that integer."""
    x = node.input(0)
    if x.dtype is DType.FLOAT32:
        return node.elementwise(emit.muls(g, x, -1))
    return node.elementwise(cast_integers(g, emit.muls(g, widen_to_int32(g, x), -1), x.dtype))


@onnx_op("Reciprocal", since=1, kind=Kind.DIRECT)
def reciprocal(node: OnnxNode, g: Graph) -> Result:
    """``1 / x``."""
    return node.elementwise(emit.rdivs(g, 1, node.float_input()))


@onnx_op("Erf", since=9)
def erf(node: OnnxNode, g: Graph) -> Result:
    """Error function."""
    return node.elementwise(formulas.erf(g, node.float_input()))


@onnx_op("Sign", since=9)
def sign(node: OnnxNode, g: Graph) -> Result:
    """Sign of each element: 1, 0, -1, or NaN."""
    x = node.input(0)
    signs = formulas.sign(g, emit.as_float(g, x)) if x.dtype.is_integer else functions.sign(g, x)
    return node.elementwise(emit.cast(g, signs, x.dtype))


@onnx_op("Round", since=11)
def round_(node: OnnxNode, g: Graph) -> Result:
    """Round to the nearest integer, ties to even; infinities are not changed."""
    x = node.float_input()
    is_infinite = g.add(Eqs(Scalar.f32(math.inf)), formulas.absolute(g, x))
    return node.elementwise(g.add(ConditionSelect(), is_infinite, x, functions.round_half_even(g, x)))


@onnx_op("Tan", since=7)
def tan(node: OnnxNode, g: Graph) -> Result:
    """``sin(x) / cos(x)``."""
    x = node.float_input()
    return node.elementwise(emit.div(g, g.add(Sin(), x), g.add(Cos(), x)))


@onnx_op("Sinh", since=9)
def sinh(node: OnnxNode, g: Graph) -> Result:
    """``(exp(x) - exp(-x)) / 2``."""
    x = node.float_input()
    difference = emit.sub(g, formulas.exp(g, x), formulas.exp(g, emit.muls(g, x, -1)))
    return node.elementwise(emit.muls(g, difference, 0.5))


@onnx_op("Cosh", since=9)
def cosh(node: OnnxNode, g: Graph) -> Result:
    """``(exp(x) + exp(-x)) / 2``."""
    x = node.float_input()
    return node.elementwise(emit.muls(g, emit.add(g, formulas.exp(g, x), formulas.exp(g, emit.muls(g, x, -1))), 0.5))


@onnx_op("Asinh", since=9)
def asinh(node: OnnxNode, g: Graph) -> Result:
    """``sign(x) * (ln(s) + ln(|x| / s + sqrt((x / s)^2 + (1 / s)^2)))`` with ``s`` of at least 1.

    The absolute value avoids cancellation for negative ``x``, the division by ``s = |x|`` squares that overflow.
    """
    x = node.float_input()
    size = formulas.absolute(g, x)
    scale = emit.clamp(g, size, 1, float(np.finfo(np.float32).max))
    part, unit = emit.div(g, size, scale), emit.rdivs(g, 1, scale)
    root = formulas.sqrt(g, emit.add(g, formulas.square(g, part), formulas.square(g, unit)))
    logarithm = emit.add(g, formulas.ln(g, scale), formulas.ln(g, emit.add(g, part, root)))
    return node.elementwise(emit.mul(g, formulas.sign(g, x), logarithm))


@onnx_op("Acosh", since=9)
def acosh(node: OnnxNode, g: Graph) -> Result:
    """``2 * ln(sqrt((x + 1) / 2) + sqrt((x - 1) / 2))``: NaN below 1, and no overflow."""
    half = emit.muls(g, node.float_input(), 0.5)
    roots = (formulas.sqrt(g, emit.adds(g, half, offset)) for offset in (0.5, -0.5))
    return node.elementwise(emit.muls(g, formulas.ln(g, emit.add(g, *roots)), 2))


@onnx_op("Atanh", since=9)
def atanh(node: OnnxNode, g: Graph) -> Result:
    """``ln((1 + x) / (1 - x)) / 2``."""
    x = node.float_input()
    ratio = emit.div(g, emit.adds(g, x, 1), emit.rsubs(g, 1, x))
    return node.elementwise(emit.muls(g, formulas.ln(g, ratio), 0.5))
