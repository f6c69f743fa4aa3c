"""Steps of integer recurrent layers as TPU operators. The references compute the same integers in NumPy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tpuconvert.schema.arithmetic.fixed_point import RoundingMode, power_of_two
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops import formulas as f
from tpuconvert.schema.ops.arithmetic import Add, Mul
from tpuconvert.schema.ops.cast import Cast
from tpuconvert.schema.ops.compare import Gts
from tpuconvert.schema.ops.concat import Split
from tpuconvert.schema.ops.index_select import IndexSelect
from tpuconvert.schema.ops.matmul.matrix_mul_v2 import MatrixMulV2
from tpuconvert.schema.ops.quantization.requant_int32 import RequantInt32, RequantMode
from tpuconvert.schema.ops.shape_change import ExpandDims
from tpuconvert.schema.ops.shifts.arithmetic_shift import ArithmeticShift
from tpuconvert.schema.types import F32, I16, I32, Array, DType, Scalar


def rescale(g: Graph, x: Value, multiplier: int, shift: int, dtype: DType, offset: int = 0) -> Value:
    """``x * multiplier * 2^(shift - 31) + offset`` with two roundings, saturated."""
    op = RequantInt32(
        multiplier_val=multiplier,
        shift_val=shift,
        offset_val=offset,
        mode=RequantMode.TFLITE_LSHIFT,
        out_dtype=dtype,
    )
    return g.add(op, x)


def rescale_columns(g: Graph, x: Value, multipliers: Sequence[int], shifts: Sequence[int], dtype: DType) -> Value:
    """Rescale a matrix with a multiplier and a shift per column, as ``rescale``."""
    op = RequantInt32(
        is_mul_shift_pc=True,
        multiplier_vec=tuple(multipliers),
        shift_vec=tuple(shifts),
        mode=RequantMode.TFLITE_LSHIFT,
        out_dtype=dtype,
    )
    return g.add(op, x)


def widen(g: Graph, x: Value) -> Value:
    """Convert to INT32."""
    return x if x.dtype is I32 else rescale(g, x, *power_of_two(), I32)


def narrow(g: Graph, x: Value, dtype: DType) -> Value:
    """Saturate INT32 to ``dtype``."""
    return rescale(g, x, *power_of_two(), dtype)


def multiply(g: Graph, a: Value, b: Value) -> Value:
    """Exact product of 16-bit integers, as INT32."""
    return g.add(Mul(), widen(g, a), widen(g, b))


def shift_right(g: Graph, x: Value, bits: int, dtype: DType) -> Value:
    """``x / 2^bits``; ties round away from zero."""
    return g.add(ArithmeticShift(-bits, RoundingMode.HALF_AWAY_FROM_ZERO, out_dtype=dtype), x)


def add_saturating(g: Graph, a: Value, b: Value) -> Value:
    """Sum of 16-bit integers, saturated to 16 bits."""
    return g.add(Add(out_dtype=I16), a, b)


def matmul(g: Graph, x: Value, weight: Value, bias: Value, zero: int) -> Value:
    """``(x - zero) @ weight^T + bias`` as INT32."""
    op = MatrixMulV2(is_right_trans=True, has_bias=True, lzp_val=zero)
    return g.add(op, x, weight, bias)


def table(g: Graph, entries: Array) -> Value:
    """Constant of a function of all 16-bit integers in ascending order. Its results are exact in FLOAT32."""
    return g.constant(entries.astype(np.float32), "table")


def look_up(g: Graph, x: Value, entries: Value) -> Value:
    """Apply the function of ``table`` to a 16-bit value."""
    index = rescale(g, x, *power_of_two(), I32, offset=-I16.min)
    shape = x.type.static_shape
    chosen = g.add(IndexSelect(0), entries, f.reshape(g, index, (shape[0] * shape[1],)))
    return f.reshape(g, g.add(Cast(I16), chosen), shape)


def columns(g: Graph, x: Value, count: int) -> tuple[Value, ...]:
    """Split the columns of a matrix into blocks of equal width."""
    return g.add_all(Split(1, count), x) if count > 1 else (x,)


def masks(g: Graph, lengths: Value, steps: int) -> list[tuple[Value, Value]]:
    """For each step: 1 for the sequences that it belongs to, else 0; and 1 minus this. Both are INT32 [N, 1]."""
    rows = g.add(ExpandDims(1), g.add(Cast(F32), lengths))
    step_masks = []
    for step in range(steps):
        inside = g.add(Gts(Scalar.f32(step)), rows)
        step_masks.append((g.add(Cast(I32), inside), g.add(Cast(I32), f.rsubs(g, 1, inside))))
    return step_masks


def select(g: Graph, mask: tuple[Value, Value], new: Value, old: Value) -> Value:
    """Return ``new`` where the mask is 1, else ``old``, in the data type of both."""
    inside, outside = mask
    total = g.add(Add(), g.add(Mul(), widen(g, new), inside), g.add(Mul(), widen(g, old), outside))
    return narrow(g, total, new.dtype)
