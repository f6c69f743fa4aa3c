"""Arithmetic of 8- and 16-bit integers with wrap-around, as ONNX and TFLite define it, computed in INT32.

TPU operators saturate. All intermediate results stay below 2^24, so that they are exact on chips that compute INT32 in
float32.
"""

from __future__ import annotations

import numpy as np

from tpuconvert.frontends import emit
from tpuconvert.frontends.value_bounds import ValueBounds, are_within
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops.bit_logic import BitAnds, BitXors
from tpuconvert.schema.types import DType, Scalar


def widen_to_int32(g: Graph, x: Value) -> Value:
    """Cast small integers to INT32."""
    if x.dtype is DType.INT32:
        return x
    if x.is_constant:
        return g.constant(x.array.astype(np.int32), name=x.name)
    return emit.cast(g, x, DType.INT32)


def wrap_to_range(g: Graph, x: Value, dtype: DType) -> Value:
    """Reduce INT32 values modulo the range of a small type, and cast to it."""
    rest = _low(g, x, dtype.bits)
    if dtype.is_signed:  # the highest bit counts -half instead of half: (rest ^ half) - half
        half = 1 << (dtype.bits - 1)
        rest = emit.adds(g, g.add(BitXors(Scalar(DType.INT32, half)), rest), -half)
    return emit.cast(g, rest, dtype)


def cast_integers(g: Graph, x: Value, dtype: DType) -> Value:
    """Cast between integer types; values outside of the new type wrap around.

    The cast operator saturates, which makes no difference if bounds prove that all values fit.
    """
    if x.dtype is dtype:
        return x
    if dtype.bits == 32 or are_within(ValueBounds(g).of(x), (dtype.min, dtype.max)):
        return emit.cast(g, x, dtype)
    return wrap_to_range(g, widen_to_int32(g, x), dtype)


def as_integers(g: Graph, x: Value, dtype: DType) -> Value:
    """Cast whole floats to integers; small integers wrap around."""
    return cast_integers(g, emit.cast(g, x, DType.INT32), dtype)


def _low(g: Graph, x: Value, bits: int) -> Value:
    """Low-order bits of INT32 values."""
    return g.add(BitAnds(Scalar(DType.INT32, (1 << bits) - 1)), x)


def small_sum(g: Graph, function: str, a: Value, b: Value) -> Value:
    """Add or subtract (``add``, ``sub``) small integers."""
    return wrap_to_range(g, emit.binary(g, function, widen_to_int32(g, a), widen_to_int32(g, b)), a.dtype)


def small_product(g: Graph, a: Value, b: Value) -> Value:
    """Multiply small integers; one 16-bit operand is split into two bytes."""
    x, y, dtype = widen_to_int32(g, a), widen_to_int32(g, b), a.dtype
    if dtype.bits == 8:
        return wrap_to_range(g, emit.mul(g, x, y), dtype)
    if x.is_constant:
        x, y = y, x
    x = _low(g, x, 16)
    if y.is_constant:
        unsigned = y.array & 0xFFFF
        low, high = (g.constant(part.astype(np.int32), name=y.name) for part in (unsigned & 0xFF, unsigned >> 8))
    else:
        low = _low(g, y, 8)
        high = _high_byte(g, _low(g, y, 16), low)
    upper = _low(g, emit.muls(g, _low(g, emit.mul(g, x, high), 8), 256), 16)
    return wrap_to_range(g, emit.add(g, _low(g, emit.mul(g, x, low), 16), upper), dtype)


def _high_byte(g: Graph, x: Value, low: Value) -> Value:
    """``(x - low) / 256`` of values below 2^16; exact in FLOAT32."""
    return emit.cast(g, emit.muls(g, emit.as_float(g, emit.sub(g, x, low)), 1 / 256), DType.INT32)
