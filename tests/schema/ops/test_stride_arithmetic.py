"""Arithmetic of strided tensors."""

import numpy as np
import pytest

from tests.support.operators.op_cases import Case, f16, f32, i8, i16
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.ops.stride_arithmetic import (
    StrideAdd,
    StrideAddOffset,
    StrideCpy,
    StrideCpyOffset,
    StrideDiv,
    StrideDivOffset,
    StrideMax,
    StrideMaxOffset,
    StrideMin,
    StrideMinOffset,
    StrideMul,
    StrideMulOffset,
    StrideSub,
    StrideSubOffset,
)
from tpuconvert.schema.types import F32, I16, TensorType

ROW, ONE = f32([1, 2, 3, 4, 5]), f32([10])
CASES = [
    Case(StrideAdd((1, 2)), [ROW, ROW], [f32([2, 6, 10])], "every second"),
    Case(StrideAdd((1, 2)), [ROW, ONE], [f32([11, 13, 15])], "an operand of extent 1 is not sampled"),
    Case(StrideSub((1, 2)), [ONE, ROW], [f32([9, 7, 5])], "whichever operand it is"),
    Case(StrideMul((1, 5)), [ROW, ROW], [f32([1])], "a stride as long as the axis"),
    Case(StrideDiv((3, 3)), [ONE, ONE], [f32([1])], "both operands have extent 1"),
    Case(StrideMax((1, 1)), [ROW, f32([3])], [f32([3, 3, 3, 4, 5])], "stride 1 is the plain operator"),
    Case(StrideMin((1, 4)), [ROW, f32([3])], [f32([1, 3])], "first and last"),
    Case(StrideAdd((1, 2), I16), [i8([127, 0, 1]), i8([127, 0, 1])], [i16([254, 2])], "a wide result"),
    Case(StrideAdd((1, 2)), [i8([127, 0, 1]), i8([127, 0, 1])], [i8([127, 2])], "saturates"),
    Case(StrideAdd((2,)), [f16(2048, 0), f16(1, 0)], [f16(2048)], "binary16 rounds once"),
    Case(StrideAddOffset((1, 2), (0, 1)), [ROW, ONE], [f32([12, 14])], "from the second"),
    Case(StrideSubOffset((1, 2), (0, 4)), [ROW, ONE], [f32([-5])], "from the last"),
    Case(StrideMulOffset((1, 2), (0, 1)), [ROW, ROW], [f32([4, 16])], "both from the second"),
    Case(StrideDivOffset((1, 1), (7, 7)), [ONE, ONE], [f32([1])], "extent 1 has no offset either"),
    Case(StrideMaxOffset((1, 3), (0, 1)), [ROW, f32([3])], [f32([3, 5])], "from the second"),
    Case(StrideMinOffset((1, 3), (0, 1)), [ROW, f32([3])], [f32([2, 3])], "from the second"),
    Case(StrideCpy((2, 2)), [i8([1, 2, 3], [4, 5, 6], [7, 8, 9])], [i8([1, 3], [7, 9])], "corners"),
    Case(StrideCpyOffset((2, 2), (1, 1)), [i8([1, 2, 3], [4, 5, 6], [7, 8, 9])], [i8([5])], "centre"),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_case(case):
    case.check()


@pytest.mark.parametrize(
    ("op", "shapes", "message"),
    [
        (StrideAdd((1,)), [(2,), (3,)], r"\[2\] and \[3\]"),
        (StrideAdd((1,)), [(2, 2), (2, 2)], r"\(1,\).*\[2, 2\]"),
        (StrideAddOffset((1,), (2,)), [(2,), (1,)], r"offset 2 .*\[2\] and \[1\]"),
        (StrideCpyOffset((1,), (1,)), [(1,)], r"offset 1 .*\[1\]"),
    ],
)
def test_shape_errors(op, shapes, message):
    with pytest.raises(ShapeError, match=message):
        op.infer(*(TensorType(F32, shape) for shape in shapes))


@pytest.mark.parametrize(
    "make", [lambda: StrideAdd((0,)), lambda: StrideAddOffset((1,), (-1,)), lambda: StrideCpyOffset((1, 1), (0,))]
)
def test_parameters_are_checked(make):
    with pytest.raises(ValueError, match="stride"):
        make()


def test_symbolic_extents():
    x, y = TensorType(F32, ("N", "H")), TensorType(F32, (1, "H"))
    assert StrideAdd((1, 2)).infer(x, y)[0].shape == ("N", "ceil(H/2)")
    assert StrideCpyOffset((1, 2), (0, 1)).infer(x)[0].shape == ("N", "ceil((H-1)/2)")


def test_copies_do_not_share_memory():
    x = f32(1, 2)
    assert not np.shares_memory(StrideCpy((1,)).evaluate(x)[0], x)
