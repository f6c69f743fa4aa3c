"""Reduce."""

import numpy as np
import pytest

from tests.support.operators.op_cases import Case, f16, f32, i8, u8
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.ops.reduce import Reduce, ReduceMethodType
from tpuconvert.schema.types import F32, I8, Chip, TensorType

MEAN, SUM, MAX, MIN, PROD = ReduceMethodType
NAN, INF = np.nan, np.inf

CASES = [
    Case(Reduce((1,)), [f32([1, 2], [3, 5])], [f32([1.5], [4])], "mean is the default, the axis stays"),
    Case(Reduce((-1,), SUM, keep_dims=False), [f32([1, 2], [3, 5])], [f32(3, 8)], "the axis goes"),
    Case(Reduce((0, 1), SUM, keep_dims=False), [f32([1, 2], [3, 5])], [f32(11)], "no axis is left: [1]"),
    Case(Reduce((1, 0), SUM, 1), [f32([1, 2], [3, 5])], [f32([3], [8])], "only the first axis counts"),
    Case(Reduce((), SUM), [f32(1, 2)], [f32(1, 2)], "no axis"),
    Case(Reduce((0,), SUM), [f32(1e8, 1, -1e8)], [f32(1)], "binary32 would lose the 1"),
    Case(Reduce((0,), SUM), [f32()], [f32(0)], "of nothing"),
    Case(Reduce((0,), PROD), [f32()], [f32(1)], "of nothing"),
    Case(Reduce((0,), SUM), [f32(3e38, 3e38)], [f32(INF)], "overflow without a warning"),
    Case(Reduce((0,), MAX), [f32(1, NAN, 2)], [f32(NAN)], "NaN wins"),
    Case(Reduce((0,), MIN), [f32(1, NAN, 2)], [f32(NAN)], "NaN wins"),
    Case(Reduce((0,), MIN), [i8(1, -128)], [i8(-128)], "integers"),
    Case(Reduce((0,), MEAN), [i8(1, 2)], [i8(2)], "1.5 rounds away from zero"),
    Case(Reduce((0,), MEAN), [i8(-1, -2)], [i8(-2)], "-1.5 rounds away from zero"),
    Case(Reduce((0,), MEAN), [i8(-1, -1, -2)], [i8(-1)], "-4/3"),
    Case(Reduce((0,), MEAN), [u8(255, 255, 254)], [u8(255)], "254.67"),
    Case(Reduce((0,), SUM), [u8(200, 100)], [u8(255)], "saturates"),
    Case(Reduce((0,), SUM), [i8(100, 100, -100)], [i8(100)], "saturates only at the end"),
    Case(Reduce((0,), PROD), [np.full(101, -128, np.int8)], [i8(-128)], "an odd number of signs, far beyond 64 bits"),
    Case(Reduce((0,), PROD), [np.full(100, -128, np.int8)], [i8(127)], "an even number of signs"),
    Case(Reduce((0,), PROD), [i8(*[127] * 50, 0)], [i8(0)], "zero at the end"),
    Case(Reduce((0,), PROD), [i8([2, -3], [5, 7])], [i8([10, -21])], "by hand"),
    Case(Reduce((0,), MEAN), [f16(1, 2)], [f16(1.5)], "binary16"),
    Case(Reduce((0,), SUM), [f16(2048, 1, 1)], [f16(2050)], "binary16 rounds once"),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_case(case):
    case.check()


@pytest.mark.parametrize(
    ("op", "message"),
    [
        (Reduce((2,)), r"axis 2 does not exist in \[2, 3\]"),
        (Reduce((0, -2)), r"\[0, -2\].*\[2, 3\] twice"),
    ],
)
def test_shape_errors(op, message):
    with pytest.raises(ShapeError, match=message):
        op.infer(TensorType(F32, (2, 3)))


def test_nothing_has_no_mean():
    with pytest.raises(ShapeError, match=r"no elements.*\[2, 0\]"):
        Reduce((1,), MEAN).infer(TensorType(F32, (2, 0)))


@pytest.mark.parametrize(("method", "extreme"), [(MAX, -np.inf), (MIN, np.inf)])
def test_extremes_of_nothing_are_the_limits(method, extreme):
    (y,) = Reduce((1,), method).reference(np.zeros((2, 0), np.float32))
    assert y.tolist() == [[extreme], [extreme]]


def test_axis_num_within_the_list():
    with pytest.raises(ValueError, match="axis_num"):
        Reduce((0,), axis_num=2)


def test_symbolic_extents():
    x = TensorType(F32, ("N", 3, "H", "W"))
    assert Reduce((2, 3)).infer(x)[0].shape == ("N", 3, 1, 1)
    assert Reduce((-1, -2), keep_dims=False).infer(x)[0].shape == ("N", 3)


def test_only_floats_may_be_local():
    condition = Reduce.locality.condition
    assert condition is not None
    for dtype, local in ((F32, True), (I8, False)):
        x = TensorType(dtype, (2,))
        assert condition(Reduce((0,)), (x,), (x,), Chip.BM1684) is local
