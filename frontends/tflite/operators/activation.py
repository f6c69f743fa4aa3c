"""Activation functions that are separate operators."""

from __future__ import annotations

from tpuconvert.frontends import emit
from tpuconvert.frontends.registry import Kind
from tpuconvert.frontends.tflite.lowering import align
from tpuconvert.frontends.tflite.node import FUSED_ACTIVATIONS, TfliteNode, tflite_op
from tpuconvert.schema.definition.op import Op
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops.activation import Active, ActiveParam, ActiveType
from tpuconvert.schema.ops.arithmetic import Add, Mul
from tpuconvert.schema.ops.clamp import Clamp
from tpuconvert.schema.ops.smooth_activation import Gelu, GeluForm, HardSwish
from tpuconvert.schema.types import Scalar

_DIRECT: dict[str, Op] = {
    **FUSED_ACTIVATIONS,
    "RELU_0_TO_1": Clamp(Scalar.f32(0), Scalar.f32(1)),
    **dict.fromkeys(("LOGISTIC", "STABLEHLO_LOGISTIC"), Active(ActiveType.ACTIVE_SIGMOID)),
    "STABLEHLO_TANH": Active(ActiveType.ACTIVE_TANH),
    "ELU": Active(ActiveType.ACTIVE_ELU),
    "HARD_SWISH": HardSwish(),
}


@tflite_op(*_DIRECT, kind=Kind.DIRECT)
def direct(node: TfliteNode, g: Graph) -> Value:
    """Activation function that maps to one TPU operator."""
    return g.add(_DIRECT[node.op_type], node.input(0))


@tflite_op("LEAKY_RELU", kind=Kind.DIRECT)
def leaky_relu(node: TfliteNode, g: Graph) -> Value:
    """``x`` if x is positive, else ``alpha * x``."""
    alpha = float(node.option("alpha", 0.0))
    return g.add(ActiveParam(ActiveType.ACTIVE_LEAKY_RELU, params=(alpha,)), node.input(0))


@tflite_op("PRELU")
def prelu(node: TfliteNode, g: Graph) -> Value:
    """``max(x, 0) + slope * min(x, 0)``, with a slope per channel or per element."""
    if node.is_quantized and node.tensor(0).type == "INT16":
        g.note_deviation("results of the 16-bit kernel differ by more than its rounding")
    x, slope = align(g, node.input(0), node.input(1))
    falling = g.add(Mul(), emit.mins(g, x, 0), slope)
    return g.add(Add(), g.add(Active(ActiveType.ACTIVE_RELU), x), falling)


@tflite_op("GELU", kind=Kind.DIRECT)
def gelu(node: TfliteNode, g: Graph) -> Value:
    """``x / 2 * (1 + erf(x / sqrt(2)))``, or its approximation by tanh."""
    form = GeluForm.TANH if node.option("approximate", False) else GeluForm.ERF
    return g.add(Gelu(form), node.input(0))
