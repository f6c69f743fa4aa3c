"""Normalizations of images, and sequences of operators that one kernel computes: quantized norms and attention."""

import numpy as np

from tests.support.native_cases.draft import Draft, kind
from tpuconvert.schema.ops.batch_norm import BatchNorm
from tpuconvert.schema.ops.matmul.matrix_mul_v2 import MatrixMulV2
from tpuconvert.schema.ops.normalization import LayerNorm, Lrn
from tpuconvert.schema.ops.quantization.dequant_int_to_fp32 import DequantIntToFp32
from tpuconvert.schema.ops.quantization.requant_fp32_to_int import RequantFp32ToInt
from tpuconvert.schema.ops.quantization.requant_int32 import RequantInt32, RequantMode
from tpuconvert.schema.ops.softmax import Softmax
from tpuconvert.schema.types import F32, I8, I16, U8, Array


def numbers(draft: Draft, count: int, center: float, spread: float) -> Array:
    return draft.rng.normal(center, spread, count).astype(np.float32)


@kind(100)
def image_norms(draft: Draft) -> None:
    """Batch normalization with constant statistics, and local response normalization."""
    channels = draft.small(40)
    x = draft.input(F32, (draft.number(1, 2), channels, draft.small(9), draft.small(9)))
    if draft.chance(0.5):
        draft.graph.output(draft.add(Lrn(1 + 2 * draft.number(0, 3)), x))
        return
    factors = [numbers(draft, channels, 0, 3), numbers(draft, channels, 0, 2) ** 2]
    if draft.chance(0.5):
        factors += [numbers(draft, channels, 1, 0.3), numbers(draft, channels, 0, 1)]
    draft.graph.output(draft.add_all(BatchNorm(), x, *map(draft.constant, factors))[0])


@kind(100)
def quantized_norms(draft: Draft) -> None:
    """Layer normalization with a quantized result."""
    count = draft.small(200)
    x = draft.input(F32, (draft.number(1, 2), draft.small(30), count))
    factors = [numbers(draft, count, 1, 0.3), numbers(draft, count, 0, 0.5)][: draft.number(0, 2)]
    y = draft.add(LayerNorm(axis=2, epsilon=1e-6), x, *map(draft.constant, factors))
    offset = draft.number(-20, 20)
    draft.add(RequantFp32ToInt(scale_val=25.25, offset_val=offset, out_dtype=draft.pick(I8, U8)), y)


@kind(100)
def attention_of_bytes(draft: Draft) -> None:
    """Attention of every head: two matmuls of bytes with a softmax between them."""
    heads, rows, columns = draft.number(1, 3), draft.small(40), draft.small(40)
    depth, size = draft.small(40), draft.small(40)
    query = draft.input(draft.pick(I8, U8), (heads, rows, depth))
    key = draft.input(draft.pick(I8, U8), (heads, columns, depth))
    value = draft.input(draft.pick(I8, U8), (heads, columns, size))
    shift = RequantInt32(multiplier_val=1, shift_val=-6, mode=RequantMode.MULTIPLIER_SHIFT, out_dtype=I16)
    scores = draft.add(shift, draft.add(MatrixMulV2(is_right_trans=True), query, key))
    scores = draft.add(DequantIntToFp32(scale_val=draft.pick(0.001, 0.01, 0.1)), scores)
    quantize = RequantFp32ToInt(scale_val=draft.pick(255.0, 127.0), out_dtype=draft.pick(I8, U8))
    probabilities = draft.add(quantize, draft.add(Softmax(axis=2), scores))
    shift = RequantInt32(multiplier_val=1, shift_val=-8, mode=RequantMode.MULTIPLIER_SHIFT, out_dtype=I8)
    draft.add(shift, draft.add(MatrixMulV2(), probabilities, value))
