"""Comparisons."""

import numpy as np
import pytest

from tests.support.operators.op_cases import Case, f16, f32, i8, u8, u16
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.graph.legality import Status, check
from tpuconvert.schema.ops.compare import Eq, Eqs, Ge, Ges, Gt, Gts, Le, Les, Lt, Lts, Ne, Nes
from tpuconvert.schema.types import F16, F32, I8, I32, U16, Chip, Scalar, TensorType

NAN = np.nan
A, B = f32(1, 2, 3, NAN, 1, NAN), f32(2, 2, 2, 1, NAN, NAN)

CASES = [
    Case(Gt(), [A, B], [f32(0, 0, 1, 0, 0, 0)], "NaN is never greater"),
    Case(Ge(), [A, B], [f32(0, 1, 1, 0, 0, 0)], "NaN is never greater or equal"),
    Case(Lt(), [A, B], [f32(1, 0, 0, 0, 0, 0)], "NaN is never less"),
    Case(Le(), [A, B], [f32(1, 1, 0, 0, 0, 0)], "NaN is never less or equal"),
    Case(Eq(), [A, B], [f32(0, 1, 0, 0, 0, 0)], "NaN equals nothing"),
    Case(Ne(), [A, B], [f32(1, 0, 1, 1, 1, 1)], "NaN differs from everything"),
    Case(Eq(), [f32(0.0), f32(-0.0)], [f32(1)], "both zeros are one number"),
    Case(Gt(), [i8([1], [2]), i8([0, 1, 2])], [i8([1, 0, 0], [1, 1, 0])], "both operands are expanded"),
    Case(Lt(), [u16(0, 65535), u16(65535, 0)], [u16(1, 0)], "unsigned"),
    Case(Ge(), [f16(1), f16(1)], [f16(1)], "binary16"),
    Case(Gts(Scalar(I8, 0)), [i8(-1, 0, 1)], [i8(0, 0, 1)], "integers"),
    Case(Ges(Scalar(I8, 0)), [i8(-1, 0, 1)], [i8(0, 1, 1)], "integers"),
    Case(Lts(Scalar(I8, 0)), [i8(-1, 0, 1)], [i8(1, 0, 0)], "integers"),
    Case(Les(Scalar(I8, 0)), [i8(-1, 0, 1)], [i8(1, 1, 0)], "integers"),
    Case(Eqs(Scalar(U16, 65535)), [u16(65535, 1)], [u16(1, 0)], "unsigned"),
    Case(Nes(Scalar(F32, 0.0)), [f32(NAN, -0.0, 1)], [f32(1, 0, 1)], "NaN differs"),
    Case(Eqs(Scalar(F16, 1.0)), [f16()], [f16()], "no elements"),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_case(case):
    case.check()


def test_errors_name_both_shapes():
    with pytest.raises(ShapeError, match=r"gt .*\[2\] and \[3\]"):
        Gt().infer(TensorType(F32, (2,)), TensorType(F32, (3,)))


def test_operands_have_one_type():
    x, y = TensorType(I8, (1,)), TensorType(U16, (1,))
    assert check(Gt(), Chip.BM1684, (x, y), (x,)).status is Status.ILLEGAL
    assert check(Gt(), Chip.BM1684, (x, x), (x,)).status is Status.LEGAL
    assert check(Gts(Scalar(U16, 1)), Chip.BM1684, (x,), (x,)).status is Status.ILLEGAL
    wide = TensorType(I32, (1,))
    assert check(Gt(), Chip.BM1686, (wide, wide), (wide,)).status is Status.ILLEGAL


def test_u8_scalar_is_not_promoted():
    (y,) = Gts(Scalar(F32, 254.5)).evaluate(u8(255, 1))
    assert y.tolist() == [1, 0]
