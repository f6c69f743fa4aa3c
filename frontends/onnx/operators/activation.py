"""Activation functions and Clip."""

from __future__ import annotations

import math

import numpy as np

from tpuconvert.frontends import emit, functions
from tpuconvert.frontends.onnx.node import OnnxNode, Result, direct, onnx_op
from tpuconvert.frontends.registry import Kind
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops import formulas
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.compare import Gts, Lts
from tpuconvert.schema.ops.selection import ConditionSelect
from tpuconvert.schema.ops.smooth_activation import Gelu, GeluForm, HardSigmoid, HardSwish, Mish, Silu, Softplus
from tpuconvert.schema.types import DType, QuantParams, Scalar

direct("Sigmoid", Active(ActiveType.ACTIVE_SIGMOID))
direct("Tanh", Active(ActiveType.ACTIVE_TANH))
direct("HardSwish", HardSwish(), since=14)
direct("Mish", Mish(), since=18)
direct("Softplus", Softplus())


@onnx_op("LeakyRelu", since=1, kind=Kind.DIRECT)
def leaky_relu(node: OnnxNode, g: Graph) -> Result:
    """``where(x < 0, alpha * x, x)``."""
    return node.elementwise(functions.leaky_relu(g, node.float_input(), node.attr("alpha", 0.01)))


@onnx_op("PRelu", since=7)
def prelu(node: OnnxNode, g: Graph) -> Result:
    """``max(x, 0) + slope * min(x, 0)``, with a slope that broadcasts to ``x``."""
    x = node.float_input()
    if node.is_constant(1) and node.constant(1).size == 1:
        return node.elementwise(functions.leaky_relu(g, x, node.scalar(1)))
    return node.elementwise(functions.prelu(g, x, node.input(1)))


@onnx_op("PRelu", since=1)
def prelu_per_channel(node: OnnxNode, g: Graph) -> Result:
    """PRelu before opset 7: a slope of rank 1 has one element per channel."""
    x, slope = node.float_input(), node.input(1)
    if slope.rank == 1 and x.rank > 1 and slope.shape[0] != 1:
        slope = emit.reshape(g, slope, (emit.extents(slope)[0],) + (1,) * (x.rank - 2))
    return node.elementwise(functions.prelu(g, x, slope))


@onnx_op("Elu", since=1, kind=Kind.DIRECT)
def elu(node: OnnxNode, g: Graph) -> Result:
    """``where(x < 0, alpha * (exp(x) - 1), x)``."""
    return node.elementwise(functions.elu(g, node.float_input(), node.attr("alpha", 1.0)))


@onnx_op("Selu", since=1)
def selu(node: OnnxNode, g: Graph) -> Result:
    """``gamma * elu(x)``."""
    old = node.version < 6
    alpha = node.attr("alpha", 1.6732 if old else 1.67326319217681884765625)
    gamma = node.attr("gamma", 1.0507 if old else 1.05070102214813232421875)
    return node.elementwise(emit.muls(g, functions.elu(g, node.float_input(), alpha), gamma))


@onnx_op("Celu", since=12)
def celu(node: OnnxNode, g: Graph) -> Result:
    """``max(x, 0) + min(0, alpha * (exp(x / alpha) - 1))``."""
    alpha = node.attr("alpha", 1.0)
    return node.elementwise(functions.elu(g, node.float_input(), alpha, inner=alpha))


@onnx_op("HardSigmoid", since=1, kind=Kind.DIRECT)
def hard_sigmoid(node: OnnxNode, g: Graph) -> Result:
    """``min(max(alpha * x + beta, 0), 1)``."""
    op = HardSigmoid(node.attr("alpha", 0.2), node.attr("beta", 0.5))
    return node.elementwise(g.add(op, node.float_input()))


@onnx_op("Swish", since=24, kind=Kind.DIRECT)
def swish(node: OnnxNode, g: Graph) -> Result:
    """``x * sigmoid(alpha * x)``."""
    return node.elementwise(g.add(Silu(node.attr("alpha", 1.0)), node.float_input()))


@onnx_op("Gelu", since=20, kind=Kind.DIRECT)
def gelu(node: OnnxNode, g: Graph) -> Result:
    """``x / 2 * (1 + erf(x / sqrt(2)))``, or its approximation by tanh."""
    approximate = node.choice("approximate", "none", ("none", "tanh"))
    form = GeluForm.TANH if approximate == "tanh" else GeluForm.ERF
    return node.elementwise(g.add(Gelu(form), node.float_input()))


@onnx_op("Softsign", since=1)
def softsign(node: OnnxNode, g: Graph) -> Result:
    """``x / (1 + |x|)``."""
    return node.elementwise(functions.softsign(g, node.float_input()))


@onnx_op("ThresholdedRelu", since=10)
def thresholded_relu(node: OnnxNode, g: Graph) -> Result:
    """``where(x > alpha, x, 0)``."""
    x = node.float_input()
    above = g.add(Gts(Scalar.f32(node.attr("alpha", 1.0))), x)
    return node.elementwise(g.add(ConditionSelect(), above, x, emit.float_constant(g, np.zeros(1))))


@onnx_op("Shrink", since=9, limits="floating point")
def shrink(node: OnnxNode, g: Graph) -> Result:
    """``x + bias`` if ``x < -lambd``, ``x - bias`` if ``x > lambd``, else 0."""
    x, bias, limit = node.float_input(), node.attr("bias", 0.0), node.attr("lambd", 0.5)
    above, below = g.add(Gts(Scalar.f32(limit)), x), g.add(Lts(Scalar.f32(-limit)), x)
    inner = g.add(ConditionSelect(), below, emit.adds(g, x, bias), emit.float_constant(g, np.zeros(1)))
    return node.elementwise(g.add(ConditionSelect(), above, emit.adds(g, x, -bias), inner))


@onnx_op("Relu", since=1, kind=Kind.DIRECT)
def relu(node: OnnxNode, g: Graph) -> Result:
    """``max(x, 0)``."""
    x = node.input(0)
    return node.elementwise(formulas.relu(g, x) if x.dtype is DType.FLOAT32 else emit.maxs(g, x, 0))


@onnx_op("Clip", since=11, kind=Kind.DIRECT)
def clip(node: OnnxNode, g: Graph) -> Result:
    """``min(max(x, low), high)``; the bounds may be computed."""
    quant = node.tensor(0).quant
    if quant is not None and quant.axis is None:
        return _clip_quantized(node, g, quant)
    x = node.input(0)
    is_fixed = all(node.is_constant(index) for index in (1, 2) if node.has_input(index))
    if not is_fixed:
        for index, function in ((1, "max"), (2, "min")):
            if node.has_input(index):
                x = emit.binary(g, function, x, node.input(index))
        return node.elementwise(x)
    bounds = [node.scalar(i) if node.has_input(i) else default for i, default in ((1, -math.inf), (2, math.inf))]
    if x.dtype is DType.INT32:
        # 64-bit bounds outside the range of INT32 have no effect
        bounds = [
            -math.inf if bounds[0] < x.dtype.min else bounds[0],
            math.inf if bounds[1] > x.dtype.max else bounds[1],
        ]
    return _clip(node, g, x, bounds[0], bounds[1])


def _clip_quantized(node: OnnxNode, g: Graph, quant: QuantParams) -> Result:
    """Clip integers between a QuantizeLinear and a DequantizeLinear: bounds of fake quantization with fewer values."""
    (scale,), (zero,) = quant.scale, quant.zero_point
    limits = (quant.dtype.min, quant.dtype.max)
    bounds = [node.scalar(i) if node.has_input(i) else limits[i - 1] for i in (1, 2)]
    x = node.dequantized_input(0)
    if bounds[0] > limits[0] or bounds[1] < limits[1]:
        low, high = (float(np.float32(scale) * np.float32(bound - zero)) for bound in bounds)
        x = emit.clamp(g, x, low, high)
        x.quant = quant
    return node.result(x, node.element(0), quant=quant)


@onnx_op("Clip", since=1, kind=Kind.DIRECT)
def clip_attributes(node: OnnxNode, g: Graph) -> Result:
    """Clip before opset 11: the bounds are attributes."""
    return _clip(node, g, node.float_input(), node.attr("min", -math.inf), node.attr("max", math.inf))


def _clip(node: OnnxNode, g: Graph, x: Value, low: float, high: float) -> Result:
    if math.isnan(low) or math.isnan(high):
        raise node.invalid("a bound is NaN")
    largest = float(np.finfo(np.float32).max)
    if x.dtype is DType.FLOAT32:  # exporters write these values for "no bound"
        low, high = (-math.inf if low <= -largest else low), (math.inf if high >= largest else high)
    if x.dtype is DType.INT32:  # clamp computes INT32 in float32, max and min are exact
        x = x if math.isinf(low) else emit.maxs(g, x, low)
        return node.elementwise(x if math.isinf(high) else emit.mins(g, x, high))
    return node.elementwise(emit.clamp(g, x, low, high))
