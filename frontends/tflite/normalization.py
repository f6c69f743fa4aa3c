"""SOFTMAX, LOG_SOFTMAX, L2_NORMALIZATION and LOCAL_RESPONSE_NORMALIZATION."""

from __future__ import annotations

import dataclasses

import numpy as np

from tpuconvert.frontends.registry import Kind
from tpuconvert.frontends.tflite import recipes
from tpuconvert.frontends.tflite.layout import Permuted
from tpuconvert.frontends.tflite.node import TfliteNode, tflite_op
from tpuconvert.schema.errors import INVALID_NODE
from tpuconvert.schema.graph import Graph, Value
from tpuconvert.schema.ops.activation import ActiveType
from tpuconvert.schema.ops.arithmetic import Div, Sub
from tpuconvert.schema.ops.arithmetic_with_scalar import Maxs
from tpuconvert.schema.ops.normalization import Lrn
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
    """``x / (bias + alpha * sum of squares of the channels within the radius) ^ beta``."""
    if node.rank(0) != 4:
        raise node.fail(INVALID_NODE, f"input {list(node.shape(0))} must have rank 4")
    channels = node.shape(0)[3]
    node.check_size([channels, channels])  # the banded matrix of the operator's expansion
    size = 2 * node.option("radius") + 1
    op = Lrn(size, size * node.option("alpha", 0.0), node.option("beta", 0.0), node.option("bias", 0.0))
    return node.nhwc(g.add(op, node.nchw(0)))
