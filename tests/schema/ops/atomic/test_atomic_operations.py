"""Atomic operations: constants, expansion, patterns and ranges, which the contract's examples leave open.

Expected values are by hand, or plain integers; the rescaling ones are compared with the operators built on them.
"""

from fractions import Fraction

import numpy as np
import pytest

from tests.support.operators.op_cases import Case
from tpuconvert.schema.arithmetic.fixed_point import RoundingMode
from tpuconvert.schema.arithmetic.rescaling import to_binary32
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.graph.legality import Status, check
from tpuconvert.schema.ops.atomic import arithmetic as words
from tpuconvert.schema.ops.atomic import fixed_point as fixed
from tpuconvert.schema.ops.atomic.dequant import (
    TpuBdcFp32Dequant,
    TpuBdcFp32PcDequant,
    TpuBdcIntDequant,
    TpuBdcIntPcDequant,
)
from tpuconvert.schema.ops.atomic.requant import (
    TpuBdcFp32PcRequant,
    TpuBdcFp32Requant,
    TpuBdcIntPcRequant,
    TpuBdcIntRequant,
)
from tpuconvert.schema.ops.quantization.dequant_int_to_fp32 import DequantIntToFp32
from tpuconvert.schema.ops.quantization.requant_fp32_to_int import RequantFp32ToInt
from tpuconvert.schema.ops.quantization.requant_int32 import RequantInt32
from tpuconvert.schema.types import F32, I8, I16, I32, U8, U16, Chip, TensorType

HALF_UP, HALF_AWAY, EVEN = RoundingMode.HALF_UP, RoundingMode.HALF_AWAY_FROM_ZERO, RoundingMode.HALF_TO_EVEN
MODES = [mode for mode in RoundingMode if mode is not RoundingMode.UNKNOWN]
LOGICAL, ARITHMETIC = words.ShiftType.LOGICAL, words.ShiftType.ARITHMETIC


def line(dtype, *values):
    return np.array(values, dtype).reshape(1, 1, 1, -1)


def f32(*values):
    return line(np.float32, *values)


def i32(*values):
    return line(np.int32, *values)


def u32(*values):
    return line(np.uint32, *values)


def i16(*values):
    return line(np.int16, *values)


def u16(*values):
    return line(np.uint16, *values)


def i8(*values):
    return line(np.int8, *values)


def u8(*values):
    return line(np.uint8, *values)


NAN, ONE = float("nan"), 0x3F800000
COLUMN = np.array([1, 2], np.float32).reshape(1, 1, 2, 1)

CASES = [
    Case(words.BmSub(input0_is_const=True, input0_const=1.0), [None, f32(3, -1)], [f32(-2, 2)], "constant minus x"),
    Case(words.BmDiv(input1_is_const=True, input1_const=4.0), [f32(2, -1), None], [f32(0.5, -0.25)], "x / constant"),
    Case(words.BmMul(), [COLUMN * f32(1, 10), COLUMN], [COLUMN * COLUMN * f32(1, 10)], "one scale per row"),
    Case(words.BmAdd(input1_is_const=True, input1_const=0.1), [f32(0), None], [f32(0.1)], "a constant is binary32"),
    Case(words.BmMax(), [f32(NAN, 1), f32(1, 2)], [f32(NAN, 2)], "NaN wins"),
    Case(
        words.BmMac(input0_is_const=True, input0_const=2.0, input1_is_const=True, input1_const=3.0),
        [None, None, f32(1, -6)],
        [f32(7, 0)],
        "both factors are constants",
    ),
    Case(words.BmMac(), [f32(1 + 2**-12), f32(1 + 2**-12), f32(-1)], [f32(2**-11)], "2^-24 of the product is lost"),
    Case(words.BmAnd(), [f32(-1.5), f32(-1.0)], [f32(-1.0)], "patterns of floats"),
    Case(words.BmOr(input1_is_const=True, input1_const=1.0), [i32(1), None], [i32(ONE + 1)], "a constant's pattern"),
    Case(words.BmXor(), [u32(2**32 - 1), u32(1)], [u32(2**32 - 2)], "unsigned words"),
    Case(words.BmShift(shift_type=LOGICAL), [u32(2**31, 3), u32(63, 31)], [u32(2**30, 2**31)], "63 is -1"),
    Case(words.BmShift(shift_type=ARITHMETIC), [u32(2**31), u32(63)], [u32(2**30)], "unsigned words have no sign"),
    Case(words.BmShift(shift_type=ARITHMETIC), [i32(-(2**31)), i32(-31)], [i32(-1)], "the sign comes in"),
    Case(words.BmShift(shift_type=LOGICAL), [i32(-1), i32(32)], [i32(0)], "32 is -32: everything is gone"),
    Case(words.BmSg(select_value=2.0), [f32(NAN, 2, 1), f32(0, 1, 1)], [f32(0, 2, 0)], "NaN is not greater"),
    Case(words.BmSe(select_value=1.0), [i32(5, 6), i32(5, 5)], [i32(ONE, 0)], "the pattern of 1.0"),
    Case(words.BmSe(select_value=1.0), [f32(NAN), f32(NAN)], [f32(1)], "the same NaN"),
    Case(words.BmCpy(), [u32(2**32 - 1)], [u32(2**32 - 1)], "bit for bit"),
    Case(fixed.BmQuantizedAdd(input1_is_const=True), [i8(1, 127), i8(1)], [i8(2, 127)], "a constant has one element"),
    Case(fixed.BmQuantizedSub(input0_is_const=True), [u8(0), u8(1, 0)], [u8(0, 0)], "saturates at 0"),
    Case(fixed.BmQuantizedAdd(input1_w_is1=True), [u16(1, 2, 65535), u16(1)], [u16(2, 3, 65535)], "along W"),
    Case(fixed.BmQuantizedSub(out_dtype=I16), [u8(0), u8(255)], [i16(-255)], "a signed result"),
    Case(fixed.BmQuantizedMul(rshift_bit=8, out_dtype=U8), [u8(255, 16), u8(255, 8)], [u8(254, 1)], "0.5 goes up"),
    Case(fixed.BmQuantizedMac(lshift_bit=31), [i8(1), i8(1), i16(-1)], [i16(-32768)], "the largest left shift"),
    Case(fixed.BmQuantizedMac(out_dtype=U16), [i8(-1), u8(1), i16(0)], [u16(0)], "an unsigned result"),
    Case(fixed.BmQuantizedShift(shift_type=LOGICAL), [i16(-1, 1), i16(-15, 16)], [i16(1, 0)], "beyond the width"),
    Case(fixed.BmQuantizedShift(shift_type=ARITHMETIC, out_dtype=I16), [u16(65535), i16(0)], [i16(-1)], "a pattern"),
    Case(fixed.BmQuantizedMin(), [u8(200), u8(100)], [u8(100)], "unsigned"),
    Case(fixed.BmQuantizedXor(), [i16(-1), i16(1)], [i16(-2)], "signed"),
    Case(fixed.BmQuantizedCpy(), [u8(200)], [u8(200)], "as it is"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_by_hand(case):
    case.chips = (Chip.BM1684,)
    case.check()


NUMBERS = [0, 1, -1, 5, -5, 7, -7, 100, -100, 2**24 + 1, -(2**24) - 3, 2**31 - 1, -(2**31)]


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_integers_become_binary32_by_mode(mode):
    """Integers of 25 to 32 bits: near multiples of a power of two, computed with fractions."""
    numbers = [
        sign * (number + more) for number in (2**24, 2**28 - 16, 2**31 - 200) for more in range(50) for sign in (1, -1)
    ]
    found = to_binary32(np.array(numbers, np.int64).astype(np.int32), mode).astype(np.int64)
    for number, result in zip(numbers, found.tolist(), strict=True):
        step = 2 ** max(abs(number).bit_length() - 24, 0)
        assert result == round_fraction(Fraction(number, step), mode) * step, number


def round_fraction(value, mode):
    """Round a fraction to an integer."""
    below = value.numerator // value.denominator
    rest = value - below
    half = Fraction(1, 2)
    ups = {
        RoundingMode.DOWN: False,
        RoundingMode.UP: rest > 0,
        RoundingMode.TOWARDS_ZERO: value < 0 and rest > 0,
        RoundingMode.HALF_UP: rest >= half,
        RoundingMode.HALF_DOWN: rest > half,
        RoundingMode.HALF_AWAY_FROM_ZERO: rest > half or (rest == half and value > 0),
        RoundingMode.HALF_TO_EVEN: rest > half or (rest == half and below % 2 == 1),
    }
    return below + ups[mode]


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
@pytest.mark.parametrize("shift", [-64, -33, -7, -1, 0, 1, 31])
def test_integer_requantization_against_plain_integers(mode, shift):
    for multiplier in (3, -7, 2**31 - 1, -(2**31)):
        op = TpuBdcIntRequant(multiplier=multiplier, shift=shift, offset=-3, rounding_mode=mode, out_dtype=I16)
        wanted = [round_fraction(number * multiplier * Fraction(2) ** shift, mode) - 3 for number in NUMBERS]
        assert op.evaluate(i32(*NUMBERS))[0].ravel().tolist() == [min(max(w, -32768), 32767) for w in wanted]


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
@pytest.mark.parametrize("shift", [-64, -33, -7, -1, 0, 1, 31])
def test_integer_dequantization_against_plain_integers(mode, shift):
    numbers = [0, 1, 2, 100, 32768, 65535]
    for multiplier in (3, -7, 2**31 - 1, -(2**31)):
        op = TpuBdcIntDequant(offset=100, multiplier=multiplier, shift=shift, rounding_mode=mode)
        wanted = [round_fraction((number - 100) * multiplier * Fraction(2) ** shift, mode) for number in numbers]
        found = op.evaluate(u16(*numbers))[0].ravel().tolist()
        assert found == [min(max(w, -(2**31)), 2**31 - 1) for w in wanted]


def test_operators_of_the_set_are_these_with_fixed_modes():
    x = np.random.default_rng(1).integers(-(2**31), 2**31, (2, 3, 4, 5), dtype=np.int64).astype(np.int32)
    multipliers, shifts, offsets = (3, 2**31 - 1, -5), (-20, -50, -22), (1, -100, 7)
    vector = np.array([multipliers, shifts, offsets], np.int32).T.reshape(1, 3, 1, 3)
    atomic = TpuBdcIntPcRequant(rounding_mode=HALF_UP, out_dtype=I8).evaluate(x, vector)[0]
    of_the_set = RequantInt32(
        is_mul_shift_pc=True,
        multiplier_vec=multipliers,
        shift_vec=shifts,
        is_offset_pc=True,
        offset_vec=offsets,
        mode=2,
        out_dtype=I8,
    )
    np.testing.assert_array_equal(atomic, of_the_set.evaluate(x)[0])

    scale = np.array([[1e-7, 0.5], [2e-7, -3], [-1e-6, 1000]], np.float32).reshape(1, 3, 1, 2)
    atomic = TpuBdcFp32PcRequant(dst_rounding_mode=HALF_AWAY, src_rounding_mode=EVEN, out_dtype=I16).evaluate(x, scale)[
        0
    ]
    of_the_set = RequantFp32ToInt(
        is_scale_pc=True,
        scale_vec=tuple(scale[0, :, 0, 0].tolist()),
        is_offset_pc=True,
        offset_fp_vec=tuple(scale[0, :, 0, 1].tolist()),
        mode=1,
        out_dtype=I16,
    )
    np.testing.assert_array_equal(atomic, of_the_set.evaluate(x)[0])

    small = x.astype(np.int8)
    whole = DequantIntToFp32(scale_val=0.1, offset_val=-3).evaluate(small)[0]
    np.testing.assert_array_equal(
        TpuBdcFp32Dequant(offset=-3, scale=0.1, rounding_mode=RoundingMode.UP).evaluate(small)[0], whole
    )


def test_float_requantization_of_nan():
    op = TpuBdcFp32Requant(scale=float("inf"), offset=0.0, dst_rounding_mode=HALF_UP, src_rounding_mode=EVEN)
    assert op.evaluate(i32(0, 1, -1))[0].ravel().tolist() == [0, 127, -128]  # 0 * infinity is NaN, which gives 0


@pytest.mark.parametrize(
    ("op", "types", "message"),
    [
        (words.BmAdd(), (F32, None), "input1_is_const is False"),
        (words.BmAdd(input0_is_const=True), (F32, F32), "input0_is_const is True"),
        (words.BmAdd(input0_is_const=True, input1_is_const=True), (None, None), "two constants"),
        (words.BmCpy(), (None, None), "no tensor to copy"),
        (fixed.BmQuantizedAdd(input1_is_const=True), (I8, I8), "a constant has one element"),
        (fixed.BmQuantizedAdd(input1_w_is1=True), (I8, I8), "extent 3 of input1 must be 1"),
        (TpuBdcIntPcRequant(rounding_mode=EVEN), (I32, I32), r"must be \[1, 2, 1, 3\]"),
        (TpuBdcFp32PcDequant(rounding_mode=EVEN), (I8, I32, F32), r"must be \[1, 2, 1, 1\]"),
        (TpuBdcIntPcDequant(rounding_mode=EVEN), (I8, I32), r"must be \[1, 2, 1, 3\]"),
        (TpuBdcFp32Dequant(offset=-1, scale=1.0, rounding_mode=EVEN), (U8,), "with UINT8 the offset is UINT8"),
        (
            TpuBdcIntRequant(multiplier=1, shift=0, offset=40000, rounding_mode=EVEN),
            (I32,),
            "with INT8 the offset is INT16, found 40000",
        ),
    ],
)
def test_operands_that_do_not_fit(op, types, message):
    with pytest.raises(ShapeError, match=message):
        op.infer(*(None if dtype is None else TensorType(dtype, (1, 2, 3, 4)) for dtype in types))


def test_channels_are_not_expanded():
    with pytest.raises(ShapeError, match="extent 1 of input1"):
        words.BmAdd().infer(TensorType(F32, (1, 2, 1, 1)), TensorType(F32, (1, 1, 1, 1)))
    with pytest.raises(ShapeError, match="extent 0 of input1"):
        words.BmAdd().infer(TensorType(F32, (1, 2, 1, 1)), TensorType(F32, (2, 2, 1, 1)))
    with pytest.raises(ShapeError, match="output_old"):
        words.BmMac().infer(*(TensorType(F32, (1, 2, 1, size)) for size in (3, 3, 2)))
    with pytest.raises(ShapeError, match="1 to 65535"):
        words.BmCpy().infer(TensorType(F32, (1, 1, 1, 65536)))


@pytest.mark.parametrize(
    "make",
    [
        lambda: words.BmAdd(op=words.BmAtomicOp.BM_SUB),
        lambda: fixed.BmQuantizedMul(rshift_bit=32),
        lambda: fixed.BmQuantizedMac(lshift_bit=-1),
        lambda: TpuBdcIntRequant(multiplier=2**31, shift=0, offset=0, rounding_mode=EVEN),
        lambda: TpuBdcIntDequant(multiplier=1, shift=32, offset=0, rounding_mode=EVEN),
        lambda: TpuBdcFp32PcRequant(dst_rounding_mode=RoundingMode.UNKNOWN, src_rounding_mode=EVEN),
    ],
)
def test_parameters_out_of_range(make):
    with pytest.raises(ValueError, match=r"atomic|bdc"):
        make()


def test_only_the_chip_that_has_it():
    x = TensorType(F32, (1, 1, 1, 1))
    assert check(words.BmAdd(), Chip.BM1684, [x, x], [x]).status is Status.LEGAL
    assert check(words.BmAdd(), Chip.BM1686, [x, x], [x]).status is Status.ILLEGAL
