"""Bitwise logic, element-wise shifts, and moves of slices."""

import numpy as np
import pytest

from tests.support.operators.op_cases import Case, f32, i8, i16, i32, type_of, u8, u16
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.graph.legality import Status, check
from tpuconvert.schema.ops.bit_logic import BitAnd, BitAnds, BitOr, BitOrs, BitXor, BitXors
from tpuconvert.schema.ops.channel_shift import Clshift, Crshift, Lshift, Rshift
from tpuconvert.schema.ops.shifts.shift_by_amount import (
    ArithLshift,
    ArithLshifts,
    ArithRshift,
    ArithRshifts,
    RoundRshift,
    RoundRshifts,
)
from tpuconvert.schema.types import F32, I8, I16, I32, U8, U16, Chip, Scalar, TensorType

LEAST = -(2**31)

CASES = [
    Case(BitAnd(), [i8(-1, 12), i8(5, 10)], [i8(5, 8)], "two's complement"),
    Case(BitOr(), [u8(12), u8(10)], [u8(14)], "unsigned"),
    Case(BitXor(), [i32(-1, 12), i32(1, 10)], [i32(-2, 6)], "two's complement"),
    Case(BitAnds(Scalar(I16, -2)), [i16(7)], [i16(6)], "clears the lowest bit"),
    Case(BitOrs(Scalar(U16, 32768)), [u16(1)], [u16(32769)], "sets the highest bit"),
    Case(BitXors(Scalar(U8, 255)), [u8(1, 255)], [u8(254, 0)], "turns every bit"),
    Case(ArithLshift(), [i16(1, 16384, -1, 5), i16(3, 1, 15, -1)], [i16(8, -32768, -32768, 2)], "drops bits"),
    Case(ArithLshift(), [i16(7, -7, -1), i16(16, 100, -100)], [i16(0, 0, -1)], "beyond the width"),
    Case(ArithLshift(), [i16([1], [2]), i16([3], [4])], [i16([8], [32])], "one amount per row"),
    Case(ArithLshift(), [i16([1, 2], [3, 4]), i16([1, 2])], [i16([2, 8], [6, 16])], "amounts are expanded"),
    Case(ArithLshift(), [u16(65535), i16(1)], [u16(65534)], "unsigned"),
    Case(ArithRshift(), [u16(65535, 65535), i16(1, 40)], [u16(32767, 0)], "zeros come in"),
    Case(ArithRshift(), [i32(-5, 5, LEAST), i32(1, 1, 31)], [i32(-3, 2, -1)], "rounds down"),
    Case(ArithRshift(), [i32(3, 1), i32(-1, LEAST)], [i32(6, 0)], "a negative amount turns round"),
    Case(ArithLshift(), [i32(3, -3), i32(LEAST, LEAST)], [i32(0, -1)], "the largest amount"),
    Case(ArithLshifts(Scalar(I32, 31)), [i32(1, 2)], [i32(LEAST, 0)], "drops bits"),
    Case(ArithRshifts(Scalar(I32, 1)), [i32(-1, 3)], [i32(-1, 1)], "rounds down"),
    Case(ArithRshifts(Scalar(I16, -2)), [i16(-3)], [i16(-12)], "turns round"),
    Case(RoundRshift(), [i16(5, -5, 6, -6, 7), i16(1, 1, 2, 2, 0)], [i16(3, -2, 2, -1, 7)], "ties round up"),
    Case(RoundRshift(I8), [i16(1000, -1000), i16(1, -3)], [i8(127, -128)], "saturates; a negative amount does nothing"),
    Case(RoundRshift(U8), [u16(65535), i16(16)], [u8(1)], "65535 / 65536 is nearly 1"),
    Case(RoundRshift(), [i16(32767, -32768), i16(40, 40)], [i16(0, 0)], "beyond the width"),
    Case(RoundRshifts(Scalar(I32, 1)), [i16(-3, 3)], [i16(-1, 2)], "ties round up"),
    Case(RoundRshifts(Scalar(I16, -5), I8), [i16(300)], [i8(127)], "a negative amount does nothing"),
    Case(Lshift(1), [f32([1, 2, 3])], [f32([2, 3, 0])], "to lower places"),
    Case(Rshift(1), [i8([1, 2, 3])], [i8([0, 1, 2])], "to higher places"),
    Case(Rshift(0), [i8([1, 2, 3])], [i8([1, 2, 3])], "stays"),
    Case(Lshift(3), [i8([1, 2, 3])], [i8([0, 0, 0])], "everything is gone"),
    Case(Rshift(100), [i8([1, 2, 3])], [i8([0, 0, 0])], "everything is gone"),
    Case(Clshift(1), [u8([1, 2, 3])], [u8([2, 3, 1])], "round to lower places"),
    Case(Crshift(4), [u8([1, 2, 3])], [u8([3, 1, 2])], "more than all the way round"),
    Case(Clshift(2), [np.zeros((1, 0), np.float32)], [np.zeros((1, 0), np.float32)], "no slices"),
    Case(Lshift(1), [f32([[1, 2], [3, 4]])], [f32([[3, 4], [0, 0]])], "whole slices"),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_case(case):
    case.check()


@pytest.mark.parametrize("dtype", [np.int16, np.uint16, np.int32])
def test_arithmetic_shifts_against_python_integers(dtype):
    random = np.random.default_rng(3)
    info = np.iinfo(dtype)
    x = random.integers(info.min, info.max, 300, endpoint=True).astype(dtype)
    amounts = random.integers(-70, 71, 300)
    num = amounts.astype(np.int32 if dtype is np.int32 else np.int16)
    span = 1 << info.bits

    def wrap_to_type(value):
        value %= span
        return value - span if info.min < 0 and value >= span // 2 else value

    expected = [
        wrap_to_type(int(v) << int(n)) if n >= 0 else int(v) >> int(-n) for v, n in zip(x, amounts, strict=True)
    ]
    assert ArithLshift().evaluate(x, num)[0].tolist() == expected
    assert ArithRshift().evaluate(x, -num)[0].tolist() == expected


@pytest.mark.parametrize(
    ("op", "shapes", "message"),
    [
        (BitAnd(), [(2,), (1,)], r"\[2\] and \[1\]"),
        (ArithLshift(), [(1,), (2,)], r"\[1\] and \[2\]"),
        (RoundRshift(), [(2, 1), (1, 2)], r"\[2, 1\] and \[1, 2\]"),
        (ArithRshift(), [(2,), (1, 2)], r"\[2\] and \[1, 2\]"),
        (Lshift(1), [(3,)], r"\[3\] has no axis 1"),
    ],
)
def test_shape_errors(op, shapes, message):
    with pytest.raises(ShapeError, match=message):
        op.infer(*(TensorType(I16, shape) for shape in shapes))


@pytest.mark.parametrize("make", [lambda: Lshift(-1), lambda: Clshift(1, 2), lambda: Rshift(1, 0)])
def test_parameters_are_checked(make):
    with pytest.raises(ValueError, match="only axis 1"):
        make()


def test_legality():
    def status(op, *types):
        return [check(op, chip, types, op.infer(*types)).status for chip in Chip]

    x, n = type_of(i16(1)), type_of(i16(1))
    assert status(ArithLshift(), x, n) == [Status.ILLEGAL, Status.LEGAL, Status.WARNING]
    assert status(RoundRshift(U8), x, n)[1] is Status.ILLEGAL  # signed to unsigned
    assert status(RoundRshift(I8), x, n)[1] is Status.LEGAL
    assert status(ArithLshift(), type_of(i32(1)), n)[1] is Status.ILLEGAL
    assert status(ArithLshifts(Scalar(U16, 1)), type_of(i32(1)))[1] is Status.LEGAL
    assert status(Lshift(1), TensorType(F32, (1, 2)))[1] is Status.LEGAL
    assert status(Lshift(1), TensorType(I16, (1, 2)))[1] is Status.ILLEGAL
