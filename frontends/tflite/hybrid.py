"""Hybrid layers: integer weights and float activations, which the TFLite kernels quantize at run time.

Before every matmul the kernel computes the range of the activations per image or row, quantizes them to 8 bits,
multiplies integers and dequantizes the sums. Here the activations are quantized and dequantized, and multiplied by the
dequantized weights, which gives the same results.
"""

from __future__ import annotations

from tpuconvert.frontends import emit
from tpuconvert.frontends.tflite.node import TfliteNode
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops import formulas
from tpuconvert.schema.ops.activation import ActiveType
from tpuconvert.schema.ops.reduce import ReduceMethodType
from tpuconvert.schema.types import I8

MODES = ("real", "dynamic")
"""Activations of hybrid layers: kept in float, or quantized like in the TFLite kernels."""

_TINY = 1e-30  # lower bound of the divisor, for activations that are all zero


def round_activations(node: TfliteNode, g: Graph, x: Value, *, asymmetric: bool, index: int = 1) -> Value:
    """Round the activations of a hybrid layer to 8-bit levels, with a scale per index of axis 0 (image or row).

    Activations of other layers are returned unchanged; ``index`` is the input index of the weights.
    """
    if not is_rounding(node, index):
        return x
    return _round_asymmetric(g, x) if asymmetric else _round_symmetric(g, x)


def is_rounding(node: TfliteNode, index: int = 1) -> bool:
    """Return True if the layer quantizes its activations because the weights at input ``index`` are integers."""
    weights = node.quant(index)
    return node.tensors.hybrid == "dynamic" and weights is not None and weights.dtype is I8 and not node.is_quantized


def _nearest(g: Graph, x: Value) -> Value:
    """Round to the nearest integer, ties away from zero, as FLOAT32."""
    return formulas.active(g, ActiveType.ACTIVE_ROUND, x)


def _round_symmetric(g: Graph, x: Value) -> Value:
    """Round to multiples of 1/127 of the largest magnitude."""
    largest = emit.reduce(g, ReduceMethodType.REDUCE_MAX, formulas.absolute(g, x), range(1, x.rank))
    span = emit.maxs(g, largest, _TINY)
    scaled = emit.mul(g, x, emit.rdivs(g, 127, span))
    return emit.mul(g, _nearest(g, scaled), emit.divs(g, span, 127))


def _round_asymmetric(g: Graph, x: Value) -> Value:
    """Round to 255 steps from the smallest to the largest activation; the range is extended to contain zero.

    The zero point is added after rounding, as in the kernel: adding it before would lose low-order bits, and would
    round ties in the other direction if it changes the sign.
    """
    low = emit.mins(g, emit.reduce(g, ReduceMethodType.REDUCE_MIN, x, range(1, x.rank)), 0)
    high = emit.maxs(g, emit.reduce(g, ReduceMethodType.REDUCE_MAX, x, range(1, x.rank)), 0)
    step = emit.divs(g, emit.maxs(g, emit.sub(g, high, low), _TINY), 255)
    zero = emit.clamp(g, _nearest(g, emit.rsubs(g, -128, emit.div(g, low, step))), -128, 127)
    scaled = emit.mul(g, x, emit.rdivs(g, 1, step))
    integers = emit.clamp(g, emit.add(g, _nearest(g, scaled), zero), -128, 127)
    return emit.mul(g, emit.sub(g, integers, zero), step)
