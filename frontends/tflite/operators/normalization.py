"""SOFTMAX, LOG_SOFTMAX, L2_NORMALIZATION and LOCAL_RESPONSE_NORMALIZATION."""

from __future__ import annotations

import dataclasses

import numpy as np

from tpuconvert.frontends import emit, functions
from tpuconvert.frontends.registry import Kind
from tpuconvert.frontends.tflite.layout import Permuted
from tpuconvert.frontends.tflite.node import TfliteNode, tflite_op
from tpuconvert.schema.errors import INVALID_NODE
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops import formulas
from tpuconvert.schema.ops.arithmetic import Div
from tpuconvert.schema.ops.normalization import Lrn
from tpuconvert.schema.ops.softmax import Softmax


@tflite_op("SOFTMAX", kind=Kind.DIRECT)
def softmax(node: TfliteNode, g: Graph) -> Value:
    """Softmax of ``beta * x`` along the last axis."""
    x = node.input(0)
    beta = node.option("beta", 1.0)
    if beta != 1.0:
        quant = x.quant
        x = emit.muls(g, x, beta)
        if quant is not None and beta > 0:  # the integers stay the same, their scale changes
            x.quant = dataclasses.replace(quant, scale=tuple(float(np.float32(s * beta)) for s in quant.scale))
    return g.add(Softmax(axis=x.rank - 1), x)


@tflite_op("LOG_SOFTMAX")
def log_softmax(node: TfliteNode, g: Graph) -> Value:
    """``x - max - ln(sum(exp(x - max)))`` along the last axis."""
    x = node.input(0)
    return functions.log_softmax(g, x, x.rank - 1)


@tflite_op("L2_NORMALIZATION")
def l2_normalization(node: TfliteNode, g: Graph) -> Value:
    """Divide by the L2 norm along the last axis; norms below 1e-6 are replaced by 1e-6."""
    x = node.input(0)
    norm = formulas.sqrt(g, emit.total(g, formulas.square(g, x), (x.rank - 1,)))
    return node.activate(g.add(Div(), x, emit.maxs(g, norm, 1e-6)))


@tflite_op("LOCAL_RESPONSE_NORMALIZATION", kind=Kind.DIRECT)
def local_response_normalization(node: TfliteNode, g: Graph) -> Permuted:
    """``x / (bias + alpha * sum of squares of the channels within the radius) ^ beta``."""
    if node.rank(0) != 4:
        raise node.fail(INVALID_NODE, f"input {list(node.shape(0))} must have rank 4")
    channels = node.shape(0)[3]
    node.check_size([channels, channels])  # a banded matrix, a constant of the decomposed Lrn
    size = 2 * node.option("radius") + 1
    op = Lrn(size, size * node.option("alpha", 0.0), node.option("beta", 0.0), node.option("bias", 0.0))
    return node.nhwc(g.add(op, node.nchw(0)))
