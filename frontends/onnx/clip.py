"""Relu and Clip."""

from __future__ import annotations

import math

import numpy as np

from tpuconvert.frontends import emit
from tpuconvert.frontends.onnx.node import OnnxNode, Result, onnx_op
from tpuconvert.frontends.registry import Kind
from tpuconvert.schema.errors import INVALID_NODE
from tpuconvert.schema.graph import Graph, Value
from tpuconvert.schema.ops import formulas
from tpuconvert.schema.types import DType


@onnx_op("Relu", since=1, kind=Kind.DIRECT)
def relu(node: OnnxNode, g: Graph) -> Result:
    """``max(x, 0)``."""
    x = node.input(0)
    return node.elementwise(formulas.relu(g, x) if x.dtype is DType.FLOAT32 else emit.maxs(g, x, 0))


@onnx_op("Clip", since=11, kind=Kind.DIRECT)
def clip(node: OnnxNode, g: Graph) -> Result:
    """``min(max(x, low), high)``; the bounds may be tensors."""
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


@onnx_op("Clip", since=1, kind=Kind.DIRECT)
def clip_attributes(node: OnnxNode, g: Graph) -> Result:
    """Clip before opset 11: the bounds are attributes."""
    return _clip(node, g, node.float_input(), node.attr("min", -math.inf), node.attr("max", math.inf))


def _clip(node: OnnxNode, g: Graph, x: Value, low: float, high: float) -> Result:
    if math.isnan(low) or math.isnan(high):
        raise node.fail(INVALID_NODE, "a bound is NaN")
    largest = float(np.finfo(np.float32).max)
    if x.dtype is DType.FLOAT32:  # exporters write these values for "no bound"
        low, high = (-math.inf if low <= -largest else low), (math.inf if high >= largest else high)
    if x.dtype is DType.INT32:  # clamp computes INT32 in float32, max and min are exact
        x = x if math.isinf(low) else emit.maxs(g, x, low)
        return node.elementwise(x if math.isinf(high) else emit.mins(g, x, high))
    return node.elementwise(emit.clamp(g, x, low, high))
