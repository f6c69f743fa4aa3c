"""Softmax and the normalizations whose statistics are computed."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tpuconvert.frontends import emit
from tpuconvert.frontends.onnx import elements
from tpuconvert.frontends.onnx.node import OnnxNode, Result, onnx_op
from tpuconvert.frontends.onnx.pooling import powered, rooted
from tpuconvert.frontends.registry import Kind
from tpuconvert.schema.errors import INVALID_NODE
from tpuconvert.schema.graph import Graph, Value
from tpuconvert.schema.ops import formulas
from tpuconvert.schema.ops.compare import Eqs
from tpuconvert.schema.ops.conv import Conv
from tpuconvert.schema.ops.reduce import ReduceMethodType
from tpuconvert.schema.ops.softmax import Softmax
from tpuconvert.schema.types import Scalar


@onnx_op("Softmax", since=13, kind=Kind.DIRECT)
def softmax(node: OnnxNode, g: Graph) -> Result:
    """exp(x) / sum(exp(x)) along one axis."""
    axis = node.axis(node.attr("axis", -1), node.rank(0))
    return node.elementwise(g.add(Softmax(axis), emit.floats(node.input(0))))


@onnx_op("Softmax", since=1, kind=Kind.DIRECT)
def softmax_flattening(node: OnnxNode, g: Graph) -> Value:
    """Before opset 13 all axes from ``axis`` on are one flattened axis."""
    x, target = _flattened(node, g)
    y = g.add(Softmax(1), emit.reshape(g, x, target)) if target else g.add(Softmax(x.rank - 1), x)
    return emit.reshape(g, y, emit.extents(x))


def _flattened(node: OnnxNode, g: Graph) -> tuple[Value, tuple[int, int] | None]:
    """The input and the two extents it is flattened to, None where the last axis alone is meant."""
    x = emit.floats(node.input(0))
    shape = node.shape(0)
    axis = node.axis(node.attr("axis", 1), len(shape)) if len(shape) > 1 else 0
    if axis == len(shape) - 1:
        return x, None
    return x, (math.prod(shape[:axis]), math.prod(shape[axis:]))


def log_softmax_of(g: Graph, x: Value, axis: int) -> Value:
    """``x - max - ln(sum(exp(x - max)))``."""
    shifted = emit.sub(g, x, emit.reduce(g, ReduceMethodType.REDUCE_MAX, x, (axis,)))
    return emit.sub(g, shifted, formulas.ln(g, emit.total(g, formulas.exp(g, shifted), (axis,))))


@onnx_op("LogSoftmax", since=13)
def log_softmax(node: OnnxNode, g: Graph) -> Value:
    """Logarithm of softmax along one axis."""
    return log_softmax_of(g, emit.floats(node.input(0)), node.axis(node.attr("axis", -1), node.rank(0)))


@onnx_op("LogSoftmax", since=1)
def log_softmax_flattening(node: OnnxNode, g: Graph) -> Value:
    """Before opset 13 all axes from ``axis`` on are one flattened axis."""
    x, target = _flattened(node, g)
    y = log_softmax_of(g, emit.reshape(g, x, target), 1) if target else log_softmax_of(g, x, x.rank - 1)
    return emit.reshape(g, y, emit.extents(x))


def standardized(g: Graph, x: Value, axes: Sequence[int], epsilon: float) -> Value:
    """(x - mean) / sqrt(variance + epsilon) over axes."""
    centred = emit.sub(g, x, emit.mean(g, x, axes))
    variance = emit.mean(g, formulas.square(g, centred), axes)
    return emit.mul(g, centred, formulas.rsqrt(g, emit.adds(g, variance, epsilon)))


@onnx_op("LayerNormalization", since=17, limits="stash_type 1")
def layer_normalization(node: OnnxNode, g: Graph) -> list[Result]:
    """Standardized over the axes from ``axis`` on, then scaled and shifted; the statistics where they are asked for."""
    node.refuse_attr("stash_type", 1)
    x = emit.floats(node.input(0))
    axis = node.axis(node.attr("axis", -1), node.rank(0))
    axes, epsilon = range(axis, x.rank), node.attr("epsilon", 1e-5)
    y = emit.mul(g, standardized(g, x, axes, epsilon), emit.floats(node.input(1)))
    bias = node.optional(2)
    results = [node.result(y if bias is None else emit.add(g, y, bias))]
    if any(node.outputs_used[1:]):
        results += [node.result(value, elements.FLOAT) for value in _statistics(g, x, axes, epsilon)]
    return results


def _statistics(g: Graph, x: Value, axes: Sequence[int], epsilon: float) -> tuple[Value, Value]:
    """Mean and 1 / standard deviation over axes."""
    mean = emit.mean(g, x, axes)
    variance = emit.mean(g, formulas.square(g, emit.sub(g, x, mean)), axes)
    return mean, formulas.rsqrt(g, emit.adds(g, variance, epsilon))


@onnx_op("RMSNormalization", since=23)
def rms_normalization(node: OnnxNode, g: Graph) -> Result:
    """``x / sqrt(mean(x * x) + epsilon)``, scaled."""
    node.refuse_attr("stash_type", 1)
    x = emit.floats(node.input(0))
    axis = node.axis(node.attr("axis", -1), node.rank(0))
    power = emit.mean(g, formulas.square(g, x), range(axis, x.rank))
    y = emit.mul(g, x, formulas.rsqrt(g, emit.adds(g, power, node.attr("epsilon", 1e-5))))
    return node.result(emit.mul(g, y, emit.floats(node.input(1))))


def _channels(node: OnnxNode) -> int:
    if node.rank(0) < 3:
        raise node.fail(INVALID_NODE, f"an input of rank {node.rank(0)} has no spatial axes")
    return node.shape(0)[1]


@onnx_op("InstanceNormalization", since=1)
def instance_normalization(node: OnnxNode, g: Graph) -> Value:
    """Standardized over the spatial axes, scaled and shifted per channel."""
    x = emit.floats(node.input(0))
    rank, channels = node.rank(0), _channels(node)
    y = standardized(g, x, range(2, rank), node.attr("epsilon", 1e-5))
    return _affine(g, y, node.input(1), node.input(2), (channels,) + (1,) * (rank - 2))


def _affine(g: Graph, x: Value, scale: Value, bias: Value, shape: Sequence[int]) -> Value:
    return emit.add(g, emit.mul(g, x, emit.reshape(g, scale, shape)), emit.reshape(g, bias, shape))


@onnx_op("GroupNormalization", since=18)
def group_normalization(node: OnnxNode, g: Graph) -> Value:
    """Standardized over groups of channels; scale and bias per group (opset 18) or per channel (opset 21)."""
    x = emit.floats(node.input(0))
    shape = node.shape(0)
    groups = node.required_attr("num_groups", 1)
    if groups < 1 or _channels(node) % groups:
        raise node.fail(INVALID_NODE, f"{shape[1]} channels in {groups} groups")
    if node.version >= 21:
        node.refuse_attr("stash_type", 1)
    inner = emit.reshape(g, x, (shape[0], groups, math.prod(shape[1:]) // groups))
    y = standardized(g, inner, (2,), node.attr("epsilon", 1e-5))
    scale, bias = node.input(1), node.input(2)
    if node.version < 21:
        return emit.reshape(g, _affine(g, y, scale, bias, (groups, 1)), shape)
    return _affine(g, emit.reshape(g, y, shape), scale, bias, (shape[1],) + (1,) * (len(shape) - 2))


@onnx_op("MeanVarianceNormalization", since=9)
def mean_variance_normalization(node: OnnxNode, g: Graph) -> Value:
    """(x - mean) / standard deviation."""
    x = emit.floats(node.input(0))
    axes = node.axes(node.attr("axes", (0, 2, 3)), node.rank(0))
    centred = emit.sub(g, x, emit.mean(g, x, axes))
    deviation = formulas.sqrt(g, emit.mean(g, formulas.square(g, centred), axes))
    return emit.div(g, centred, emit.adds(g, deviation, 1e-9))


@onnx_op("LpNormalization", since=1)
def lp_normalization(node: OnnxNode, g: Graph) -> Value:
    """The tensor x divided by its norm along one axis."""
    x = emit.floats(node.input(0))
    axis, p = node.axis(node.attr("axis", -1), node.rank(0)), float(node.attr("p", 2))
    norm = rooted(g, emit.total(g, powered(node, g, x, p), (axis,)), p)
    return emit.div(g, x, emit.add(g, norm, g.add(Eqs(Scalar.f32(0)), norm)))


@onnx_op("LRN", since=1)
def local_response_normalization(node: OnnxNode, g: Graph) -> Value:
    """``x / (bias + alpha / size * sum of squares of neighbouring channels) ^ beta``.

    The sum over neighbouring channels is a 1 x 1 convolution with a banded matrix.
    """
    x = emit.floats(node.input(0))
    shape = node.shape(0)
    size = node.required_attr("size", 1)
    alpha, beta, bias = node.attr("alpha", 1e-4), node.attr("beta", 0.75), node.attr("bias", 1.0)
    if len(shape) < 3 or size < 1:
        raise node.fail(INVALID_NODE, f"an input of rank {len(shape)} with size={size}")
    channels = shape[1]
    node.budget((channels, channels), 4, "banded matrix")
    offset = np.arange(channels)[None, :] - np.arange(channels)[:, None]
    band = ((offset >= -((size - 1) // 2)) & (offset <= size // 2)).astype(np.float32)
    plane = (shape[0], channels, math.prod(shape[2:]), 1) if len(shape) != 4 else shape
    squares = formulas.square(g, emit.reshape(g, x, plane))
    sums = g.add(Conv(), squares, g.constant(band[:, :, None, None], name="band"))
    base = emit.adds(g, emit.muls(g, sums, alpha / size), bias)
    factor = formulas.exp(g, emit.muls(g, formulas.ln(g, base), -beta))
    return emit.mul(g, x, emit.reshape(g, factor, shape))
