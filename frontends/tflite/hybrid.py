"""Layers with integer weights and real activations, as their kernels compute them: activations rounded on the way in.

Before every product the kernel finds the range of the activations, per picture or per row, rounds them to 8 bits of it,
multiplies integers, and scales the sums back. Rounded activations times real weights are the same numbers.
"""

from __future__ import annotations

from tpuconvert.frontends.tflite.node import TfliteNode
from tpuconvert.schema.graph import Graph, Value
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.arithmetic import Add, Div, Mul, Sub
from tpuconvert.schema.ops.arithmetic_with_scalar import Divs, Maxs, Mins, Rdivs, Rsubs
from tpuconvert.schema.ops.cast import Cast
from tpuconvert.schema.ops.reduce import Reduce, ReduceMethodType
from tpuconvert.schema.types import F32, I8, Scalar

MODES = ("real", "dynamic")
"""Activations of such layers stay as they are, or are rounded as the kernels do."""

_TINY = 1e-30  # where all activations are zero


def rounded(node: TfliteNode, g: Graph, x: Value, *, asymmetric: bool) -> Value:
    """The activations that a layer with integer weights (its input 1) multiplies; axis 0 counts pictures or rows."""
    weights = node.quant(1)
    if node.tensors.hybrid != "dynamic" or weights is None or node.is_quantized or weights.dtype is not I8:
        return x
    return _in_range(g, x) if asymmetric else _symmetric(g, x)


def _reduced(g: Graph, x: Value, method: ReduceMethodType) -> Value:
    axes = tuple(range(1, x.rank))
    return g.add(Reduce(method=method, axis_list=axes, axis_num=len(axes), keep_dims=True), x)


def _as_bytes(g: Graph, x: Value) -> Value:
    """The nearest 8-bit integers, halves away from zero, as FLOAT32."""
    return g.add(Cast(F32), g.add(Cast(I8), x))


def _symmetric(g: Graph, x: Value) -> Value:
    """Steps of 1/127 of the largest magnitude."""
    largest = _reduced(g, g.add(Active(ActiveType.ACTIVE_ABSVAL), x), ReduceMethodType.REDUCE_MAX)
    span = g.add(Maxs(Scalar.f32(_TINY)), largest)
    steps = _as_bytes(g, g.add(Mul(), x, g.add(Rdivs(Scalar.f32(127)), span)))
    return g.add(Mul(), steps, g.add(Divs(Scalar.f32(127)), span))


def _in_range(g: Graph, x: Value) -> Value:
    """Steps of 1/255 of the range from the least to the largest activation, zero included."""
    low = g.add(Mins(Scalar.f32(0)), _reduced(g, x, ReduceMethodType.REDUCE_MIN))
    high = g.add(Maxs(Scalar.f32(0)), _reduced(g, x, ReduceMethodType.REDUCE_MAX))
    step = g.add(Divs(Scalar.f32(255)), g.add(Maxs(Scalar.f32(_TINY)), g.add(Sub(), high, low)))
    zero = _as_bytes(g, g.add(Rsubs(Scalar.f32(-128)), g.add(Div(), low, step)))
    scaled = g.add(Mul(), x, g.add(Rdivs(Scalar.f32(1)), step))
    return g.add(Mul(), g.add(Sub(), _as_bytes(g, g.add(Add(), scaled, zero)), zero), step)
