"""Fused operators of the domain com.microsoft, as ONNX Runtime's optimizer and model builders write them."""

from __future__ import annotations

import functools
from collections.abc import Callable

from tpuconvert.frontends import emit, functions
from tpuconvert.frontends.onnx.file import element_types
from tpuconvert.frontends.onnx.node import OnnxNode, Result, onnx_op
from tpuconvert.frontends.onnx.operators.attention import rotate
from tpuconvert.frontends.onnx.operators.convolution import conv_values
from tpuconvert.frontends.onnx.operators.matmul import matmul_values, matrix_product
from tpuconvert.frontends.onnx.operators.microsoft import DOMAIN
from tpuconvert.frontends.onnx.operators.normalization import normalize_last
from tpuconvert.frontends.registry import Kind
from tpuconvert.schema.errors import UNSUPPORTED_ATTRIBUTE
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops import formulas
from tpuconvert.schema.ops.activation import ActiveType
from tpuconvert.schema.ops.clamp import Clamp
from tpuconvert.schema.ops.normalization import LayerNorm, RmsNorm
from tpuconvert.schema.ops.smooth_activation import Gelu, GeluForm, HardSigmoid, Silu
from tpuconvert.schema.types import Scalar


def _sum_inputs(node: OnnxNode, g: Graph, *indices: int, required: int) -> Value:
    """Sum of inputs; the inputs from index ``required`` on are optional."""
    values = [emit.floats(node.input(index)) for index in indices if index < required or node.has_input(index)]
    return functools.reduce(functools.partial(emit.add, g), values)


@onnx_op("Gelu", since=1, domain=DOMAIN, kind=Kind.DIRECT)
def gelu(node: OnnxNode, g: Graph) -> Result:
    """``0.5 * x * (1 + erf(x / sqrt(2)))``."""
    return node.elementwise(g.add(Gelu(), emit.floats(node.input(0))))


@onnx_op("BiasGelu", since=1, domain=DOMAIN)
def bias_gelu(node: OnnxNode, g: Graph) -> Result:
    """``gelu(x + bias)``."""
    return node.result(g.add(Gelu(), _sum_inputs(node, g, 0, 1, required=1)))


@onnx_op("FastGelu", since=1, domain=DOMAIN)
def fast_gelu(node: OnnxNode, g: Graph) -> Result:
    """``gelu(x + bias)`` with the tanh approximation."""
    return node.result(g.add(Gelu(GeluForm.TANH), _sum_inputs(node, g, 0, 1, required=1)))


@onnx_op("QuickGelu", since=1, domain=DOMAIN, kind=Kind.DIRECT)
def quick_gelu(node: OnnxNode, g: Graph) -> Result:
    """``x * sigmoid(alpha * x)``."""
    return node.elementwise(g.add(Silu(node.attr("alpha", 1.702)), emit.floats(node.input(0))))


_ACTIVATIONS: dict[str, Callable[[Graph, Value, tuple[float, ...]], Value]] = {
    "": lambda g, x, _: x,
    "Relu": lambda g, x, _: formulas.relu(g, x),
    "Sigmoid": lambda g, x, _: formulas.sigmoid(g, x),
    "Tanh": lambda g, x, _: formulas.active(g, ActiveType.ACTIVE_TANH, x),
    "LeakyRelu": lambda g, x, p: functions.leaky_relu(g, x, p[0] if p else 0.01),
    "Clip": lambda g, x, p: g.add(Clamp(Scalar.f32(p[0]), Scalar.f32(p[1])), x),
    "HardSigmoid": lambda g, x, p: g.add(HardSigmoid(p[0], p[1]), x),
}
_PARAMETERS = {"Clip": 2, "HardSigmoid": 2}


def _apply_activation(node: OnnxNode, g: Graph, x: Value, parameters: tuple[float, ...]) -> Value:
    name = node.choice("activation", "", tuple(_ACTIVATIONS))
    if len(parameters) < _PARAMETERS.get(name, 0):
        raise node.invalid(f"activation {name} with {len(parameters)} parameters")
    return _ACTIVATIONS[name](g, x, parameters)


@onnx_op("FusedConv", since=1, domain=DOMAIN)
def fused_conv(node: OnnxNode, g: Graph) -> Result:
    """``activation(conv(x, w) + bias + z)``."""
    x, w = emit.floats(node.input(0)), emit.floats(node.input(1))
    y = conv_values(node, g, x, w, node.optional(2), 0, 1)
    if node.has_input(3):
        y = emit.add(g, y, emit.floats(node.input(3)))
    return node.result(_apply_activation(node, g, y, node.attr("activation_params", (0.0,)[:0])))


@onnx_op("FusedGemm", since=1, domain=DOMAIN)
def fused_gemm(node: OnnxNode, g: Graph) -> Result:
    """``activation(alpha * a @ b + beta * c)``."""
    a, b = emit.floats(node.input(0)), emit.floats(node.input(1))
    a = emit.permute(g, a, (1, 0)) if node.attr("transA", 0) else a
    b = emit.permute(g, b, (1, 0)) if node.attr("transB", 0) else b
    y = matrix_product(g, a, b)
    alpha, beta = node.attr("alpha", 1.0), node.attr("beta", 1.0)
    y = emit.muls(g, y, alpha) if alpha != 1 else y
    if node.has_input(2):
        c = emit.floats(node.input(2))
        y = emit.add(g, y, emit.muls(g, c, beta) if beta != 1 else c)
    numbers = [node.optional_attr(f"activation_{name}") for name in ("alpha", "beta", "gamma")]
    return node.result(_apply_activation(node, g, y, tuple(float(x) for x in numbers if x is not None)))


@onnx_op("FusedMatMul", "TransposeMatMul", since=1, domain=DOMAIN)
def fused_matmul(node: OnnxNode, g: Graph) -> Result:
    """``alpha * a @ b``, with optional transposes of the last two axes."""
    node.refuse_attr("transBatchA", 0)
    node.refuse_attr("transBatchB", 0)
    operands = []
    for index, name in enumerate(("transA", "transB")):
        x = emit.floats(node.input(index))
        shape: tuple[int, ...] = node.shape(index)
        if node.attr(name, 0) and len(shape) > 1:
            last = len(shape) - 1
            x = emit.permute(g, x, (*range(last - 1), last, last - 1))
            shape = (*shape[:-2], shape[-1], shape[-2])
        operands.append((x, shape))
    (a, a_shape), (b, b_shape) = operands
    alpha = node.attr("alpha", 1.0)
    y, shape = matmul_values(node, g, a, a_shape, b, b_shape)
    y = emit.muls(g, y, alpha) if alpha != 1 else y
    return node.result(emit.reshape(g, y, shape or (1,)), scalar=shape == ())


def _normalize(node: OnnxNode, g: Graph, y: Value, total: Value) -> list[Result]:
    """Return the result and, as the fourth output, the sum; the second and third outputs are not supported."""
    if any(node.outputs_used[1:3]):
        message = "its statistics are used as outputs"
        raise node.fail(UNSUPPORTED_ATTRIBUTE, message, "supported: the result and the sum")
    return [node.result(x) for x in (y, total, total, total)]


@onnx_op("SkipLayerNormalization", since=1, domain=DOMAIN)
def skip_layer_normalization(node: OnnxNode, g: Graph) -> list[Result]:
    """Layer normalization of ``input + skip + bias`` over the last axis."""
    x = _sum_inputs(node, g, 0, 1, 4, required=2)
    op = LayerNorm(x.rank - 1, node.attr("epsilon", 1e-12))
    return _normalize(node, g, normalize_last(g, op, x, node.input(2), node.optional(3)), x)


@onnx_op("SkipSimplifiedLayerNormalization", since=1, domain=DOMAIN)
def skip_simplified_layer_normalization(node: OnnxNode, g: Graph) -> list[Result]:
    """``x / sqrt(mean(x * x) + epsilon) * scale`` of ``x = input + skip + bias``."""
    x = _sum_inputs(node, g, 0, 1, 3, required=2)
    op = RmsNorm(x.rank - 1, node.attr("epsilon", 1e-12))
    return _normalize(node, g, normalize_last(g, op, x, node.input(2)), x)


@onnx_op("SimplifiedLayerNormalization", since=1, kind=Kind.DIRECT)
def simplified_layer_normalization(node: OnnxNode, g: Graph) -> Result:
    """``x / sqrt(mean(x * x) + epsilon) * scale``; ONNX Runtime has this operator in the default domain."""
    node.refuse_attr("stash_type", 1)
    x = emit.floats(node.input(0))
    op = RmsNorm(node.axis(node.attr("axis", -1), node.rank(0)), node.attr("epsilon", 1e-5))
    return node.result(normalize_last(g, op, x, node.input(1)), element_types.FLOAT)


@onnx_op("RotaryEmbedding", since=1, domain=DOMAIN)
def rotary_embedding(node: OnnxNode, g: Graph) -> Result:
    """RotaryEmbedding-23 with the positions before the caches; a single position belongs to the first token."""
    node.refuse_attr("is_packed_batching", 0)
    node.refuse_attr("scale", 1.0)
    return rotate(node, g, cos_at=2, sin_at=3, positions_at=1)
