"""Arithmetic of two tensors and of a tensor with a scalar, clamp and axpy."""

import numpy as np
import pytest

from tests.support.operators.op_cases import Case, f16, f32, i8, i16, i32, type_of, u8, u16
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.graph.legality import Status, check
from tpuconvert.schema.ops.arithmetic import Add, Div, Max, Min, Mul, Sub
from tpuconvert.schema.ops.arithmetic_with_scalar import Adds, Axpy, Divs, Maxs, Mins, Muls, Rdivs, Rsubs, Subs
from tpuconvert.schema.ops.clamp import Clamp
from tpuconvert.schema.types import F16, F32, I8, I16, I32, U8, U16, U32, Chip, DType, Scalar, TensorType

OLD = (Chip.BM1682, Chip.BM1684)
NEW = (Chip.BM1686,)
NAN, INF = np.nan, np.inf
MOST = 2147483647


def u32(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.uint32)


CASES = [
    Case(Add(), [f32([1], [2]), f32([10, 20, 30])], [f32([11, 21, 31], [12, 22, 32])], "both operands are expanded"),
    Case(Add(), [f32(), f32()], [f32()], "no elements"),
    Case(Add(), [f32(3e38), f32(3e38)], [f32(INF)], "overflow is infinity, without a warning"),
    Case(Add(), [f32(INF, NAN), f32(-INF, 1)], [f32(NAN, NAN)], "IEEE"),
    Case(Add(), [f32(16777216.0), f32(1.0)], [f32(16777216.0)], "a tie goes to even"),
    Case(Add(), [f16(2048), f16(1)], [f16(2048)], "binary16 rounds the exact sum 2049 to even", NEW),
    Case(Add(), [f16(60000), f16(60000)], [f16(INF)], "binary16 overflows", NEW),
    Case(Add(), [i8(127, -128), i8(1, -1)], [i8(127, -128)], "saturates"),
    Case(Add(I16), [i8(127, -128), i8(1, -1)], [i16(128, -129)], "a wide result does not"),
    Case(Add(U8), [i8(5, -5), u8(255, 2)], [u8(255, 0)], "mixed signs, exact sums 260 and -3"),
    Case(Add(U16), [u16(65535), u16(65535)], [u16(65535)], "16 bits saturate"),
    Case(Add(), [i32(16777217, MOST), i32(0, 0)], [i32(16777216, MOST)], "through binary32", OLD),
    Case(Add(), [i32(16777217, MOST, -MOST - 1), i32(1, 1, -1)], [i32(16777218, MOST, -MOST - 1)], "exact", NEW),
    Case(Add(), [u32(4294967295, 1), u32(1, 2)], [u32(4294967295, 3)], "exact unsigned", NEW),
    Case(Sub(), [u8(3), u8(5)], [u8(0)], "unsigned results do not go below 0"),
    Case(Sub(I8), [u8(3, 200), u8(5, 1)], [i8(-2, 127)], "signed results of unsigned operands"),
    Case(Sub(), [i32(-MOST - 1), i32(1)], [i32(-MOST - 1)], "saturates", NEW),
    Case(Sub(), [u32(1), u32(2)], [u32(0)], "saturates", NEW),
    Case(Mul(), [i8(-128), i8(-128)], [i8(127)], "16384 saturates"),
    Case(Mul(I16), [i8(-128), u8(255)], [i16(-32640)], "exact"),
    Case(Mul(), [i32(65536, -65536), i32(65536, 65536)], [i32(MOST, -MOST - 1)], "2^32 saturates"),
    Case(Mul(), [i32(4097), i32(4097)], [i32(16785408)], "4097^2 = 16785409 rounds to even in binary32", OLD),
    Case(Mul(), [i32(4097), i32(4097)], [i32(16785409)], "exact", NEW),
    Case(Mul(), [f32(3.0), f32(1 / 3)], [f32(1.0)], "3 * f32(1/3) is just above 1 and rounds to it"),
    Case(Div(), [f32(1, -1, 0, 1), f32(0, 0, 0, 3)], [f32(INF, -INF, NAN, np.float32(1) / np.float32(3))], "IEEE"),
    Case(Div(), [f16(1), f16(3)], [f16(0.33325195)], "binary16", NEW),
    Case(Max(), [f32(1, NAN, 1, -INF), f32(NAN, 1, 2, NAN)], [f32(NAN, NAN, 2, NAN)], "NaN wins on both sides"),
    Case(Max(), [f32(-0.0, 0.0), f32(0.0, -0.0)], [f32(0.0, -0.0)], "of equal zeros the second"),
    Case(Min(), [f32(1, NAN, 1), f32(NAN, 1, 2)], [f32(NAN, NAN, 1)], "NaN wins on both sides"),
    Case(Min(), [i8(-5), i8(3)], [i8(-5)], "integers"),
    Case(Max(), [i32(16777217), i32(0)], [i32(16777216)], "through binary32", OLD),
    Case(Max(), [i32(16777217), i32(0)], [i32(16777217)], "exact", NEW),
    Case(Adds(Scalar(I8, 50)), [i8(100, -100)], [i8(127, -50)], "saturates"),
    Case(Adds(Scalar(U16, 65535), I16), [i8(-1)], [i16(32767)], "exact sum 65534"),
    Case(Adds(Scalar(F32, 0.0)), [f32(-0.0, NAN)], [f32(0.0, NAN)], "0 is a number like any other"),
    Case(Subs(Scalar(U8, 5)), [u8(3)], [u8(0)], "does not go below 0"),
    Case(Rsubs(Scalar(I8, 50)), [i8(100, -100)], [i8(-50, 127)], "the number comes first"),
    Case(Rsubs(Scalar(I32, 16777217)), [i32(0)], [i32(16777216)], "the number is rounded too", OLD),
    Case(Muls(Scalar(I8, -128), I16), [i8(-128, 1)], [i16(16384, -128)], "exact"),
    Case(Muls(Scalar(F32, 0.0)), [f32(INF, -1)], [f32(NAN, -0.0)], "IEEE"),
    Case(Muls(Scalar(F16, 3.0)), [f16(30000)], [f16(INF)], "binary16 overflows", NEW),
    Case(Divs(Scalar(F32, 3.0)), [f32(1, 7)], [f32(0.33333334, 2.3333333)], "a division, not * (1/3)"),
    Case(Rdivs(Scalar(F32, 1.0)), [f32(0.0, -0.0, -4)], [f32(INF, -INF, -0.25)], "the number comes first"),
    Case(Maxs(Scalar(I8, 0)), [i8(-3, 3)], [i8(0, 3)], "integers"),
    Case(Maxs(Scalar(F32, 0.0)), [f32(NAN, -0.0, -1)], [f32(NAN, 0.0, 0.0)], "NaN stays, zero is the number"),
    Case(Mins(Scalar(F32, 6.0)), [f32(NAN, 7, 5)], [f32(NAN, 6, 5)], "NaN stays"),
    Case(Axpy(Scalar(F32, 0.5)), [f32(1, 2), f32(10, 20)], [f32(10.5, 21)], "plain"),
    Case(
        Axpy(Scalar.f32(1 + 2**-12)),
        [f32(1 + 2**-12), f32(-1 - 2**-11)],
        [f32(0.0)],
        "(1 + 2^-12)^2 is rounded before the sum: a fused operation would give 2^-24",
    ),
    Case(Clamp(Scalar(F32, 0.0), Scalar(F32, 6.0)), [f32(-1, 7, NAN, 3, -0.0)], [f32(0, 6, NAN, 3, 0.0)], "ReLU6"),
    Case(Clamp(Scalar(I8, 5), Scalar(I8, 5)), [i8(-1, 7)], [i8(5, 5)], "min = max"),
    Case(
        Clamp(Scalar(I32, -MOST - 1), Scalar(I32, MOST)), [i32(16777217, MOST)], [i32(16777216, MOST)], "via binary32"
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_case(case: Case) -> None:
    case.check()


@pytest.mark.parametrize("op", [Add(), Sub(), Mul(), Div(), Max(), Min()], ids=str)
def test_shapes_that_do_not_broadcast(op: Add) -> None:
    with pytest.raises(ShapeError, match=r"\[2, 3\] and \[3, 2\]"):
        op.infer(TensorType(F32, (2, 3)), TensorType(F32, (3, 2)))
    with pytest.raises(ShapeError, match=r"rank.*\[3\] and \[1, 3\]"):
        op.infer(TensorType(F32, (3,)), TensorType(F32, (1, 3)))


def test_symbolic_extents_pass_through() -> None:
    (y,) = Add().infer(TensorType(F32, ("N", 1, 4, "H")), TensorType(F32, (1, "C", "W", "H")))
    assert y == TensorType(F32, ("N", "C", 4, "H"))
    (z,) = Mul().infer(TensorType(F32, ("A",)), TensorType(F32, ("B",)))
    assert z == TensorType(F32, ("max(A,B)",))
    assert Adds(Scalar.f32(1)).infer(TensorType(F32, ("N",))) == (TensorType(F32, ("N",)),)


def test_axpy_needs_equal_shapes() -> None:
    with pytest.raises(ShapeError, match=r"\[2\] and \[1\]"):
        Axpy(Scalar.f32(1)).infer(TensorType(F32, (2,)), TensorType(F32, (1,)))


def test_clamp_limits_in_order() -> None:
    with pytest.raises(ValueError, match="above"):
        Clamp(Scalar.f32(1), Scalar.f32(0))
    with pytest.raises(ValueError, match="above"):
        Clamp(Scalar.f32(NAN), Scalar.f32(0))


def test_a_number_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(ValueError, match="not representable"):
        Adds(Scalar(I8, 128))


def test_inputs_are_not_changed() -> None:
    x, y = i8(100), i8(100)
    Add().evaluate(x, y)
    assert x[0] == y[0] == 100


@pytest.mark.parametrize(
    ("op", "first", "second", "legal"),
    [
        (Add(U16), I16, U8, ()),
        (Add(U16), U16, U8, (Chip.BM1684, Chip.BM1686)),
        (Add(), U32, U32, (Chip.BM1686,)),
        (Add(), F16, F16, (Chip.BM1686,)),
        (Add(), I32, I32, tuple(Chip)),
        (Mul(), U32, U32, ()),
        (Mul(), I16, I16, ()),
        (Div(), I8, I8, ()),
        (Max(), I8, U8, ()),
    ],
)
def test_legality(op: Add, first: DType, second: DType, legal: tuple[Chip, ...]) -> None:
    types = (TensorType(first, (1,)), TensorType(second, (1,)))
    found = tuple(chip for chip in Chip if check(op, chip, types, op.infer(*types)).status is not Status.ILLEGAL)
    assert found == legal


def test_adds_has_no_sign_rule_where_subs_has_one() -> None:
    for op, status in ((Adds(Scalar(I16, 1), U16), Status.LEGAL), (Subs(Scalar(I16, 1), U16), Status.ILLEGAL)):
        x = type_of(u16(1))
        assert check(op, Chip.BM1684, (x,), op.infer(x)).status is status


def test_division_is_unfinished_on_the_newest_chip() -> None:
    x = TensorType(F32, (1,))
    assert check(Div(), Chip.BM1686, (x, x), (x,)).status is Status.WARNING
    assert check(Rdivs(Scalar.f32(1)), Chip.BM1682, (x,), (x,)).status is Status.ILLEGAL


def test_random_sums_against_exact_integers() -> None:
    random = np.random.default_rng(7)
    x, y = random.integers(-(2**31), 2**31, (2, 500)).astype(np.int32)
    expected = [min(max(int(a) + int(b), -(2**31)), 2**31 - 1) for a, b in zip(x, y, strict=True)]
    assert Add().evaluate(x, y, chip=Chip.BM1686)[0].tolist() == expected
    assert I32.numpy == Add().evaluate(x, y, chip=Chip.BM1684)[0].dtype


def test_u8_is_not_promoted() -> None:
    assert Adds(Scalar(U8, 1)).evaluate(u8(255))[0].dtype == U8.numpy
