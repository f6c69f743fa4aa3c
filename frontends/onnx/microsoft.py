"""Quantized operators of the domain com.microsoft, as ONNX Runtime's quantizer writes them."""

from __future__ import annotations

import math
from collections.abc import Callable

from tpuconvert.frontends import emit, functions
from tpuconvert.frontends.onnx.node import OnnxNode, Result, onnx_op
from tpuconvert.frontends.onnx.pooling import average_pool_of
from tpuconvert.frontends.onnx.quantization import dequantized_value, integers, read_params
from tpuconvert.schema.errors import UNSUPPORTED_ATTRIBUTE, UNSUPPORTED_TYPE
from tpuconvert.schema.graph import Graph, Value
from tpuconvert.schema.ops import formulas
from tpuconvert.schema.ops.concat import Concat
from tpuconvert.schema.ops.pool import Pool, PoolType
from tpuconvert.schema.ops.softmax import Softmax

DOMAIN = "com.microsoft"


def _binary(name: str, function: Callable[[Graph, Value, Value], Value]) -> None:
    def convert(node: OnnxNode, g: Graph) -> Result:
        a = dequantized_value(node, g, 0, read_params(node, 1, 2))
        b = dequantized_value(node, g, 3, read_params(node, 4, 5))
        return integers(node, g, function(g, a, b), read_params(node, 6, 7))

    convert.__doc__ = f"{name} of the dequantized values; the result is annotated."
    onnx_op(name, since=1, domain=DOMAIN)(convert)


_binary("QLinearAdd", emit.add)
_binary("QLinearMul", emit.mul)


@onnx_op("QLinearSigmoid", since=1, domain=DOMAIN)
def sigmoid(node: OnnxNode, g: Graph) -> Result:
    """Sigmoid of the dequantized values."""
    x = dequantized_value(node, g, 0, read_params(node, 1, 2))
    return integers(node, g, formulas.sigmoid(g, x), read_params(node, 3, 4))


@onnx_op("QLinearLeakyRelu", since=1, domain=DOMAIN)
def leaky_relu(node: OnnxNode, g: Graph) -> Result:
    """LeakyRelu of the dequantized values."""
    x = dequantized_value(node, g, 0, read_params(node, 1, 2))
    return integers(node, g, functions.leaky_relu(g, x, node.attr("alpha", 0.01)), read_params(node, 3, 4))


@onnx_op("QLinearSoftmax", since=1, domain=DOMAIN)
def softmax(node: OnnxNode, g: Graph) -> Result:
    """Softmax of the dequantized values; the attribute ``opset`` selects the meaning of the axis."""
    x = dequantized_value(node, g, 0, read_params(node, 1, 2))
    shape = node.shape(0)
    opset = node.required_attr("opset", 13)
    axis = node.axis(node.attr("axis", -1 if opset >= 13 else 1), len(shape))
    if opset < 13 and axis != len(shape) - 1:
        flat = emit.reshape(g, x, (math.prod(shape[:axis]), math.prod(shape[axis:])))
        y = emit.reshape(g, g.add(Softmax(1), flat), shape)
    else:
        y = g.add(Softmax(axis), x)
    return integers(node, g, y, read_params(node, 3, 4))


@onnx_op("QLinearConcat", since=1, domain=DOMAIN)
def concat(node: OnnxNode, g: Graph) -> Result:
    """Concatenation of tensors with different scales."""
    axis = node.axis(node.required_attr("axis", 0), node.rank(2))
    if len(node.inputs) % 3 != 2:
        raise node.fail(UNSUPPORTED_TYPE, f"{len(node.inputs)} inputs")
    parts = [dequantized_value(node, g, k, read_params(node, k + 1, k + 2)) for k in range(2, len(node.inputs), 3)]
    y_quant = read_params(node, 0, 1)
    return integers(node, g, g.add(Concat(axis), *parts), y_quant)


def _refuse_channels_last(node: OnnxNode) -> None:
    if node.attr("channels_last", 0):
        raise node.fail(UNSUPPORTED_ATTRIBUTE, "channels_last=1", "supported: channels_last=0")


@onnx_op("QLinearGlobalAveragePool", since=1, domain=DOMAIN)
def global_average_pool(node: OnnxNode, g: Graph) -> Result:
    """Global average pooling of the dequantized values."""
    _refuse_channels_last(node)
    x = dequantized_value(node, g, 0, read_params(node, 1, 2))
    if x.rank == 4:
        op = Pool(kernel_h=1, kernel_w=1, stride_h=1, stride_w=1, pooling_type=PoolType.AVE, is_global_pooling=True)
        y = g.add(op, x)
    else:
        y = emit.mean(g, x, range(2, x.rank))
    return integers(node, g, y, read_params(node, 3, 4))


@onnx_op("QLinearAveragePool", since=1, domain=DOMAIN)
def average_pool(node: OnnxNode, g: Graph) -> Result:
    """Average pooling of the dequantized values."""
    _refuse_channels_last(node)
    x = dequantized_value(node, g, 0, read_params(node, 1, 2))
    return integers(node, g, average_pool_of(node, g, x, 1), read_params(node, 3, 4))
