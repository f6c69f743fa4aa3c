"""Reshape, squeeze, expand_dims, permute, shape_fetch."""

import numpy as np
import pytest

from tests.support.operators.op_cases import Case, f32, i32
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.ops.generation import ShapeFetch
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.shape_change import ExpandDims, Reshape, ReshapeV2, Squeeze, reshape_params
from tpuconvert.schema.types import F32, I32, TensorType

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)

CASES = [
    Case(Reshape((4, 6)), [X], [X.reshape(4, 6)], "row-major order stays"),
    Case(Reshape((0, -1)), [X], [X.reshape(2, 12)], "0 copies, -1 is the rest"),
    Case(Reshape((-1, 0)), [X], [X.reshape(8, 3)], "0 copies the extent at its position, which is 3"),
    Case(Reshape((-1,)), [f32()], [f32()], "no elements"),
    Case(Reshape((3, -1)), [f32()], [f32().reshape(3, 0)], "no elements in three rows"),
    Case(ReshapeV2(), [X, i32(0, -1)], [X.reshape(2, 12)], "target as a tensor"),
    Case(Squeeze(), [f32([[1.0]])], [f32(1)], "removing every axis leaves [1]"),
    Case(Squeeze((0, -1)), [X[:1, :, :1]], [X[0, :, 0]], "negative axes count from the end"),
    Case(Squeeze(), [X[:1, :, :1]], [X[0, :, 0]], "an empty list removes all of extent 1"),
    Case(Squeeze(), [X], [X], "nothing to remove"),
    Case(ExpandDims(0), [X], [X[None]], "in front"),
    Case(ExpandDims(-1), [X], [X[..., None]], "after the last axis"),
    Case(ExpandDims(3, 2), [X], [X[..., None, None]], "two after the last axis"),
    Case(ExpandDims(-2), [X], [X[:, :, None]], "before the last"),
    Case(ExpandDims(1, 0), [X], [X], "none at all"),
    Case(
        Permute((2, 0, 1)),
        [X],
        [np.array([[[X[j, k, i] for k in range(3)] for j in range(2)] for i in range(4)])],
        "by hand",
    ),
    Case(Permute((0,)), [f32()], [f32()], "no elements"),
    Case(ShapeFetch(), [X], [i32(2)], "defaults fetch the first"),
    Case(ShapeFetch(0, 3, 2), [X], [i32(2, 4)], "every second"),
    Case(ShapeFetch(-2, -1), [X], [i32(3)], "negative axes"),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_case(case):
    case.check()


@pytest.mark.parametrize(
    ("shape", "target", "result"),
    [
        (("N", 3, 4), (0, -1), ("N", 12)),
        (("N", 3, "H", "W"), (0, -1), ("N", "3*H*W")),
        (("N", "3*H*W"), (0, 3, -1), ("N", 3, "H*W")),
        (("N", 12), (-1, 12), ("N", 12)),
        (("N", 12), (-1, 6), ("2*N", 6)),
        (("N", 3), (-1, 2), ("3*N/2", 2)),
        (("H+2", 4), (-1,), ("4*(H+2)",)),
        (("4*(H+2)",), (-1, 4), ("H+2", 4)),
        (("N", 12), (3, 4), (3, 4)),
        (("batch-size", 2), (2, -1), (2, "batch-size")),
    ],
)
def test_symbolic_extents(shape, target, result):
    assert Reshape(target).infer(TensorType(F32, shape)) == (TensorType(F32, result),)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ((5, 5), r"\[2, 3, 4\] does not fit into \[5, 5\]"),
        ((5, -1), r"\[2, 3, 4\] does not fit into \[5, -1\]"),
        ((-1, -1), "one of them may be -1"),
        ((-2, 12), "may be -1"),
        ((2, 3, 4, 0), "0 copies an extent that does not exist"),
        ((), "1 to 8 extents"),
        ((1,) * 9, "1 to 8 extents"),
    ],
)
def test_reshape_that_does_not_fit(target, message):
    with pytest.raises(ShapeError, match=message):
        Reshape(target).infer(TensorType(F32, (2, 3, 4)))


def test_reshape_v2_has_extents_of_its_own():
    (y,) = ReshapeV2().infer(TensorType(F32, (2, 3)), TensorType(I32, (3,)))
    assert y.rank == 3
    assert len(set(y.shape)) == 3
    with pytest.raises(ShapeError, match=r"shape_info \[N\]"):
        ReshapeV2().infer(TensorType(F32, (2, 3)), TensorType(I32, ("N",)))
    with pytest.raises(ShapeError, match=r"\[2, 3, 4\] does not fit into \[5, 5\]"):
        ReshapeV2().evaluate(X, i32(5, 5))


@pytest.mark.parametrize(
    ("op", "message"),
    [
        (Squeeze((0,)), r"\[2, 3, 4\]"),
        (Squeeze((3,)), r"axis 3 does not exist in \[2, 3, 4\]"),
        (Squeeze((0, -3)), "twice"),
        (ExpandDims(4), r"at 4 into \[2, 3, 4\]"),
        (ExpandDims(-5), r"at -5 into \[2, 3, 4\]"),
        (ExpandDims(0, 6), r"6 axes"),
        (Permute((1, 0)), r"\[2, 3, 4\]"),
        (ShapeFetch(0, 4), r"\[2, 3, 4\]"),
        (ShapeFetch(2, 2), r"\[2, 3, 4\]"),
    ],
    ids=str,
)
def test_shape_errors(op, message):
    with pytest.raises(ShapeError, match=message):
        op.infer(TensorType(F32, (2, 3, 4)))


def test_squeeze_of_a_symbolic_axis():
    assert Squeeze().infer(TensorType(F32, ("N", 1))) == (TensorType(F32, ("N",)),)
    assert Squeeze((0,)).infer(TensorType(F32, ("N", 1))) == (TensorType(F32, (1,)),)  # checked for each value of N
    with pytest.raises(ShapeError, match=r"\[2, 1\]"):
        Squeeze((0,)).infer(TensorType(F32, (2, 1)))


@pytest.mark.parametrize("make", [lambda: Permute((0, 2)), lambda: Permute((0, 0)), lambda: ExpandDims(0, -1)])
def test_parameters_are_checked(make):
    with pytest.raises(ValueError, match=r"permutation|ndims"):
        make()


def test_permute_of_symbolic_extents():
    assert Permute((0, 2, 3, 1)).infer(TensorType(F32, ("N", 3, "H", "W")))[0].shape == ("N", "H", "W", 3)


@pytest.mark.parametrize(
    ("shape", "wanted", "params"),
    [
        ((2, 3), (3, 2), (3, 2)),
        (("N", 4), ("N", 2, 2), (0, 2, 2)),
        ((1, "N", 4), ("N", 4), (-1, 4)),
        (("N", 4, 6), ("4*N", 6), (-1, 6)),
        (("H", "W"), ("H", 1, "W"), (0, 1, -1)),
        ((1, "H", "W"), ("H", "W"), None),
        (("N", 4), ("M", 4), None),
        (("N", 4), ("N", 3), None),
        ((0, 4), (4, 0), None),
    ],
)
def test_parameters_of_a_reshape_to_open_extents(shape, wanted, params):
    assert reshape_params(shape, wanted) == params
    if params is not None:
        assert Reshape(params).result_shape(shape) == wanted


@pytest.mark.parametrize(
    ("shape", "target", "expected"),
    [((1, 2, 0, 5), (0, 2, 0, 1, -1), (1, 2, 0, 1, 5)), ((3, 0), (0, -1), (3, 0)), ((0, 6), (0, 2, -1), (0, 2, 3))],
)
def test_an_extent_of_an_empty_tensor_is_inferred_from_those_that_are_not_copied(shape, target, expected):
    (found,) = Reshape(target).infer(TensorType(F32, shape))
    assert found.shape == expected
