"""Integer matmuls of two computed tensors: memory orders, zero points, transposes and epilogues."""

from __future__ import annotations

from itertools import permutations
from time import perf_counter

import numpy as np
import pytest

from tests.support.native_cases.random_graphs import Drawing, data, evaluate, needs_extension
from tpuconvert.runtime.native.plan import NativePlan
from tpuconvert.schema.graph.graph import Value
from tpuconvert.schema.ops.clamp import Clamp
from tpuconvert.schema.ops.matmul.matrix_mul_v2 import MatrixMulV2
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.quantization.dequant_int_to_fp32 import DequantIntToFp32
from tpuconvert.schema.ops.quantization.lut import Lut
from tpuconvert.schema.ops.quantization.requant_fp32_to_int import RequantFp32ToInt
from tpuconvert.schema.ops.quantization.requant_int32 import RequantInt32, RequantMode
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.ops.softmax import Softmax
from tpuconvert.schema.types import I8, I16, U8, U16, Chip, DType, Scalar, TensorType

pytestmark = needs_extension

BYTES = (I8, U8)


def zero_of(case: Drawing, dtype: DType) -> int:
    """A zero point, often at a limit of its type."""
    return int(case.rng.choice([dtype.min, dtype.max, 0, case.rng.integers(dtype.min, dtype.max)]))


def tensor_in(case: Drawing, dtype: DType, shape: tuple[int, ...], order: tuple[int, ...]) -> Value:
    """A tensor with the given memory order: a permuted input."""
    outside = tuple(shape[axis] for axis in order)
    back = tuple(int(axis) for axis in np.argsort(order))
    return case.graph.add(Permute(back), case.input(dtype, outside))


def operands(
    case: Drawing, batch: tuple[int, ...], m: int, k: int, n: int, orders: tuple[tuple[int, ...], ...]
) -> tuple[MatrixMulV2, Value, Value]:
    """An operator with random types, transposes and zero points, and its operands in the given orders."""
    left, right = (BYTES[int(index)] for index in case.rng.integers(2, size=2))
    is_left, is_right = (bool(value) for value in case.rng.integers(2, size=2))
    a = tensor_in(case, left, (*batch, k, m) if is_left else (*batch, m, k), orders[0])
    b = tensor_in(case, right, (*batch, n, k) if is_right else (*batch, k, n), orders[1])
    zeros = {"lzp_val": zero_of(case, left), "rzp_val": zero_of(case, right)}
    return MatrixMulV2(is_left_trans=is_left, is_right_trans=is_right, **zeros), a, b


def factor(case: Drawing, k: int, most: int, out: DType, mode: RequantMode, **fixed: object) -> RequantInt32:
    """A requantization that spreads the sums over the range of a type."""
    spread = most * most * max(k, 1) ** 0.5 / (2.0**out.bits)
    fraction, exponent = np.frexp(1 / spread)
    whole = bool(case.rng.integers(2))
    multiplier = 1 << 30 if whole else int(fraction * 2**31)
    shift = int(exponent) - (31 if mode is RequantMode.MULTIPLIER_SHIFT else 0)
    parameters: dict[str, object] = {
        "multiplier_val": multiplier,
        "shift_val": min(shift, 0),
        "offset_val": int(case.rng.integers(-40, 40)),
        "mode": mode,
        "out_dtype": out,
    }
    return RequantInt32(**(parameters | fixed))  # type: ignore[arg-type]  # by name


def sizes(case: Drawing) -> tuple[int, int, int]:
    """Rows, depth and columns: around the sizes of tiles, and others."""
    near = [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 48, 63, 64, 65, 66, 70, 129]
    m, k, n = (int(value) for value in case.rng.choice(near, 3))
    return m, k, n


@pytest.mark.parametrize("seed", range(40))
def test_sums_in_every_order(seed: int) -> None:
    case = Drawing(seed)
    rank = int(case.rng.integers(2, 6))
    batch = tuple(int(extent) for extent in case.rng.integers(1, 4, rank - 2))
    every = list(permutations(range(rank)))
    orders = tuple(every[int(case.rng.integers(len(every)))] for _ in range(2))
    op, a, b = operands(case, batch, *sizes(case), orders)
    case.check(case.graph.add(op, a, b))


@pytest.mark.parametrize("out", [I8, U8, I16, U16])
@pytest.mark.parametrize("seed", range(12))
def test_rescaled(seed: int, out: DType) -> None:
    case = Drawing(100 + seed)
    m, k, n = sizes(case)
    batch = tuple(int(extent) for extent in case.rng.integers(1, 4, int(case.rng.integers(0, 3))))
    rank = len(batch) + 2
    order = tuple(range(rank))
    op, a, b = operands(case, batch, m, k, n, (order, order))
    modes = [RequantMode.MULTIPLIER_SHIFT] + [RequantMode.TFLITE] * (out in (I8, I16))
    mode = modes[int(case.rng.integers(len(modes)))]
    y = case.graph.add(factor(case, k, 100, out, mode), case.graph.add(op, a, b))
    if case.rng.integers(2):
        low, high = (Scalar(out, value) for value in (out.min + 3, out.max // 2))
        y = case.graph.add(Clamp(low, high), y)
    if out in BYTES and case.rng.integers(2):
        y = case.graph.add(Lut(), y, case.constant(I8, (256,)))
    case.check(y)


@pytest.mark.parametrize("seed", range(12))
def test_dequantized_and_permuted(seed: int) -> None:
    case = Drawing(200 + seed)
    batch = (int(case.rng.integers(1, 3)), int(case.rng.integers(1, 5)))
    m, k, n = sizes(case)
    order = (0, 2, 1, 3) if seed % 2 else (0, 1, 2, 3)
    op, a, b = operands(case, batch, m, k, n, (order, order))
    out = I16 if seed % 3 else I8
    y = case.graph.add(factor(case, k, 100, out, RequantMode.MULTIPLIER_SHIFT), case.graph.add(op, a, b))
    y = case.graph.add(DequantIntToFp32(scale_val=0.037, offset_val=seed - 5), y)
    axes = [(0, 2, 1, 3), (2, 1, 0, 3), (0, 1, 3, 2)][seed % 3]
    case.check(case.graph.add(Permute(axes), y))


@pytest.mark.parametrize("seed", range(8))
def test_factors_per_column_and_bias(seed: int) -> None:
    case = Drawing(300 + seed)
    m, k, n = sizes(case)
    op, a, b = operands(case, (), m, k, n, ((0, 1), (0, 1)))
    bias = case.graph.constant(case.rng.integers(-100000, 100000, n).astype(np.int32))
    with_bias = MatrixMulV2(**(op.attributes() | {"has_bias": True}))
    sums = case.graph.add(with_bias, a, b, bias)
    vectors = {
        "is_mul_shift_pc": True,
        "multiplier_vec": tuple(int(value) for value in case.rng.integers(2**28, 2**31, n)),
        "shift_vec": tuple(int(value) for value in case.rng.integers(-46, -38, n)),
    }
    case.check(case.graph.add(factor(case, k, 100, I8, RequantMode.MULTIPLIER_SHIFT, **vectors), sums))


@pytest.mark.parametrize("shape", [(3, 197, 64, 197), (3, 197, 197, 64), (2, 40, 700, 300), (1, 5, 2000, 130)])
def test_sizes_of_networks(shape: tuple[int, int, int, int]) -> None:
    case = Drawing(sum(shape))
    batch, m, k, n = shape
    op, a, b = operands(case, (batch,), m, k, n, ((1, 0, 2), (1, 0, 2)))
    y = case.graph.add(factor(case, k, 100, I16, RequantMode.MULTIPLIER_SHIFT), case.graph.add(op, a, b))
    case.check(y)


@pytest.mark.parametrize("limit", [0, 255])
def test_largest_sums(limit: int) -> None:
    case = Drawing(1)
    k = 33025  # 33025 * 255 * 255 = 2^31 - 1 - 33022
    case.feeds = [np.full((2, k), limit, np.uint8), np.full((k, 3), 255 - limit, np.uint8)]
    x = [case.graph.input("x", TensorType(U8, feed.shape)) for feed in case.feeds]
    case.check(case.graph.add(MatrixMulV2(lzp_val=255 - limit, rzp_val=limit), *x))


def test_sums_that_may_leave_32_bits() -> None:
    case = Drawing(2)
    a, b = case.input(U8, (1, 33026)), case.input(U8, (33026, 2))
    case.check(case.graph.add(MatrixMulV2(), a, b))


def test_constant_operands_with_leading_axes() -> None:
    case = Drawing(3)
    x = case.input(I8, (3, 5, 20))
    left, right = case.constant(I8, (3, 7, 5)), case.constant(U8, (3, 20, 9))
    first = case.graph.add(MatrixMulV2(rzp_val=3), left, x)
    case.check(first, case.graph.add(MatrixMulV2(lzp_val=-4, rzp_val=200), x, right))


def test_heads_in_one_matrix() -> None:
    """Heads are columns of a matrix of tokens: one matmul per head, whose results are concatenated."""
    case = Drawing(4)
    tokens, heads, size = 37, 3, 24
    query, key, value = (case.input(I8, (tokens, heads * size)) for _ in range(3))
    split = [
        case.graph.add(Permute((1, 0, 2)), case.graph.add(Reshape((tokens, heads, size)), x))
        for x in (query, key, value)
    ]
    scores = case.graph.add(MatrixMulV2(is_right_trans=True), *split[:2])
    bytes_ = case.graph.add(factor(case, size, 100, I8, RequantMode.MULTIPLIER_SHIFT), scores)
    y = case.graph.add(MatrixMulV2(), bytes_, split[2])
    y = case.graph.add(factor(case, tokens, 100, I8, RequantMode.MULTIPLIER_SHIFT), y)
    y = case.graph.add(Reshape((tokens, heads * size)), case.graph.add(Permute((1, 0, 2)), y))
    case.check(y)


def test_zero_points_per_row() -> None:
    case = Drawing(5)
    a, b = case.input(I8, (3, 5)), case.input(I8, (5, 4))
    op = MatrixMulV2(is_lzp_const=False, lzp_vec=(1, 2, 3))
    case.check(case.graph.add(op, a, b))


def attention(
    case: Drawing, shape: tuple[int, int, int, int, int], probabilities: RequantFp32ToInt, spread: float, zeros: bool
) -> Value:
    """Attention of every head, from queries, keys and values as columns of matrices of tokens."""
    heads, rows, columns, depth, size = shape
    sides = []
    for tokens, width in ((rows, depth), (columns, depth), (columns, size)):
        flat = case.input(BYTES[int(case.rng.integers(2))], (tokens, heads * width))
        parts = case.graph.add(Reshape((1, tokens, heads, width)), flat)
        sides.append(case.graph.add(Permute((0, 2, 1, 3)), parts))
    query, key, value = sides
    first = {"lzp_val": zero_of(case, query.dtype), "rzp_val": zero_of(case, key.dtype)} if zeros else {}
    lowest = max(probabilities.offset_val, 0) if probabilities.out_dtype is U8 else probabilities.offset_val
    second = {"rzp_val": zero_of(case, value.dtype), "lzp_val": lowest} if zeros else {}
    scores = case.graph.add(MatrixMulV2(is_right_trans=True, **first), query, key)
    scores = case.graph.add(factor(case, depth, 100, I16, RequantMode.MULTIPLIER_SHIFT), scores)
    reals = case.graph.add(DequantIntToFp32(scale_val=float(np.float32(spread * 2.0**-13))), scores)
    shares = case.graph.add(probabilities, case.graph.add(Softmax(axis=3), reals))
    y = case.graph.add(MatrixMulV2(**second), shares, value)
    y = case.graph.add(factor(case, columns, 60, I8, RequantMode.MULTIPLIER_SHIFT), y)
    return case.graph.add(Reshape((rows, heads * size)), case.graph.add(Permute((0, 2, 1, 3)), y))


@pytest.mark.parametrize("seed", range(30))
def test_attention(seed: int) -> None:
    case = Drawing(400 + seed)
    rng = case.rng
    heads = int(rng.integers(1, 5))
    rows, columns, depth, size = (int(value) for value in rng.choice([1, 2, 7, 13, 16, 17, 37, 64, 65, 130, 197], 4))
    out = BYTES[seed % 2]
    scale = float(np.float32(rng.choice([255.0, 127.0, 864.27, 2.0, 5000.0])))
    offset = out.min if seed % 3 == 0 else int(rng.integers(-20, 20)) if seed % 3 == 1 else 0
    probabilities = RequantFp32ToInt(scale_val=scale, offset_val=offset, out_dtype=out)
    spread = float(rng.choice([0.1, 1.0, 10.0, 100.0]))
    case.check(attention(case, (heads, rows, columns, depth, size), probabilities, spread, bool(rng.integers(2))))


def test_attention_of_huge_scores() -> None:
    """Scores of 1e30 and more, whose differences are exact only in part, give the probabilities of the definition."""
    probabilities = RequantFp32ToInt(scale_val=127.0, out_dtype=U8)
    for seed in range(4):
        case = Drawing(440 + seed)
        case.check(attention(case, (2, 10, 34, 5, 32), probabilities, 1e33, False))


def test_attention_is_one_step() -> None:
    case = Drawing(6)
    case.graph.output(attention(case, (3, 40, 40, 16, 16), RequantFp32ToInt(scale_val=255.0, out_dtype=U8), 1.0, False))
    plan = NativePlan(case.graph, Chip.BM1686.value, "scalar", 1)
    assert [step.kind for step in plan.profile(case.feeds, evaluate(Chip.BM1686), perf_counter)].count(
        "attention_int8"
    ) == 1


def test_equal_scores_and_ties() -> None:
    """Probabilities that are multiples of one half after the scale: halves are rounded away from zero."""
    for columns, scale in ((4, 2.0), (8, 12.0), (16, 24.0), (64, 96.0), (2, 3.0)):
        case = Drawing(columns)
        case.feeds = [np.zeros((1, 5, 8), np.int8), *(data(case.rng, I8, (1, columns, 8)) for _ in range(2))]
        query, key, value = (case.graph.input("x", TensorType(I8, feed.shape)) for feed in case.feeds)
        scores = case.graph.add(MatrixMulV2(is_right_trans=True), query, key)
        scores = case.graph.add(factor(case, 8, 100, I16, RequantMode.MULTIPLIER_SHIFT), scores)
        softmax = case.graph.add(Softmax(axis=2), case.graph.add(DequantIntToFp32(scale_val=0.25), scores))
        shares = case.graph.add(RequantFp32ToInt(scale_val=scale, out_dtype=U8), softmax)
        case.check(case.graph.add(MatrixMulV2(), shares, value))
