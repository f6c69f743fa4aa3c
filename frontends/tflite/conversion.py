"""Between types: QUANTIZE, DEQUANTIZE, FAKE_QUANT and CAST."""

from __future__ import annotations

import math

import numpy as np

from tpuconvert.frontends import emit, functions
from tpuconvert.frontends.registry import Kind
from tpuconvert.frontends.tflite.node import TfliteNode, tflite_op
from tpuconvert.schema.errors import INVALID_NODE, UNSUPPORTED_TYPE
from tpuconvert.schema.graph import Graph, Value
from tpuconvert.schema.ops.arithmetic import Sub
from tpuconvert.schema.ops.cast import Cast
from tpuconvert.schema.ops.clamp import Clamp
from tpuconvert.schema.ops.compare import Nes
from tpuconvert.schema.ops.copy import Copy
from tpuconvert.schema.ops.round_to_integer import Floor
from tpuconvert.schema.types import I32, DType, Scalar

_REALS = ("FLOAT32", "FLOAT16", "FLOAT64", "BFLOAT16")


@tflite_op("QUANTIZE", kind=Kind.DIRECT)
def quantize(node: TfliteNode, g: Graph) -> Value:
    """Quantize, or requantize to another scale.

    On the dequantized values it is the identity; the annotation of the result holds the new scale.
    """
    if node.output_quant() is None:
        raise node.fail(UNSUPPORTED_TYPE, f"the result '{node.output_tensor().name}' has no scale")
    return g.add(Copy(), node.input(0))


@tflite_op("DEQUANTIZE", kind=Kind.DIRECT)
def dequantize(node: TfliteNode, g: Graph) -> Value:
    """Dequantize: the identity on the dequantized values; the result has no annotation."""
    if node.quant(0) is None and node.tensor(0).type not in _REALS:
        raise node.fail(UNSUPPORTED_TYPE, f"the input '{node.tensor(0).name}' has no scale")
    return g.add(Copy(), node.input(0))


@tflite_op("FAKE_QUANT", kind=Kind.FOLDED)
def fake_quant(node: TfliteNode, g: Graph) -> Value:
    """Round to the quantization levels of a range, which is shifted so that 0 is a level."""
    low, high = np.float32(node.option("min", 0.0)), np.float32(node.option("max", 0.0))
    bits, first = node.option("num_bits"), int(bool(node.option("narrow_range", False)))
    if not (2 <= bits <= 16 and -np.inf < low <= 0 <= high < np.inf and low < high):
        raise node.fail(INVALID_NODE, f"num_bits {bits}, range {low} to {high}: 2 to 16 bits, a range around 0")
    last = (1 << bits) - 1
    scale = (high - low) / np.float32(last - first)  # in binary32, as the kernel: it decides ties of the zero point
    zero = min(max(math.floor(float(np.float32(first) - low / scale) + 0.5), first), last)
    bottom, top = float(np.float32(first - zero) * scale), float(np.float32(last - zero) * scale)
    x = g.add(Clamp(Scalar.f32(bottom), Scalar.f32(top)), node.input(0))
    steps = emit.muls(g, emit.adds(g, x, -bottom), float(np.float32(1) / scale))
    whole = g.add(Floor(), emit.adds(g, steps, 0.5))
    return emit.adds(g, emit.muls(g, whole, float(scale)), bottom)


@tflite_op("CAST", "STABLEHLO_CONVERT", kind=Kind.DIRECT, limits="no chip has a cast of UINT32")
def cast(node: TfliteNode, g: Graph) -> Value:
    """Cast: floats are truncated, integers wrap around, and every Boolean but 0 is true."""
    if node.op_type == "CAST":
        node.ignore_option("in_data_type", "out_data_type")  # both tensors declare their types
    if node.quant(0) is not None or node.output_quant() is not None:
        raise node.fail(
            UNSUPPORTED_TYPE, "a cast of quantized integers", "export the model with DEQUANTIZE and QUANTIZE"
        )
    x, source, target = node.input(0), node.tensor(0).type, node.output_tensor().type
    wanted = node.tensors.value_type(node.output_tensor())
    if target == "BOOL":
        as_float = x if x.dtype.is_float else g.add(Cast(wanted), x)
        return x if source == "BOOL" else g.add(Nes(Scalar.f32(0)), as_float)
    if x.dtype is wanted:
        return x
    if source in _REALS:
        return g.add(Cast(wanted), functions.truncate(g, x))
    return g.add(Cast(wanted), x) if x.dtype.is_float or wanted.is_float else _between_integers(g, x, wanted)


def _between_integers(g: Graph, x: Value, wanted: DType) -> Value:
    """Integers of another width or sign, modulo its range; 32-bit ones go through FLOAT32, exact below 2^24.

    The cast of the operator set saturates, and it has no pair of 32 bits and fewer.
    """
    fits = wanted.min <= x.dtype.min and x.dtype.max <= wanted.max
    if fits and I32 not in (x.dtype, wanted):
        return g.add(Cast(wanted), x)
    real = emit.as_float(g, x)
    if not fits:
        span = float(wanted.max) - float(wanted.min) + 1
        turns = g.add(Floor(), emit.muls(g, emit.adds(g, real, -float(wanted.min)), 1 / span))  # powers of two
        real = g.add(Sub(), real, emit.muls(g, turns, span))
    return g.add(Cast(wanted), real)
