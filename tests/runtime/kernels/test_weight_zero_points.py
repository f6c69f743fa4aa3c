"""Matmuls whose constant weights have a zero point: long ones are corrected by the sums of their rows."""

from __future__ import annotations

from time import perf_counter

import numpy as np
import pytest

from tests.support.native_cases.random_graphs import Drawing, evaluate, needs_extension
from tpuconvert.runtime.native.builder.loader import available_isas
from tpuconvert.runtime.native.plan import NativePlan
from tpuconvert.schema.definition.op import Op
from tpuconvert.schema.graph.graph import Value
from tpuconvert.schema.ops.matmul.fc_int import FcInt
from tpuconvert.schema.ops.matmul.matrix_mul_v2 import MatrixMulV2
from tpuconvert.schema.ops.quantization.requant_int32 import RequantInt32, RequantMode
from tpuconvert.schema.types import I8, U8, Chip, DType

pytestmark = needs_extension

LONG = 520


def sums_of(case: Drawing, rows: tuple[int, ...], depth: int, columns: int, weights: DType, zero: int) -> Value:
    """Sums of a random product with a bias."""
    is_transposed = bool(case.rng.integers(2))
    x = case.input((I8, U8)[int(case.rng.integers(2))], (*rows, depth))
    w = case.constant(weights, (columns, depth) if is_transposed else (depth, columns))
    bias = case.graph.constant(case.rng.integers(-100000, 100000, columns).astype(np.int32))
    left = int(case.rng.choice([x.dtype.min, x.dtype.max, 0, 3]))
    if len(rows) == 1:
        op: Op = MatrixMulV2(has_bias=True, is_right_trans=is_transposed, lzp_val=left, rzp_val=zero)
    else:
        op = FcInt(has_bias=True, weight_trans=is_transposed, izp_val=left, kzp_val=zero)
    return case.graph.add(op, x, w, bias)


@pytest.mark.parametrize(
    ("weights", "zero"), [(U8, 0), (U8, 100), (U8, 128), (U8, 255), (I8, -128), (I8, 5), (I8, 127)]
)
@pytest.mark.parametrize("rows", [(31,), (40,), (2, 33)])
def test_sums(rows: tuple[int, ...], weights: DType, zero: int) -> None:
    case = Drawing(zero + 1000 * len(rows) + rows[-1])
    case.check(sums_of(case, rows, LONG + int(case.rng.integers(4)), int(case.rng.integers(1, 150)), weights, zero))


@pytest.mark.parametrize("out", [I8, U8])
def test_factors_per_column(out: DType) -> None:
    case = Drawing(7)
    columns = 70
    sums = sums_of(case, (50,), LONG, columns, U8, 77)
    multipliers = tuple(int(value) for value in case.rng.integers(1 << 30, (1 << 31) - 1, columns))
    requant = RequantInt32(
        is_mul_shift_pc=True,
        multiplier_vec=multipliers,
        shift_vec=(-44,) * columns,
        offset_val=3,
        mode=RequantMode.MULTIPLIER_SHIFT,
        out_dtype=out,
    )
    case.check(case.graph.add(requant, sums))


def kind_of_step(depth: int, rows: int, isa: str) -> str:
    case = Drawing(1)
    case.graph.output(sums_of(case, (rows,), depth, 20, U8, 77))
    plan = NativePlan(case.graph, Chip.BM1686.value, isa, 1)
    (step,) = [step for step in plan.profile(case.feeds, evaluate(Chip.BM1686), perf_counter) if "matmul" in step.kind]
    return step.kind


@pytest.mark.skipif("avxvnni" not in available_isas(), reason="for processors that multiply bytes")
def test_short_products_have_wider_weights() -> None:
    assert kind_of_step(LONG, 40, "avxvnni") == "batch_matmul_int8"
    assert kind_of_step(LONG, 8, "avxvnni") == "matmul_int8"
    assert kind_of_step(100, 40, "avxvnni") == "matmul_int8"
    assert kind_of_step(LONG, 40, "scalar") == "matmul_int8"
