"""Type conversions: QUANTIZE, DEQUANTIZE, FAKE_QUANT and CAST."""

from __future__ import annotations

import math

import numpy as np

from tpuconvert.frontends import emit, functions
from tpuconvert.frontends.registry import Kind
from tpuconvert.frontends.small_integers import cast_integers
from tpuconvert.frontends.tflite.node import TfliteNode, tflite_op
from tpuconvert.frontends.value_bounds import ValueBounds, are_within
from tpuconvert.schema.errors import INVALID_NODE, UNSUPPORTED_TYPE
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops.cast import Cast
from tpuconvert.schema.ops.clamp import Clamp
from tpuconvert.schema.ops.compare import Nes
from tpuconvert.schema.ops.copy import Copy
from tpuconvert.schema.ops.quantization.round_to_integer import Floor
from tpuconvert.schema.types import I32, Scalar

_REALS = ("FLOAT32", "FLOAT16", "FLOAT64", "BFLOAT16")


@tflite_op("QUANTIZE", kind=Kind.DIRECT)
def quantize(node: TfliteNode, g: Graph) -> Value:
    """Quantize or requantize: a copy whose result is annotated with the new scale and zero point."""
    if node.output_quant() is None:
        raise node.fail(UNSUPPORTED_TYPE, f"the result '{node.output_tensor().name}' has no scale")
    return g.add(Copy(), node.input(0))


@tflite_op("DEQUANTIZE", kind=Kind.DIRECT)
def dequantize(node: TfliteNode, g: Graph) -> Value:
    """Dequantize: a copy of the dequantized values without an annotation."""
    if node.quant(0) is None and node.tensor(0).type not in _REALS:
        raise node.fail(UNSUPPORTED_TYPE, f"the input '{node.tensor(0).name}' has no scale")
    return g.add(Copy(), node.input(0))


@tflite_op("FAKE_QUANT", kind=Kind.FOLDED)
def fake_quant(node: TfliteNode, g: Graph) -> Value:
    """Quantize to the levels of a range and dequantize; the range is shifted such that 0 is a level."""
    low, high = np.float32(node.option("min", 0.0)), np.float32(node.option("max", 0.0))
    bits, first = node.option("num_bits"), int(bool(node.option("narrow_range", False)))
    if not (2 <= bits <= 16 and -np.inf < low <= 0 <= high < np.inf and low < high):
        raise node.fail(INVALID_NODE, f"num_bits {bits}, range {low} to {high}: 2 to 16 bits, a range around 0")
    last = (1 << bits) - 1
    scale = (high - low) / np.float32(last - first)  # in float32 like the kernel, so that ties of zero round alike
    zero = min(max(math.floor(float(np.float32(first) - low / scale) + 0.5), first), last)
    bottom, top = float(np.float32(first - zero) * scale), float(np.float32(last - zero) * scale)
    x = g.add(Clamp(Scalar.f32(bottom), Scalar.f32(top)), node.input(0))
    steps = emit.muls(g, emit.adds(g, x, -bottom), float(np.float32(1) / scale))
    level = g.add(Floor(), emit.adds(g, steps, 0.5))
    return emit.adds(g, emit.muls(g, level, float(scale)), bottom)


@tflite_op("CAST", "STABLEHLO_CONVERT", kind=Kind.DIRECT, limits="no chip has a cast of UINT32")
def cast(node: TfliteNode, g: Graph) -> Value:
    """Cast: floats are truncated to integers, integers wrap around, and nonzero values become true."""
    if node.op_type == "CAST":
        node.ignore_option("in_data_type", "out_data_type")  # redundant: both tensors have types
    if node.quant(0) is not None or node.output_quant() is not None:
        raise node.fail(
            UNSUPPORTED_TYPE, "a cast of quantized integers", "export the model with DEQUANTIZE and QUANTIZE"
        )
    x, source, target = node.input(0), node.tensor(0).type, node.output_tensor().type
    dtype = node.tensors.value_type(node.output_tensor())
    if target == "BOOL":
        as_float = x if x.dtype.is_float else g.add(Cast(dtype), x)
        return x if source == "BOOL" else g.add(Nes(Scalar.f32(0)), as_float)
    if x.dtype is dtype:
        return x
    if source in _REALS:
        if target in ("INT64", "UINT64") and not are_within(ValueBounds(g).of(x), (I32.min, I32.max)):
            g.note_deviation(f"floats outside of INT32 saturate, {target} has more bits")
        return g.add(Cast(dtype), functions.truncate(g, x))
    if x.dtype.is_float or dtype.is_float:
        return g.add(Cast(dtype), x)
    return cast_integers(g, x, dtype)
