"""Quantized operators of the domain com.microsoft, as ONNX Runtime's quantizer writes them."""

from __future__ import annotations

from collections.abc import Callable

from tpuconvert.frontends import emit, functions
from tpuconvert.frontends.onnx.node import OnnxNode, Result, onnx_op
from tpuconvert.frontends.onnx.operators.matmul import matmul_values, matrix_product
from tpuconvert.frontends.onnx.operators.normalization import apply_flattened
from tpuconvert.frontends.onnx.operators.normalization import softmax as softmax_of
from tpuconvert.frontends.onnx.operators.pooling import average_pool_of, global_pool
from tpuconvert.frontends.onnx.operators.quantization import (
    dequantize_linear,
    dequantized_bias,
    dequantized_value,
    integers,
    quantize_dynamically,
    quantize_linear,
    read_params,
    subtract_zero_point,
)
from tpuconvert.schema.errors import UNSUPPORTED_ATTRIBUTE, UNSUPPORTED_TYPE
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops import formulas
from tpuconvert.schema.ops.concat import Concat
from tpuconvert.schema.ops.pool import PoolType

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
    opset = node.required_attr("opset", 13)
    axis = node.axis(node.attr("axis", -1 if opset >= 13 else 1), node.rank(0))
    y = softmax_of(g, x, axis) if opset >= 13 else apply_flattened(g, softmax_of, x, axis)
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
    return integers(node, g, global_pool(g, PoolType.AVE, x), read_params(node, 3, 4))


@onnx_op("QLinearAveragePool", since=1, domain=DOMAIN)
def average_pool(node: OnnxNode, g: Graph) -> Result:
    """Average pooling of the dequantized values."""
    _refuse_channels_last(node)
    x = dequantized_value(node, g, 0, read_params(node, 1, 2))
    return integers(node, g, average_pool_of(node, g, x, 1), read_params(node, 3, 4))


@onnx_op("QGemm", since=1, domain=DOMAIN)
def q_gemm(node: OnnxNode, g: Graph) -> Result:
    """``alpha * a @ b + c`` on integers; without a scale of the output the result is floating point."""
    transposed = bool(node.attr("transB", 0))
    alpha = node.attr("alpha", 1.0)
    a_quant = read_params(node, 1, 2)
    b_quant = read_params(node, 4, 5, axis=0 if transposed else 1)
    a, b = dequantized_value(node, g, 0, a_quant), dequantized_value(node, g, 3, b_quant)
    a = emit.permute(g, a, (1, 0)) if node.attr("transA", 0) else a
    b = emit.permute(g, b, (1, 0)) if transposed else b
    bias = dequantized_bias(node, g, 6, a_quant, b_quant) if node.has_input(6) else None
    columns = emit.extents(b)[1]
    if bias is not None and alpha == 1 and emit.extents(bias)[-1] == columns and bias.is_constant:
        bias = emit.reshape(g, bias, (1, columns)) if bias.array.size == columns else bias
    if bias is not None and alpha == 1 and emit.extents(bias) == (1, columns):
        y = matrix_product(g, a, b, bias)
    else:
        y = matrix_product(g, a, b)
        y = emit.add(g, y, bias) if bias is not None else y
        y = emit.muls(g, y, alpha) if alpha != 1 else y
    return integers(node, g, y, read_params(node, 7, 8)) if node.has_input(7) else node.result(y)


@onnx_op("MatMulIntegerToFloat", since=1, domain=DOMAIN)
def matmul_integer_to_float(node: OnnxNode, g: Graph) -> Result:
    """``(a - a_zero) @ (b - b_zero) * a_scale * b_scale + bias``."""
    a, b = subtract_zero_point(node, g, 0, 4, -2), subtract_zero_point(node, g, 1, 5, -1)
    y, shape = matmul_values(node, g, a, node.shape(0), b, node.shape(1))
    y = emit.mul(g, emit.reshape(g, y, shape), emit.mul(g, *(emit.floats(node.input(index)) for index in (2, 3))))
    return node.result(emit.add(g, y, emit.floats(node.input(6))) if node.has_input(6) else y)


@onnx_op("DynamicQuantizeMatMul", since=1, domain=DOMAIN)
def dynamic_quantize_matmul(node: OnnxNode, g: Graph) -> Result:
    """Matmul whose left operand is first quantized to 8 bits, with a scale from its range at run time."""
    rounded, scale, zero = quantize_dynamically(g, emit.floats(node.input(0)), keep_dims=True)
    a = emit.sub(g, rounded, zero)
    b = subtract_zero_point(node, g, 1, 3, -1)
    y, shape = matmul_values(node, g, a, node.shape(0), b, node.shape(1))
    scale = emit.reshape(g, scale, (1,) * max(len(shape), 1))
    y = emit.mul(g, emit.mul(g, emit.reshape(g, y, shape), scale), emit.floats(node.input(2)))
    return node.result(emit.add(g, y, emit.floats(node.input(4))) if node.has_input(4) else y)


@onnx_op("QLinearReduceMean", since=1, domain=DOMAIN)
def reduce_mean(node: OnnxNode, g: Graph) -> Result:
    """Mean over axes of the dequantized values."""
    x = dequantized_value(node, g, 0, read_params(node, 1, 2))
    axes = node.axes(node.ints_attr("axes") or range(node.rank(0)), node.rank(0))
    y = emit.mean(g, x, sorted(axes), keep_dims=bool(node.attr("keepdims", 1)))
    return integers(node, g, y, read_params(node, 3, 4))


onnx_op("QuantizeLinear", since=1, domain=DOMAIN)(quantize_linear)
onnx_op("DequantizeLinear", since=1, domain=DOMAIN)(dequantize_linear)
