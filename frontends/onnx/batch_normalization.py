"""BatchNormalization with constant or computed statistics as inputs."""

from __future__ import annotations

import functools
import math

from tpuconvert.frontends import emit
from tpuconvert.frontends.onnx.node import OnnxNode, onnx_op
from tpuconvert.frontends.registry import Kind
from tpuconvert.schema.errors import INVALID_NODE, UNSUPPORTED_ATTRIBUTE
from tpuconvert.schema.graph import Graph, Value
from tpuconvert.schema.ops.batch_norm import BatchNorm


@onnx_op("BatchNormalization", since=1, kind=Kind.DIRECT, limits="inference")
def batch_normalization(node: OnnxNode, g: Graph) -> Value:
    """``scale * (x - mean) / sqrt(variance + epsilon) + bias`` per channel."""
    node.optional_attr("momentum")  # only used in training
    if node.version < 7:
        is_test = node.optional_attr("is_test")
        if is_test == 0:
            raise node.fail(UNSUPPORTED_ATTRIBUTE, "is_test=0", "export the model for inference")
    if node.version < 9:
        node.refuse_attr("spatial", 1)
    if node.version >= 14 and node.attr("training_mode", 0):
        raise node.fail(UNSUPPORTED_ATTRIBUTE, "training_mode=1", "export the model for inference")
    if any(node.outputs_used[1:]):
        raise node.fail(UNSUPPORTED_ATTRIBUTE, "its statistics are used as outputs", "export the model for inference")
    x = emit.floats(node.input(0))
    shape = node.shape(0)
    if len(shape) < 2 or any(node.shape(index) != (shape[1],) for index in range(1, 5)):
        raise node.fail(INVALID_NODE, f"parameters do not fit the {shape[1] if len(shape) > 1 else 0} channels")
    scale, bias, mean, variance = (emit.floats(node.input(index)) for index in range(1, 5))
    plane = (shape[0], shape[1], math.prod(shape[2:]), 1) if len(shape) != 4 else shape
    epsilon = node.attr("epsilon", 1e-5)
    op = _batch_norm(epsilon, math.copysign(1, epsilon))
    y, _, _ = g.add_all(op, emit.reshape(g, x, plane), mean, variance, scale, bias)
    return emit.reshape(g, y, shape)


@functools.lru_cache(1 << 6)
def _batch_norm(epsilon: float, _sign: float) -> BatchNorm:
    """Return one object for equal attributes; ``_sign`` distinguishes -0.0 from 0.0 in the cache."""
    return BatchNorm(epsilon=epsilon)
