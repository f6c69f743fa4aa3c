"""Cast, copy and constdata."""

import numpy as np
import pytest

from tests.support.operators.op_cases import Case, f16, f32, i8, i16, i32, u8, u16
from tpuconvert.schema.definition.op import LocalityKind
from tpuconvert.schema.graph.legality import Status, check
from tpuconvert.schema.ops.cast import Cast
from tpuconvert.schema.ops.copy import Constdata, Copy
from tpuconvert.schema.types import F16, F32, I8, I16, I32, U8, U16, Chip, DType, TensorType

NAN, INF = np.nan, np.inf
CASES = [
    Case(Cast(I8), [f32(0.5, 1.5, -0.5, -2.5, 127.5)], [i8(1, 2, -1, -3, 127)], "ties round away from zero"),
    Case(Cast(I8), [f32(NAN, INF, -INF, 1e30)], [i8(0, 127, -128, 127)], "NaN is 0, infinities saturate"),
    Case(Cast(U8), [f32(-0.6, -1e9, 255.5)], [u8(0, 0, 255)], "saturates"),
    Case(Cast(I32), [f32(2147483648.0, -2147483648.0)], [i32(2147483647, -2147483648)], "the ends"),
    Case(Cast(I32), [f32(8388607.5, 0.49999997)], [i32(8388608, 0)], "exact on the value"),
    Case(Cast(U16), [i16(-1, 32767)], [u16(0, 32767)], "integers saturate"),
    Case(Cast(I16), [u16(65535)], [i16(32767)], "integers saturate"),
    Case(Cast(I16), [u8(255)], [i16(255)], "wider"),
    Case(Cast(F32), [i32(16777217, 16777219, -7)], [f32(16777216, 16777220, -7)], "nearest, ties to even"),
    Case(Cast(F16), [f32(65504, 65520, 1e-8, 2049)], [f16(65504, INF, 0, 2048)], "nearest, ties to even"),
    Case(Cast(F16), [i32(2147483647)], [f16(INF)], "overflow without a warning"),
    Case(Cast(F16), [i32(2049 * 2**14 + 1)], [f16(INF)], "large"),
    Case(Cast(F32), [f16(0.1)], [f32(0.0999755859375)], "exact"),
    Case(Cast(I8), [f16(2.5, NAN)], [i8(3, 0)], "from binary16"),
    Case(Cast(I8), [f32()], [i8()], "no elements"),
    Case(Copy(), [f32(NAN, -0.0)], [f32(NAN, -0.0)], "bit for bit"),
    Case(Constdata(), [i16(1, -2)], [i16(1, -2)], "the constant itself"),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_case(case):
    case.check()


def test_copies_do_not_share_memory():
    x = f32(1, 2)
    assert not np.shares_memory(Copy().evaluate(x)[0], x)
    assert not np.shares_memory(Cast(F32).evaluate(x)[0], x)


def test_pairs_that_must_be_composed():
    def legal(chip: Chip, source: DType, result: DType) -> bool:
        types = TensorType(source, (1,)), TensorType(result, (1,))
        return check(Cast(result), chip, types[:1], types[1:]).status is Status.LEGAL

    assert not legal(Chip.BM1684, I32, I8)
    assert not legal(Chip.BM1684, F32, F32)
    assert legal(Chip.BM1684, I16, U8)
    assert not legal(Chip.BM1682, F32, I16)
    assert not legal(Chip.BM1684, F32, F16)
    assert legal(Chip.BM1686, F16, U16)


@pytest.mark.parametrize(
    ("chip", "source", "result", "local"),
    [
        (Chip.BM1682, F32, I32, True),
        (Chip.BM1682, I32, F32, False),
        (Chip.BM1682, F32, I8, False),
        (Chip.BM1684, I32, F32, False),
        (Chip.BM1684, F32, I32, True),
        (Chip.BM1684, I16, I8, True),
        (Chip.BM1686, I32, F32, False),
    ],
)
def test_locality(chip, source, result, local):
    locality = Cast.locality
    assert locality.kind is LocalityKind.LIMITED_LOCAL
    assert locality.condition is not None
    types = (TensorType(source, (1,)),), (TensorType(result, (1,)),)
    assert locality.condition(Cast(result), *types, chip) is local
