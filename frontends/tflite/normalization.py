"""SOFTMAX, LOG_SOFTMAX, L2_NORMALIZATION and LOCAL_RESPONSE_NORMALIZATION."""

from __future__ import annotations

import dataclasses

import numpy as np

from tpuconvert.frontends.registry import Kind
from tpuconvert.frontends.tflite import recipes
from tpuconvert.frontends.tflite.layout import Permuted
from tpuconvert.frontends.tflite.node import TfliteNode, real_constant, tflite_op
from tpuconvert.schema.errors import INVALID_NODE
from tpuconvert.schema.graph import Graph, Value
from tpuconvert.schema.ops.activation import ActiveType
from tpuconvert.schema.ops.arithmetic import Div, Mul, Sub
from tpuconvert.schema.ops.arithmetic_with_scalar import Maxs
from tpuconvert.schema.ops.conv import Conv
from tpuconvert.schema.ops.reduce import Reduce, ReduceMethodType
from tpuconvert.schema.ops.softmax import Softmax
from tpuconvert.schema.types import Scalar


@tflite_op("SOFTMAX", kind=Kind.DIRECT)
def softmax(node: TfliteNode, g: Graph) -> Value:
    """exp(beta x) over its sum along the last axis."""
    x = node.input(0)
    beta = node.option("beta", 1.0)
    if beta != 1.0:
        quant = x.quant
        x = recipes.muls(g, x, beta)
        if quant is not None and beta > 0:  # the same integers at another scale
            x.quant = dataclasses.replace(quant, scale=tuple(float(np.float32(s * beta)) for s in quant.scale))
    return g.add(Softmax(axis=x.rank - 1), x)


def _reduced(g: Graph, x: Value, method: ReduceMethodType) -> Value:
    return g.add(Reduce(method=method, axis_list=(x.rank - 1,), keep_dims=True), x)


@tflite_op("LOG_SOFTMAX")
def log_softmax(node: TfliteNode, g: Graph) -> Value:
    """Computes x - max - ln(sum(exp(x - max))) along the last axis."""
    x = node.input(0)
    centred = g.add(Sub(), x, _reduced(g, x, ReduceMethodType.REDUCE_MAX))
    total = _reduced(g, recipes.active(g, ActiveType.ACTIVE_EXP, centred), ReduceMethodType.REDUCE_SUM)
    return g.add(Sub(), centred, recipes.active(g, ActiveType.ACTIVE_LN, total))


@tflite_op("L2_NORMALIZATION")
def l2_normalization(node: TfliteNode, g: Graph) -> Value:
    """The input over its length along the last axis; lengths below 1e-6 count as 1e-6."""
    x = node.input(0)
    total = _reduced(g, recipes.active(g, ActiveType.ACTIVE_SQUARE, x), ReduceMethodType.REDUCE_SUM)
    length = g.add(Maxs(Scalar.f32(1e-6)), recipes.active(g, ActiveType.ACTIVE_SQRT, total))
    return node.activated(g.add(Div(), x, length))


@tflite_op("LOCAL_RESPONSE_NORMALIZATION")
def local_response_normalization(node: TfliteNode, g: Graph) -> Permuted:
    """Computes x / (bias + alpha * sum of squares of the channels within the radius) ^ beta.

    The window over channels is a 1x1 convolution with a banded matrix of ones.
    """
    if node.rank(0) != 4:
        raise node.fail(INVALID_NODE, f"input {list(node.shape(0))} must have rank 4")
    radius, beta = node.option("radius"), node.option("beta", 0.0)
    channels = node.shape(0)[3]
    node.check_size([channels, channels])
    distance = np.abs(np.subtract.outer(np.arange(channels), np.arange(channels)))
    band = real_constant(g, (distance <= radius).astype(np.float32)[:, :, None, None], "window")
    x = node.nchw(0)
    total = g.add(Conv(), recipes.active(g, ActiveType.ACTIVE_SQUARE, x), band)
    inner = recipes.adds(g, recipes.muls(g, total, node.option("alpha", 0.0)), node.option("bias", 0.0))
    logarithm = recipes.active(g, ActiveType.ACTIVE_LN, inner)
    factor = recipes.active(g, ActiveType.ACTIVE_EXP, recipes.muls(g, logarithm, -beta))
    return node.nhwc(g.add(Mul(), x, factor))
