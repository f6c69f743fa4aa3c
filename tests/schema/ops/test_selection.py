"""Condition_select, select, masked_select, where, number_like, sequence_gen."""

import numpy as np
import pytest

from tests.support.operators.op_cases import Case, f32, i8, i32
from tpuconvert.schema.errors import ShapeError, UsageError
from tpuconvert.schema.ops.generation import NumberLike, SequenceGen
from tpuconvert.schema.ops.selection import ConditionSelect, MaskedSelect, Select, SelectType, Where
from tpuconvert.schema.types import F32, I8, I32, Scalar, TensorType

NAN = np.nan
GT, GE = SelectType.GREATER_THAN, SelectType.GREATER_EQUAL

CASES = [
    Case(
        ConditionSelect(), [f32(1, 0, -1, NAN), f32(1, 2, 3, 4), f32(9)], [f32(1, 9, 9, 9)], "NaN and 0 are not above 0"
    ),
    Case(ConditionSelect(), [i8([1], [0]), i8(7), i8([1], [2])], [i8([7], [2])], "one element of another rank"),
    Case(Select(GT), [f32(1, 2, NAN), f32(2, 2, 2), f32(5), f32(1, 2, 3)], [f32(1, 2, 3)], "equal is not greater"),
    Case(Select(GE), [f32(1, 2, NAN), f32(2, 2, 2), f32(5), f32(1, 2, 3)], [f32(1, 5, 3)], "equal is enough"),
    Case(Select(GE), [i8([1], [2]), i8([1, 2]), i8(1), i8(0)], [i8([1, 0], [1, 1])], "both compared are expanded"),
    Case(MaskedSelect(), [f32([1, 2], [3, 4]), f32([0, -0.5])], [f32(2, 4)], "the mask is expanded in front"),
    Case(MaskedSelect(), [i32(1, 2, 3), i32(1, 0, -1)], [i32(1, 3)], "everything but 0 counts"),
    Case(MaskedSelect(), [f32(1, 2), f32(NAN, -0.0)], [f32(1)], "NaN counts, negative zero does not"),
    Case(MaskedSelect(), [f32(1, 2), f32(0, 0)], [f32()], "nothing is left"),
    Case(Where(), [f32([0, 1], [NAN, 0])], [i32([0, 1], [1, 0])], "rows of coordinates"),
    Case(Where(), [f32(0)], [np.zeros((0, 1), np.int32)], "nothing found"),
    Case(NumberLike(Scalar(I8, -7)), [f32([1, 2])], [i8([-7, -7])], "in the type of the number"),
    Case(NumberLike(Scalar.f32(NAN)), [i8()], [f32()], "no elements"),
    Case(SequenceGen(), [i32(2, 3)], [i32([0, 1, 2], [3, 4, 5])], "row by row"),
    Case(SequenceGen(F32), [i32(3)], [f32(0, 1, 2)], "as numbers"),
    Case(SequenceGen(), [i32(2, 0)], [np.zeros((2, 0), np.int32)], "no elements"),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_case(case):
    case.check()


def infer(op, *shapes):
    return op.infer(*(TensorType(F32, shape) for shape in shapes))


@pytest.mark.parametrize(
    ("op", "shapes", "message"),
    [
        (ConditionSelect(), [(2,), (2,), (3,)], r"\[2\] and \[2\] and \[3\]"),
        (ConditionSelect(), [(2, 2), (2,), (1,)], r"\[2, 2\] and \[2\] and \[1\]"),
        (Select(GT), [(2,), (3,), (1,), (1,)], r"\[2\] and \[3\]"),
        (Select(GT), [(1, 2), (2, 1), (2, 2), (1, 2)], r"\[2, 2\] and \[1, 2\]"),
        (MaskedSelect(), [(2, 3), (2, 1)], r"\[2, 3\] and \[2, 1\]"),
        (MaskedSelect(), [(2, 3), (3,)], r"\[2, 3\] and \[3\]"),
        (SequenceGen(), [(9,)], r"\[9\]"),
        (SequenceGen(), [("N",)], r"\[N\]"),
    ],
)
def test_shape_errors(op, shapes, message):
    with pytest.raises(ShapeError, match=message):
        infer(op, *shapes)


def test_extents_that_depend_on_the_data():
    assert isinstance(infer(MaskedSelect(), (2, 3), (1, 3))[0].shape[0], str)
    (coordinates,) = infer(Where(), (2, 3, 4))
    assert coordinates.dtype is I32
    assert isinstance(coordinates.shape[0], str)
    assert coordinates.shape[1] == 3
    (sequence,) = infer(SequenceGen(), (2,))
    assert all(isinstance(extent, str) for extent in sequence.shape)


def test_symbolic_extents():
    assert infer(ConditionSelect(), ("N", 3), (1,), ("N", 3))[0].shape == ("N", 3)
    assert infer(Select(GT), ("N", 1), (1, "C"), (1,), ("N", "C"))[0].shape == ("N", "C")


def test_reserved_comparison_is_rejected():
    with pytest.raises(ValueError, match="reserved"):
        Select(SelectType.UNKNOWN_SELECT_OP)


def test_negative_extents_fail_the_run():
    with pytest.raises(UsageError, match=r"\[2, -1\]"):
        SequenceGen().evaluate(i32(2, -1))


def test_choice_decides_the_type():
    cond = TensorType(I8, (2,))
    assert ConditionSelect().infer(cond, cond, TensorType(I8, (1,)))[0].dtype is I8
