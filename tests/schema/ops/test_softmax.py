"""softmax, softmax_int and lut."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.operators import oracles
from tests.support.operators.op_cases import Case, f32, i8, u8
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.ops.quantization.lut import Lut
from tpuconvert.schema.ops.softmax import Softmax
from tpuconvert.schema.ops.softmax_int import SoftmaxInt
from tpuconvert.schema.types import F32, I8, U8, TensorType

BYTES = np.arange(256)
ONES = (1.0,) * 256

CASES = [
    Case(Softmax(1), [f32([5, 5])], [f32([0.5, 0.5])], "equal"),
    Case(Softmax(0), [f32([1000], [-1000])], [f32([1], [0])], "no overflow"),
    Case(Softmax(-1), [f32([0, math.log(3)])], [f32([0.25, 0.75])], "one to three"),
    Case(SoftmaxInt(ONES, 256.0, -128), [i8([1, 2])], [i8([0, 0])], "128 - 128"),
    Case(SoftmaxInt(ONES, 3.0, 0), [u8([7, 0])], [u8([2, 2])], "1.5 rounds away from zero"),
    Case(SoftmaxInt((1.0, *[0.0] * 255), 256.0, 0), [u8([7, 0])], [u8([255, 0])], "256 saturates"),
    Case(
        Lut(), [i8(0, 127, -128, -1), BYTES.astype(np.uint8)], [u8(0, 127, 128, 255)], "negative bytes as bit patterns"
    ),
    Case(Lut(), [u8([3], [255]), f32(*BYTES / 2)], [f32([1.5], [127.5])], "float entries"),
    Case(Lut(), [u8(16), BYTES.astype(np.int8).reshape(16, 16)], [i8(16)], "a table of any shape"),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_case(case):
    case.check()


@settings(max_examples=60)
@given(
    dtype=st.sampled_from([I8, U8]),
    seed=st.integers(0, 2**32),
    step=st.floats(0.001, 1),
    scale=st.floats(1, 1000),
    spatial=st.sampled_from([(), (2, 3)]),
)
def test_softmax_int(dtype, seed, step, scale, spatial):
    rng = np.random.default_rng(seed)
    x = oracles.random_integers(rng, dtype, (2, int(rng.integers(1, 300)), *spatial))
    table = tuple(float(np.float32(math.exp(-d * step))) for d in range(256))
    zero_point = int(rng.integers(dtype.min, dtype.max + 1))
    (found,) = SoftmaxInt(table, scale, zero_point).evaluate(x)
    place = (1, slice(None), *(extent - 1 for extent in spatial))
    column = [int(value) for value in x[place]]
    total = np.float32(0)
    for value in column:
        total = np.float32(total + np.float32(table[max(column) - value]))
    for value, result in zip(column, found[place], strict=True):
        share = np.float32(np.float32(table[max(column) - value]) / total)
        scaled = Fraction(float(np.float32(share * np.float32(scale))))
        assert int(result) == oracles.saturate(oracles.half_away(scaled) + zero_point, dtype)


def test_what_is_refused():
    x = TensorType(F32, (2, 3))
    with pytest.raises(ShapeError, match=r"axis 2 does not exist in \[2, 3\]"):
        Softmax(2).infer(x)
    with pytest.raises(ShapeError, match=r"\[4, 4\]"):
        Lut().infer(TensorType(I8, (2, 3)), TensorType(I8, (4, 4)))
    with pytest.raises(ShapeError, match=r"zero_point -1 .* UINT8\[2, 3\]"):
        SoftmaxInt(ONES, 1.0, -1).infer(TensorType(U8, (2, 3)))
    with pytest.raises(ShapeError, match="rank 2 or 4"):
        SoftmaxInt(ONES, 1.0, 0).infer(TensorType(U8, (2, 3, 4)))
    with pytest.raises(ValueError, match="256 entries, found 3"):
        SoftmaxInt((1.0, 0.5, 0.25), 1.0, 0)
    with pytest.raises(ValueError, match="scale must be positive"):
        SoftmaxInt(ONES, 0.0, 0)


def test_symbolic_extents_pass_through():
    assert Softmax(-1).infer(TensorType(F32, ("N", "C")))[0].shape == ("N", "C")
    assert Lut().infer(TensorType(I8, ("N", 3)), TensorType(F32, (256,)))[0] == TensorType(F32, ("N", 3))
