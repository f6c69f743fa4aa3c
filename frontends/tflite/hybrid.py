"""Layers with integer weights and float activations, as their kernels compute them: activations are quantized first.

Before every matmul the kernel finds the range of the activations per image or per row, quantizes them to 8 bits,
multiplies integers and dequantizes the sums. Quantized activations times dequantized weights give the same numbers.
"""

from __future__ import annotations

from tpuconvert.frontends.tflite.node import TfliteNode
from tpuconvert.schema.graph import Graph, Value
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.arithmetic import Add, Div, Mul, Sub
from tpuconvert.schema.ops.arithmetic_with_scalar import Divs, Maxs, Mins, Rdivs, Rsubs
from tpuconvert.schema.ops.clamp import Clamp
from tpuconvert.schema.ops.reduce import Reduce, ReduceMethodType
from tpuconvert.schema.types import I8, Scalar

MODES = ("real", "dynamic")
"""Activations of such layers stay float, or are quantized as by the kernels."""

_TINY = 1e-30  # the divisor if all activations are zero


def round_activations(node: TfliteNode, g: Graph, x: Value, *, asymmetric: bool, index: int = 1) -> Value:
    """Quantize the activations of a layer with integer weights (input ``index``); axis 0 counts images or rows."""
    if not is_rounding(node, index):
        return x
    return _round_asymmetric(g, x) if asymmetric else _round_symmetric(g, x)


def is_rounding(node: TfliteNode, index: int = 1) -> bool:
    """Return True if the layer quantizes the activations for its weights at input ``index``."""
    weights = node.quant(index)
    return node.tensors.hybrid == "dynamic" and weights is not None and weights.dtype is I8 and not node.is_quantized


def _reduce(g: Graph, x: Value, method: ReduceMethodType) -> Value:
    axes = tuple(range(1, x.rank))
    return g.add(Reduce(method=method, axis_list=axes, axis_num=len(axes), keep_dims=True), x)


def _nearest(g: Graph, x: Value) -> Value:
    """Round to the nearest integer, ties away from zero, as FLOAT32."""
    return g.add(Active(ActiveType.ACTIVE_ROUND), x)


def _round_symmetric(g: Graph, x: Value) -> Value:
    """Steps of 1/127 of the largest magnitude."""
    largest = _reduce(g, g.add(Active(ActiveType.ACTIVE_ABSVAL), x), ReduceMethodType.REDUCE_MAX)
    span = g.add(Maxs(Scalar.f32(_TINY)), largest)
    scaled = g.add(Mul(), x, g.add(Rdivs(Scalar.f32(127)), span))
    return g.add(Mul(), _nearest(g, scaled), g.add(Divs(Scalar.f32(127)), span))


def _round_asymmetric(g: Graph, x: Value) -> Value:
    """Steps of 1/255 of the range from the least to the largest activation, zero included.

    The kernel adds the zero point to the rounded value. Adding it before rounding would lose bits of the value, and
    round halves the other way where the sign changes.
    """
    low = g.add(Mins(Scalar.f32(0)), _reduce(g, x, ReduceMethodType.REDUCE_MIN))
    high = g.add(Maxs(Scalar.f32(0)), _reduce(g, x, ReduceMethodType.REDUCE_MAX))
    step = g.add(Divs(Scalar.f32(255)), g.add(Maxs(Scalar.f32(_TINY)), g.add(Sub(), high, low)))
    zero = _saturate(g, _nearest(g, g.add(Rsubs(Scalar.f32(-128)), g.add(Div(), low, step))))
    scaled = g.add(Mul(), x, g.add(Rdivs(Scalar.f32(1)), step))
    integers = _saturate(g, g.add(Add(), _nearest(g, scaled), zero))
    return g.add(Mul(), g.add(Sub(), integers, zero), step)


def _saturate(g: Graph, integers: Value) -> Value:
    """Integers in FLOAT32, saturated to INT8."""
    return g.add(Clamp(Scalar.f32(-128), Scalar.f32(127)), integers)
