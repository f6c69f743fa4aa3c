"""``hw_avg`` and ``hw_mul``, with values computed by hand and by exact fractions."""

from fractions import Fraction

import numpy as np
import pytest

from tests.support.operators.op_cases import Case, f32, i32
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.ops.plane_size import HwAvg, HwAvgMode, HwMul
from tpuconvert.schema.types import F32, I32, Chip, Scalar, TensorType

FLOAT, HALF_UP, HALF_AWAY = HwAvgMode.FLOAT, HwAvgMode.INT_HALF_UP, HwAvgMode.INT_HALF_AWAY
BM1686 = (Chip.BM1686,)
MOST = 2**31 - 1


def column(*values):
    return np.array(values, np.int32).reshape(1, -1, 1, 1)


def u32(*values):
    return np.array(values, np.uint32)


CASES = [
    Case(HwAvg(FLOAT), [column(3, -3), i32(2, 1)], [f32(1.5, -1.5).reshape(1, 2, 1, 1)], "a quotient", BM1686),
    Case(HwAvg(HALF_UP), [column(5, -5, 3), i32(1, 2)], [column(3, -2, 2)], "ties round up", BM1686),
    Case(HwAvg(HALF_AWAY), [column(5, -5, 3), i32(1, 2)], [column(3, -3, 2)], "ties round away from zero", BM1686),
    Case(HwAvg(HALF_AWAY), [column(MOST), i32(1, 1)], [column(MOST)], "2^31 in binary32 saturates", BM1686),
    Case(HwAvg(HALF_UP), [column(0, 1, -1), i32(0, 7)], [column(0, MOST, -(2**31))], "an empty plane", BM1686),
    Case(
        HwAvg(HALF_UP),
        [u32(2**32 - 1, 3).reshape(1, 2, 1, 1), i32(1, 2)],
        [u32(2**31, 2).reshape(1, 2, 1, 1)],
        "unsigned: 2^32 / 2",
        BM1686,
    ),
    Case(HwMul(Scalar.f32(0.5)), [i32(3, 5)], [f32(7.5)], "a product", BM1686),
    Case(HwMul(Scalar.f32(1)), [i32(-3, 5)], [f32(-15)], "a negative one", BM1686),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_by_hand(case):
    case.check()


def nearest_binary32(value: int) -> float:
    """Nearest float32 value, ties to even, computed with fractions."""
    if abs(value) < 1 << 24:
        return float(value)
    step = 1 << (abs(value).bit_length() - 24)
    return float(round(Fraction(value, step)) * step)


@pytest.mark.parametrize(
    "pair",
    [(2**32 - 1, 2**32 - 1), (2**32 - 1, 16777217), (4294967291, 2147483659), (16777217, 1), (2**31 - 1, 2**31 + 1)],
)
def test_the_exact_product_is_rounded_once(pair):
    """Includes products beyond 2^53, which float64 would round a second time."""
    assert HwMul(Scalar.f32(1)).evaluate(u32(*pair))[0].item() == nearest_binary32(pair[0] * pair[1])


def test_what_is_refused():
    with pytest.raises(ValueError, match="scale must be FLOAT32"):
        HwMul(Scalar(I32, 2))
    with pytest.raises(ShapeError, match=r"must be \[2\]"):
        HwMul(Scalar.f32(1)).infer(TensorType(I32, (3,)))
    with pytest.raises(ShapeError, match=r"must be \[2\]"):
        HwAvg(FLOAT).infer(TensorType(I32, (1, 1, 1, 1)), TensorType(I32, (1,)))
    assert HwAvg(FLOAT).infer(TensorType(I32, (1, "C", 1, 1)), TensorType(I32, ("n",))) == (
        TensorType(F32, (1, "C", 1, 1)),
    )
