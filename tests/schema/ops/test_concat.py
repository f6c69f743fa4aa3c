"""Concat, split, interleave."""

import pytest

from tests.support.operators.op_cases import Case, f32, i8
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.ops.concat import Concat, Interleave, Split
from tpuconvert.schema.types import F32, I8, I32, Chip, TensorType

A, B = f32([1, 2], [3, 4]), f32([5], [6])

CASES = [
    Case(Concat(1), [A, B], [f32([1, 2, 5], [3, 4, 6])], "different extents on the axis"),
    Case(Concat(-2), [A, A], [f32([1, 2], [3, 4], [1, 2], [3, 4])], "negative axis"),
    Case(Concat(0), [i8(1)], [i8(1)], "one operand"),
    Case(Concat(0), [i8(1), i8(), i8(2)], [i8(1, 2)], "an empty operand"),
    Case(Split(1, 2, (2, 1)), [f32([1, 2, 5], [3, 4, 6])], [A, B], "sizes"),
    Case(Split(-1, 2), [A], [f32([1], [3]), f32([2], [4])], "equal parts"),
    Case(Split(0, 3, (1, 0, 1)), [i8(1, 2)], [i8(1), i8(), i8(2)], "an empty part"),
    Case(Split(0, 1), [i8(1, 2)], [i8(1, 2)], "one part"),
    Case(Interleave(0, 1), [i8(1, 2), i8(3, 4)], [i8(1, 3, 2, 4)], "single slices"),
    Case(Interleave(-1, 2), [A, 10 * A], [f32([1, 2, 10, 20], [3, 4, 30, 40])], "whole chunks"),
    Case(Interleave(0, 1), [A, 10 * A], [f32([1, 2], [10, 20], [3, 4], [30, 40])], "rows"),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_case(case):
    case.check()


def test_symbolic_extents():
    x, y = TensorType(F32, ("N", 3, "H")), TensorType(F32, (4, "C", "H"))
    assert Concat(1).infer(x, y) == (TensorType(F32, (4, "C+3", "H")),)
    assert [t.shape for t in Split(0, 2).infer(x)] == [("N/2", 3, "H")] * 2
    assert Split(2, 2, (1, 2)).infer(x)[1].shape == ("N", 3, 2)
    assert Interleave(2, 4).infer(x, x)[0].shape == ("N", 3, "2*H")


@pytest.mark.parametrize(
    ("op", "shapes", "message"),
    [
        (Concat(0), [(2, 3), (2, 4)], r"\[2, 3\] and \[2, 4\]"),
        (Concat(0), [(2, 3), (2,)], r"\[2, 3\] and \[2\]"),
        (Concat(2), [(2, 3), (2, 3)], r"axis 2 does not exist in \[2, 3\]"),
        (Concat(0), [], "at least one"),
        (Split(0, 2), [(3,)], r"\[3\]"),
        (Split(0, 2, (1, 1)), [(3,)], r"\(1, 1\).*\[3\]"),
        (Split(1, 1), [(3,)], r"axis 1"),
        (Interleave(0, 2), [(3,), (3,)], r"\[3\] and \[3\]"),
        (Interleave(0, 1), [(3,), (4,)], r"\[3\] and \[4\]"),
    ],
)
def test_shape_errors(op, shapes, message):
    with pytest.raises(ShapeError, match=message):
        op.infer(*(TensorType(F32, shape) for shape in shapes))


@pytest.mark.parametrize("make", [lambda: Split(0, 0), lambda: Split(0, 2, (1,)), lambda: Interleave(0, 0)])
def test_parameters_are_checked(make):
    with pytest.raises(ValueError, match=r"split|interleave"):
        make()


@pytest.mark.parametrize(
    ("axis", "dtype", "chip", "local"),
    [
        (1, F32, Chip.BM1684, False),
        (-3, F32, Chip.BM1684, False),
        (0, F32, Chip.BM1684, True),
        (0, I8, Chip.BM1684, False),
        (-4, I8, Chip.BM1684, False),
        (0, I8, Chip.BM1686, True),
        (0, I32, Chip.BM1684, True),
        (3, I8, Chip.BM1684, True),
    ],
)
def test_locality(axis, dtype, chip, local):
    x = TensorType(dtype, (1, 2, 3, 4))
    assert Concat.locality.condition is not None
    assert Concat.locality.condition(Concat(axis), (x, x), (x,), chip) is local
