"""matrix_mul in floating point; matrix_mul_v2 and fc_int against exact integers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.operators import oracles
from tests.support.operators.op_cases import Case, f16, f32, i8, i32, u8
from tpuconvert.schema.arithmetic.integer_product import integer_matmul
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.ops.matmul.fc_int import FcInt
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul
from tpuconvert.schema.ops.matmul.matrix_mul_v2 import MatrixMulV2
from tpuconvert.schema.types import F32, I8, I32, U8, U32, DType, TensorType

CASES = [
    Case(MatrixMul(), [f32([1e8, 1, -1e8]), f32([1], [1], [1])], [f32([1])], "binary32 would lose the 1"),
    Case(MatrixMul(), [f32([1, 2]), f32([3], [4]), f32([0.5])], [f32([11.5])], "by hand"),
    Case(MatrixMul(), [f16([2048, 1, 1]), f16([1], [1], [1])], [f16([2050])], "binary16 rounds once"),
    Case(
        MatrixMulV2(is_left_trans=True, lzp_val=1, is_rzp_const=False, rzp_vec=(0, 1)),
        [i8([1, 3], [2, 4]), i8([1, 2], [3, 4])],
        [i32([0 * 1 + 1 * 3, 0 * 1 + 1 * 3], [2 * 1 + 3 * 3, 2 * 1 + 3 * 3])],
        "by hand: left is [[1, 2], [3, 4]] minus 1",
    ),
    Case(FcInt(is_izp_const=False, izp_vec=(0, 2)), [u8([[1], [3]], [[2], [4]]), i8([5])],
         [i32([[5], [5]], [[10], [10]])], "one zero point per row, the same in every batch"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_case(case):
    case.check()


@settings(max_examples=80)
@given(
    seed=st.integers(0, 2**32),
    dtypes=st.tuples(st.sampled_from([I8, U8]), st.sampled_from([I8, U8]), st.sampled_from([I32, U32])),
    transposed=st.tuples(st.booleans(), st.booleans()),
    vectors=st.tuples(st.booleans(), st.booleans()),
    batch=st.sampled_from([(), (2,), (2, 3)]),
    extents=st.tuples(*[st.integers(1, 5)] * 3),
    has_bias=st.booleans(),
    extreme=st.booleans(),
)
def test_matrix_mul_v2(seed, dtypes, transposed, vectors, batch, extents, has_bias, extreme):
    rng = np.random.default_rng(seed)
    (left_dtype, right_dtype, out), (m, k, n) = dtypes, extents
    left = oracles.random_integers(rng, left_dtype, (*batch, m, k), extreme)
    right = oracles.random_integers(rng, right_dtype, (*batch, k, n), extreme)
    lzp = oracles.random_integers(rng, left_dtype, m).tolist() if vectors[0] else [left_dtype.max] * m
    rzp = oracles.random_integers(rng, right_dtype, n).tolist() if vectors[1] else [right_dtype.min] * n
    bias = oracles.random_integers(rng, out, n, extreme) if has_bias else None
    op = MatrixMulV2(has_bias, *transposed, not vectors[0], lzp[0], tuple(lzp), not vectors[1], rzp[0], tuple(rzp), out)
    given_left = np.ascontiguousarray(left.swapaxes(-1, -2)) if transposed[0] else left
    given_right = np.ascontiguousarray(right.swapaxes(-1, -2)) if transposed[1] else right
    (found,) = op.evaluate(given_left, given_right, bias)
    operands = [None if a is None else TensorType(DType.of(a.dtype), a.shape) for a in (given_left, given_right, bias)]
    assert op.infer(*operands)[0] == TensorType(out, (*batch, m, n))
    assert found.shape == (*batch, m, n)
    for index in np.ndindex(found.shape):
        *lead, i, j = index
        total = 0 if bias is None else int(bias[j])
        for depth in range(k):
            total += (int(left[(*lead, i, depth)]) - lzp[i]) * (int(right[(*lead, depth, j)]) - rzp[j])
        assert int(found[index]) == oracles.saturate(total, out), index
    if not batch:
        check_fc_int(op, left, right, bias, found)


def check_fc_int(op, left, right, bias, expected):
    """``fc_int`` gives the same results on a single batch."""
    fc = FcInt(
        op.has_bias, False, op.is_lzp_const, op.lzp_val, op.lzp_vec, op.is_rzp_const, op.rzp_val, op.rzp_vec,
        op.out_dtype,
    )  # fmt: skip
    np.testing.assert_array_equal(fc.evaluate(left[None], right, bias)[0], expected[None])


@pytest.mark.parametrize("depth", [258, 259, 514, 1024, 1025, 40000, 140000])
def test_extreme_sums_stay_exact(depth):
    left, right = np.full((1, depth), 255, np.uint8), np.full((depth, 1), -128, np.int8)
    left[0, 0] = 254
    expected = -255 * 128 * depth + 128
    assert integer_matmul(left, right).item() == expected
    assert integer_matmul(left, right, right_zero=127).item() == 255 * (-255) * depth + 255
    result = MatrixMulV2().evaluate(left, right)[0].item()
    assert result == max(expected, -(2**31))


def test_symbolic_extents_pass_through():
    left, right = TensorType(F32, ("M", 3)), TensorType(F32, (3, "N"))
    assert MatrixMul().infer(left, right)[0].shape == ("M", "N")
    batched = MatrixMulV2(is_right_trans=True)
    types = TensorType(I8, ("B", 2, "K")), TensorType(I8, (4, 5, "K"))
    assert batched.infer(*types)[0].shape == (4, 2, 5)


@pytest.mark.parametrize(
    ("op", "shapes", "message"),
    [
        (MatrixMul(), [(2, 3), (4, 5)], "must be 3, not 4"),
        (MatrixMul(), [(2, 3), (3, 5), (1, 4)], r"the bias must be \[1, 5\]"),
        (MatrixMul(), [(1, 2, 3), (3, 5)], "matrix_left must have rank 2"),
        (MatrixMulV2(), [(2, 3, 4), (3, 4, 5)], "leading extents"),
        (MatrixMulV2(), [(2, 3, 4), (4, 5)], "leading extents"),
        (MatrixMulV2(has_bias=True), [(3, 4), (4, 5)], "has_bias"),
        (MatrixMulV2(is_lzp_const=False, lzp_vec=(1,)), [(3, 4), (4, 5)], "1 values in lzp_vec for 3 rows"),
        (FcInt(weight_trans=True), [(1, 2, 3), (3, 5)], "must be 3, not 5"),
    ],
    ids=str,
)
def test_types_that_do_not_fit(op, shapes, message):
    with pytest.raises(ShapeError, match=message) as caught:
        op.infer(*(TensorType(I8, shape) for shape in shapes))
    assert str(list(shapes[0])) in str(caught.value)
