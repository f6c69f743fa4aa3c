"""Arg, topk, sort and argsort."""

import numpy as np
import pytest

from tests.support.operators.op_cases import Case, f32, i8, i32
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.graph.legality import Status, check
from tpuconvert.schema.ops.ordering import Arg, ArgMethod, Argsort, Sort, Topk
from tpuconvert.schema.types import F32, I8, I32, Chip, TensorType

NAN, INF = np.nan, np.inf
MIXED = f32(2, NAN, 1, 2, NAN, -INF, INF)

CASES = [
    Case(Arg(0), [f32(1, 3, 3)], [i32(1)], "the first of equal ones"),
    Case(Arg(0, ArgMethod.min), [f32(3, 1, 1)], [i32(1)], "the first of equal ones"),
    Case(Arg(0), [f32(1, NAN, INF, NAN)], [i32(1)], "the first NaN"),
    Case(Arg(0, ArgMethod.min), [f32(1, NAN, 0)], [i32(1)], "the first NaN"),
    Case(Arg(-1), [i8([1, 2], [4, 3])], [i32([1], [0])], "negative axis, integers"),
    Case(Arg(0, out_dtype=F32), [f32(1, 3)], [f32(1)], "the index as a number"),
    Case(Topk(2), [f32(1, 3, 2, 3)], [f32(3, 3), i32(1, 3)], "equal ones by rising index"),
    Case(Topk(3, 0, False), [f32(2, 1, 1, 3)], [f32(1, 1, 2), i32(1, 2, 0)], "the smallest, rising"),
    Case(Topk(1, -1), [f32([1, 2], [4, 3])], [f32([2], [4]), i32([1], [0])], "negative axis"),
    Case(Topk(3), [MIXED], [f32(NAN, NAN, INF), i32(1, 4, 6)], "NaN is larger than every number"),
    Case(Topk(1, index_dtype=F32), [f32(1, 3)], [f32(3), f32(1)], "the index as a number"),
    Case(Sort(), [MIXED], [i32(5, 2, 0, 3, 6, 1, 4), f32(-INF, 1, 2, 2, INF, NAN, NAN)], "rising"),
    Case(
        Sort(descending=True),
        [MIXED],
        [i32(1, 4, 6, 0, 3, 2, 5), f32(NAN, NAN, INF, 2, 2, 1, -INF)],
        "falling, equal ones still by rising index",
    ),
    Case(Sort(), [f32(0.0, -0.0)], [i32(0, 1), f32(0.0, -0.0)], "both zeros are one number"),
    Case(Sort(0), [f32([2, 1], [1, 2])], [i32([1, 0], [0, 1]), f32([1, 1], [2, 2])], "first axis"),
    Case(Sort(), [f32()], [i32(), f32()], "no elements"),
    Case(Argsort(), [f32(3, 1, 2)], [i32(1, 2, 0)], "rising"),
    Case(Argsort(descending=True, stable=True), [f32(1, 1, 1)], [i32(0, 1, 2)], "equal ones"),
    Case(Argsort(out_dtype=F32), [f32(3, 1)], [f32(1, 0)], "indices as numbers"),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_case(case):
    case.check()


@pytest.mark.parametrize(
    ("op", "message"),
    [
        (Arg(2), r"axis 2 does not exist in \[2, 0\]"),
        (Arg(1), r"axis 1 of \[2, 0\] is empty"),
        (Topk(3, 0), r"axis 0 of \[2, 0\] has no 3 elements"),
        (Sort(-3), r"axis -3"),
        (Argsort(2), r"axis 2"),
    ],
    ids=str,
)
def test_shape_errors(op, message):
    with pytest.raises(ShapeError, match=message):
        op.infer(TensorType(F32, (2, 0)))


def test_parameters_are_checked():
    with pytest.raises(ValueError, match="k is 0"):
        Topk(0)
    with pytest.raises(ValueError, match="2"):
        Arg(0, 2)


def test_symbolic_extents():
    x = TensorType(F32, ("N", "C"))
    assert Arg(1).infer(x) == (TensorType(I32, ("N", 1)),)
    assert Topk(5, 1).infer(x) == (TensorType(F32, ("N", 5)), TensorType(I32, ("N", 5)))


def test_oldest_chip_has_numbers_only():
    x = TensorType(F32, (4,))
    for op, legal in ((Arg(0), False), (Arg(0, out_dtype=F32), True), (Argsort(out_dtype=F32), True), (Sort(), False)):
        status = check(op, Chip.BM1682, (x,), op.infer(x)).status
        assert status is (Status.LEGAL if legal else Status.ILLEGAL)
    assert check(Arg(0, out_dtype=F32), Chip.BM1684, (TensorType(I8, (4,)),), (x,)).status is Status.ILLEGAL


def test_locality():
    condition = Arg.locality.condition
    assert condition is not None
    x = TensorType(F32, (1, 2, 3))
    assert [condition(Arg(axis), (x,), (x,), Chip.BM1684) for axis in (0, 1, 2, -1, -2)] == [
        False,
        False,
        True,
        True,
        False,
    ]
