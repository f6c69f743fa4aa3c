"""Requantization operators and fixed-point shift operators, with values computed by hand and by definition."""

import dataclasses
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.operators import oracles
from tests.support.operators.op_cases import Case, f32, i8, i16, i32, u8, u16
from tpuconvert.schema.arithmetic import fixed_point
from tpuconvert.schema.arithmetic.fixed_point import RoundingMode
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.ops.quantization import per_channel
from tpuconvert.schema.ops.quantization.dequant_int_to_fp32 import DequantIntToFp32
from tpuconvert.schema.ops.quantization.requant_fp32_to_int import RequantFp32ToInt
from tpuconvert.schema.ops.quantization.requant_int32 import RequantInt32, RequantMode
from tpuconvert.schema.ops.shifts.arithmetic_shift import ArithmeticPcShift, ArithmeticShift
from tpuconvert.schema.ops.shifts.shift_arithmetic import (
    AddShift,
    AddsShift,
    MulShift,
    MulsShift,
    RsubsShift,
    SubShift,
    SubsShift,
)
from tpuconvert.schema.types import F32, I8, I16, I32, U8, U16, U32, DType, Scalar, TensorType

NAN, INF = np.nan, np.inf
HALF = 1 << 30

CASES = [
    Case(RequantInt32(mode=0, multiplier_val=HALF, shift_val=0), [i32(3, -3, 254)], [i8(2, -1, 127)], "half up"),
    Case(
        RequantInt32(mode=0, multiplier_val=HALF, shift_val=-1, out_dtype=I16),
        [i32(10, -10, 9, -9, 11)],
        [i16(3, -3, 3, -2, 3)],
        "10/2/2 = 2.5 and -2.5 round away from zero; 9/2 = 4.5 up to 5, then 2.5 to 3; -4.5 up to -4, then -2",
    ),
    Case(RequantInt32(mode=2, shift_val=-1), [i32(5, -5)], [i8(3, -2)], "one rounding, half up"),
    Case(
        RequantInt32(mode=2, shift_val=-1, round_mode=RoundingMode.HALF_AWAY_FROM_ZERO), [i32(5, -5)], [i8(3, -3)],
        "one rounding, half away",
    ),
    Case(
        RequantInt32(mode=0, multiplier_val=-(2**31), out_dtype=I32), [i32(-(2**31))], [i32(2**31 - 1)],
        "the only product that does not fit",
    ),
    Case(RequantInt32(mode=0, multiplier_val=HALF, shift_val=31, out_dtype=I32), [i32(1, 2, -2, -3)],
         [i32(HALF, 2**31 - 1, -(2**31), -(2**31))], "the largest left shift saturates"),
    Case(RequantInt32(mode=0, multiplier_val=2**31 - 1, shift_val=-64), [i32(2**31 - 1)], [i8(0)], "right"),
    Case(RequantInt32(mode=2, multiplier_val=2**31 - 1, shift_val=31, offset_val=-(2**31), out_dtype=U16),
         [i32(0, 1, -1, 2**31 - 1)], [u16(0, 65535, 0, 65535)], "an offset cannot bring back what is far outside"),
    Case(RequantInt32(mode=2, shift_val=-8, offset_val=128, out_dtype=U8), [i32(256, -256 * 200)], [u8(129, 0)],
         "the offset is added, then it saturates"),
    Case(RequantFp32ToInt(scale_val=2.0), [f32(0.25, -0.25, NAN, INF, -INF)], [i8(1, -1, 0, 127, -128)], "half away"),
    Case(RequantFp32ToInt(offset_val=-(2**31), out_dtype=U8), [f32(2**31, 3e9)], [u8(0, 0)], "saturates first"),
    Case(RequantFp32ToInt(scale_val=0.5, offset_fp_val=0.25, mode=1), [i32(1, -2, 2**31 - 1)], [i8(1, -1, 127)],
         "0.75 and -0.75"),
    Case(RequantFp32ToInt(scale_val=1 / 3), [f32(1.5)], [i8(1)], "f32(1/3) is above a third: 0.50000001"),
    Case(DequantIntToFp32(scale_val=0.1, offset_val=-(2**31)), [i8(0, 1)], [f32(2**31, 2**31) * np.float32(0.1)],
         "the difference is rounded to binary32"),
    Case(MulShift(shift=1), [i8(5, -5, 3, -3), i8(1, 1, 1, 1)], [i8(3, -2, 2, -1)], "half up"),
    Case(MulShift(shift=0, out_dtype=I16), [i16(-32768), i8(-128)], [i16(32767)], "saturates"),
    Case(AddShift(shift=1), [u8(255, 1), i8(-128, 0)], [u8(64, 1)], "127/2 and 1/2"),
    Case(SubShift(shift=1), [u8(0, 1), u8(1, 0)], [i8(0, 1)], "-1/2 and 1/2; the result is signed without out_dtype"),
    Case(SubShift(shift=31), [u16(0, 65535), u16(65535, 0)], [i16(0, 0)], "the largest shift"),
    Case(MulsShift(Scalar(I8, -3), 1), [i8(1, -1)], [i8(-1, 2)], "-3/2 and 3/2"),
    Case(AddsShift(Scalar(U16, 65535), 1, I16), [u16(65535)], [i16(32767)], "65535"),
    Case(SubsShift(Scalar(U8, 200), 0), [u8(0)], [i8(-128)], "-200 saturates"),
    Case(RsubsShift(Scalar(U8, 3), 1), [u8(2, 4)], [i8(1, 0)], "1/2 and -1/2"),
    Case(ArithmeticShift(31, RoundingMode.DOWN, I32), [i32(1, -1, -2, 0)], [i32(2**31 - 1, -(2**31), -(2**31), 0)],
         "left"),
    Case(ArithmeticShift(-64, RoundingMode.UP), [i32(1, -1)], [i32(1, 0)], "right, beyond the width"),
    Case(ArithmeticShift(-64, RoundingMode.DOWN, I8), [i32(1, -1)], [i8(0, -1)], "right, beyond the width"),
    Case(
        ArithmeticPcShift(RoundingMode.HALF_TO_EVEN),
        [i32([[3, 5], [1, -1], [0, 1]]), i32(-1, 100, 100)],
        [i32([[2, 2], [2**31 - 1, -(2**31)], [0, 2**31 - 1]])],
        "amounts beyond the width on both sides",
    ),
    Case(ArithmeticPcShift(RoundingMode.DOWN, shift_axis=0), [i8([4], [4]), i8(1, -1)], [i8([8], [2])], "another axis"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_case(case):
    case.check()


INT32S = st.integers(-(2**31), 2**31 - 1)


@settings(max_examples=300)
@given(
    x=st.lists(INT32S, min_size=2, max_size=2),
    multipliers=st.lists(INT32S, min_size=2, max_size=2),
    shifts=st.lists(st.integers(-64, 31), min_size=2, max_size=2),
    offsets=st.lists(st.one_of(st.integers(-200, 200), INT32S), min_size=2, max_size=2),
    mode=st.sampled_from(RequantMode),
    out=st.sampled_from([I8, U8, I16, U16, I32]),
    per_channel_shift=st.booleans(),
    per_channel_offset=st.booleans(),
)
def test_requant_int32(x, multipliers, shifts, offsets, mode, out, per_channel_shift, per_channel_offset):
    if mode is RequantMode.TFLITE:
        shifts = [min(shift, 0) for shift in shifts]
    if mode is RequantMode.MULTIPLIER_SHIFT and out is I32:
        out = I16
    op = RequantInt32(
        is_mul_shift_pc=per_channel_shift, multiplier_val=multipliers[0], shift_val=shifts[0],
        multiplier_vec=tuple(multipliers), shift_vec=tuple(shifts), is_offset_pc=per_channel_offset,
        offset_val=offsets[0], offset_vec=tuple(offsets), mode=mode, out_dtype=out,
    )  # fmt: skip
    (found,) = op.evaluate(np.array(x, np.int32).reshape(1, 2, 1, 1))
    for channel, value in enumerate(x):
        m, s = (multipliers[channel], shifts[channel]) if per_channel_shift else (multipliers[0], shifts[0])
        offset = offsets[channel] if per_channel_offset else offsets[0]
        if mode is RequantMode.MULTIPLIER_SHIFT:
            v = oracles.half_up(Fraction(value * m) * Fraction(2) ** s)
        else:
            v = value << max(s, 0)
            v = oracles.saturate(oracles.half_up(Fraction(v * m, 1 << 31)), I32)
            v = oracles.half_away(Fraction(v, 1 << max(-s, 0)))
        assert int(found[0, channel, 0, 0]) == oracles.saturate(v + offset, out)


@pytest.mark.parametrize("shape", [(100_000,), (3, 5, 70, 90), (70_000, 2), (2, 3, 40_000), (0, 3), (1, 40_000)])
def test_blocks_do_not_change_anything(shape, monkeypatch):
    rng = np.random.default_rng(4)
    x = rng.integers(-(2**31), 2**31, shape).astype(np.int32)
    op = RequantInt32(mode=0, multiplier_val=1518500250, shift_val=-22)
    if len(shape) > 1:
        op = dataclasses.replace(
            op, is_mul_shift_pc=True, multiplier_vec=tuple(rng.integers(HALF, 2 * HALF, shape[1]).tolist()),
            shift_vec=tuple(rng.integers(-25, -20, shape[1]).tolist()), is_offset_pc=True,
            offset_vec=tuple(rng.integers(-9, 9, shape[1]).tolist()),
        )  # fmt: skip
    (found,) = op.evaluate(x)
    monkeypatch.setattr(per_channel, "_BLOCK", 1 << 40)
    np.testing.assert_array_equal(found, op.evaluate(x)[0])


@settings(max_examples=200)
@given(
    x=st.floats(width=32, allow_nan=False, allow_infinity=False),
    scale=st.floats(-1e6, 1e6, width=32),
    offset=st.integers(-300, 300),
)
def test_requant_fp32_to_int(x, scale, offset):
    (found,) = RequantFp32ToInt(scale_val=scale, offset_val=offset).evaluate(np.array([x], np.float32))
    with np.errstate(over="ignore"):
        product = float(np.float32(x) * np.float32(scale))
    assert int(found[0]) == oracles.saturate(oracles.nearest_int32(product) + offset, I8)


@settings(max_examples=200)
@given(
    data=st.sampled_from([(a, b) for a in (I8, U8, I16, U16) for b in (I8, U8, I16, U16)]),
    out=st.sampled_from([I8, U8, I16, U16]),
    shift=st.integers(0, 31),
    seed=st.integers(0, 2**32),
)
def test_shift_arithmetic(data, out, shift, seed):
    rng = np.random.default_rng(seed)
    a, b = (oracles.random_integers(rng, dtype, 5, extreme=bool(seed % 2)) for dtype in data)
    for definition, combine in (
        (MulShift, lambda p, q: p * q),
        (AddShift, lambda p, q: p + q),
        (SubShift, lambda p, q: p - q),
    ):
        expected = [
            oracles.saturate(oracles.rrs(combine(int(p), int(q)), shift), out) for p, q in zip(a, b, strict=True)
        ]
        assert definition(shift, out).evaluate(a, b)[0].tolist() == expected
    scalar = Scalar(data[1], int(b[0]))
    for definition, combine in (
        (MulsShift, lambda p, q: p * q),
        (AddsShift, lambda p, q: p + q),
        (SubsShift, lambda p, q: p - q),
        (RsubsShift, lambda p, q: q - p),
    ):
        expected = [oracles.saturate(oracles.rrs(combine(int(p), int(b[0])), shift), out) for p in a]
        assert definition(scalar, shift, out).evaluate(a)[0].tolist() == expected


@settings(max_examples=200)
@given(
    dtype=st.sampled_from([I32, U32, I16, U16, I8, U8]),
    out=st.sampled_from([I32, U32, I16, U16, I8, U8]),
    mode=st.sampled_from([mode for mode in RoundingMode if mode is not RoundingMode.UNKNOWN]),
    shift=st.integers(-64, 31),
    seed=st.integers(0, 2**32),
)
def test_arithmetic_shift(dtype, out, mode, shift, seed):
    x = oracles.random_integers(np.random.default_rng(seed), dtype, 4, extreme=bool(seed % 2))
    exact = [int(v) << shift if shift > 0 else int(fixed_point.round_shift(v, -shift, mode)) for v in x]
    expected = [oracles.saturate(value, out) for value in exact]
    assert ArithmeticShift(shift, mode, out).evaluate(x)[0].tolist() == expected
    amounts = np.full(4, shift, np.int8)
    assert ArithmeticPcShift(mode, 1, out).evaluate(x[None], amounts)[0].tolist() == [expected]


def test_types():
    x = TensorType(I32, ("N", "C", 4))
    assert RequantInt32(mode=2).infer(x)[0] == TensorType(I8, x.shape)
    assert RequantInt32(mode=2, is_offset_pc=True, offset_vec=(1, 2)).infer(x)[0].shape == x.shape
    assert DequantIntToFp32().infer(TensorType(U8, (2,)))[0] == TensorType(F32, (2,))
    assert ArithmeticShift(1, RoundingMode.UP).infer(x)[0] == x
    assert SubShift(1).infer(TensorType(U16, (2,)), TensorType(U16, (2,)))[0].dtype is I16
    assert MulsShift(Scalar(I8, 1), 1).infer(TensorType(U8, (2,)))[0].dtype is U8


@pytest.mark.parametrize(
    ("op", "types", "message"),
    [
        (RequantInt32(mode=2, is_mul_shift_pc=True, multiplier_vec=(1,), shift_vec=(1,)), [(4,)], "need an axis 1"),
        (RequantInt32(mode=2, is_mul_shift_pc=True, multiplier_vec=(1,), shift_vec=(1,)), [(1, 2)], "1 values"),
        (RequantFp32ToInt(is_offset_pc=True, offset_vec=(1,)), [(1, 2)], "offset_vec"),
        (RequantFp32ToInt(is_offset_pc=True, offset_fp_vec=(1.0,), mode=1), [(1, 2)], "offset_fp_vec"),
        (DequantIntToFp32(is_scale_pc=True, scale_vec=(1.0,)), [(1, 2)], "scale_vec"),
        (MulShift(1), [(2, 1), (1, 2)], "equal shapes"),
        (ArithmeticPcShift(RoundingMode.UP), [(1, 2), (3,)], "one amount per index"),
        (ArithmeticPcShift(RoundingMode.UP), [(2,), (2,)], "axis 1 does not exist"),
    ],
    ids=str,
)
def test_types_that_do_not_fit(op, types, message):
    with pytest.raises(ShapeError, match=message) as caught:
        op.infer(*(TensorType(I8, shape) for shape in types))
    assert "[" in str(caught.value)


@pytest.mark.parametrize(
    ("definition", "parameters"),
    [
        (RequantInt32, {"mode": 1, "shift_val": 1}),
        (RequantInt32, {"mode": 1, "shift_vec": (0, 1)}),
        (RequantInt32, {"mode": 0, "shift_val": 32}),
        (RequantInt32, {"mode": 2, "shift_val": -65}),
        (RequantInt32, {"mode": 2, "multiplier_val": 2**31}),
        (RequantInt32, {"mode": 2, "offset_vec": (-(2**31) - 1,)}),
        (RequantInt32, {"mode": 3}),
        (RequantInt32, {"mode": 2, "round_mode": RoundingMode.UNKNOWN}),
        (RequantFp32ToInt, {"offset_val": 2**31}),
        (RequantFp32ToInt, {"mode": 2}),
        (MulShift, {"shift": 32}),
        (MulShift, {"shift": -1}),
        (ArithmeticShift, {"shift": 32, "rounding_mode": RoundingMode.UP}),
        (ArithmeticShift, {"shift": 1, "rounding_mode": RoundingMode.ROUNDING_UNKNOWN}),
    ],
    ids=str,
)
def test_illegal_parameters(definition, parameters):
    with pytest.raises(ValueError, match=r"must be in|INT32|not a valid|reserved"):
        definition(**parameters)


def test_result_type_of_requantization_is_stated():
    assert DType.of(RequantInt32(mode=2, out_dtype=U16).evaluate(np.zeros(3, np.int32))[0].dtype) is U16
