"""Rounding and saturation against Python's big integers and fractions."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.operators.exact_rounding import MODES, round_fraction
from tpuconvert.schema.arithmetic import fixed_point as fp
from tpuconvert.schema.arithmetic.fixed_point import RoundingMode
from tpuconvert.schema.types import DType

INT64 = st.integers(-(2**63), 2**63 - 1)


TABLE = """
x                   5 -5 6 -6 7 -7 10 -10 2 -2
HALF_TO_EVEN        1 -1 2 -2 2 -2 2 -2 0 0
HALF_AWAY_FROM_ZERO 1 -1 2 -2 2 -2 3 -3 1 -1
TOWARDS_ZERO        1 -1 1 -1 1 -1 2 -2 0 0
DOWN                1 -2 1 -2 1 -2 2 -3 0 -1
UP                  2 -1 2 -1 2 -1 3 -2 1 0
HALF_UP             1 -1 2 -1 2 -2 3 -2 1 0
HALF_DOWN           1 -1 1 -2 2 -2 2 -3 0 -1
"""


def test_the_table_of_the_operator_set():
    rows = {line.split()[0]: [int(word) for word in line.split()[1:]] for line in TABLE.strip().splitlines()}
    x = np.array(rows.pop("x"))
    assert len(rows) == 7
    for name, expected in rows.items():
        assert fp.round_shift(x, 2, RoundingMode[name]).tolist() == expected, name
        assert fp.round_float(x / 4, RoundingMode[name]).tolist() == expected, name


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_every_small_division(mode):
    x = np.arange(-600, 601)
    for shift in range(12):
        expected = [round_fraction(Fraction(int(value), 1 << shift), mode) for value in x]
        assert fp.round_shift(x, shift, mode).tolist() == expected, shift


EDGES = sorted(
    {sign * (2**power) + step for power in (0, 1, 30, 31, 32, 61, 62, 63) for sign in (-1, 1) for step in (-1, 0, 1)}
)
EDGES = [value for value in EDGES if -(2**63) <= value < 2**63]


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_edges_at_every_shift(mode):
    shifts = [*range(70), 100, 1000]
    expected = [[round_fraction(Fraction(value, 1 << shift), mode) for value in EDGES] for shift in shifts]
    x = np.array(EDGES, dtype=np.int64)
    assert fp.round_shift(x, np.array(shifts)[:, None], mode).tolist() == expected
    assert [fp.round_shift(x, shift, mode).tolist() for shift in shifts] == expected


@given(x=INT64, shift=st.integers(0, 80), mode=st.sampled_from(MODES))
def test_any_division(x, shift, mode):
    assert int(fp.round_shift(np.int64(x), shift, mode)) == round_fraction(Fraction(x, 1 << shift), mode)


@given(x=INT64, shift=st.integers(-3, 70))
def test_rrs_is_half_up_and_ignores_negative_shifts(x, shift):
    expected = round_fraction(Fraction(x, 1 << shift), RoundingMode.HALF_UP) if shift > 0 else x
    assert int(fp.rrs(np.int64(x), shift)) == expected


def test_negative_shifts_and_unknown_modes_are_refused():
    with pytest.raises(ValueError, match="left shift"):
        fp.shift_half_even(np.array([1]), -1)
    with pytest.raises(ValueError, match="UNKNOWN"):
        fp.round_shift(np.array([1]), 1, RoundingMode.UNKNOWN)
    with pytest.raises(ValueError, match="UNKNOWN"):
        fp.round_float(np.array([1.0]), RoundingMode.UNKNOWN)


@given(x=INT64, shift=st.integers(0, 31), offset=st.integers(-(2**31), 2**31 - 1))
def test_left_shift_saturates_as_exact_integers_do(x, shift, offset):
    shifted = fp.shift_left_exact(np.int64(x), shift)
    for dtype in (DType.INT32, DType.UINT32, DType.INT16, DType.UINT8):
        assert int(fp.saturate(shifted, dtype)) == min(max(x << shift, dtype.min), dtype.max)
    if shift:
        for dtype in (DType.INT16, DType.UINT16, DType.INT8, DType.UINT8):
            assert int(fp.saturate(shifted + offset, dtype)) == min(max((x << shift) + offset, dtype.min), dtype.max)


def test_left_shift_is_exact_below_two_to_the_32():
    x = np.array([2**32 - 1, -(2**32) + 1, 2**31, 1, 0, -1])
    for shift in (0, 1, 30, 31):
        assert fp.shift_left_exact(x, shift).tolist() == [number << shift for number in x.tolist()]
    extremes = np.array([2**63 - 1, -(2**63)])
    assert fp.shift_left_exact(extremes, 0).tolist() == extremes.tolist()
    large = fp.shift_left_exact(extremes, 1).tolist()
    assert large[0] >= 2**33 - 4 and large[1] <= -(2**33 - 4)


def test_left_shift_beyond_31_is_refused():
    with pytest.raises(ValueError, match="31"):
        fp.shift_left_exact(np.array([1]), 32)


@given(x=INT64)
def test_saturate_and_wrap(x):
    for dtype in (DType.INT32, DType.UINT32, DType.INT16, DType.UINT16, DType.INT8, DType.UINT8):
        limited = fp.saturate(np.int64(x), dtype)
        assert limited.dtype == dtype.numpy
        assert int(limited) == min(max(x, dtype.min), dtype.max)
        low = x % (1 << dtype.bits)
        assert int(fp.wrap(np.int64(x), dtype)) == (low if low <= dtype.max else low - (1 << dtype.bits))


@given(v=st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_rhaz_of_binary32(v):
    assert float(fp.rhaz(np.float32(v))) == round_fraction(Fraction(v), RoundingMode.HALF_AWAY_FROM_ZERO)


@given(v=st.floats(allow_nan=False, allow_infinity=False), mode=st.sampled_from(MODES))
def test_floats_in_every_mode(v, mode):
    assert float(fp.round_float(v, mode)) == round_fraction(Fraction(v), mode)


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_floats_next_to_ties(mode):
    ties = np.array([0.0, 0.5, 1.5, 2.5, 4194303.5, 2.0**51 + 0.5, 2.0**52, 2.0**53])
    near = np.concatenate([ties, np.nextafter(ties, 1e300), np.nextafter(ties, -1e300)])
    near = np.concatenate([near, -near])
    expected = [float(round_fraction(Fraction(float(v)), mode)) for v in near]
    assert fp.round_float(near, mode).tolist() == expected
    if mode is RoundingMode.HALF_AWAY_FROM_ZERO:
        assert fp.rhaz(near).tolist() == expected


def test_rhaz_i32_saturates_and_turns_nan_into_zero():
    v = np.array([np.nan, np.inf, -np.inf, 3e9, -3e9, 0.49999997, -0.5, 2147483520.0], dtype=np.float32)
    assert fp.rhaz_i32(v).tolist() == [0, 2**31 - 1, -(2**31), 2**31 - 1, -(2**31), 0, -1, 2147483520]
    assert fp.rhaz_i32(np.float64(2147483646.5)).tolist() == 2**31 - 1


@given(factor=st.floats(2.0**-30, 2.0**30, allow_subnormal=False))
def test_multiplier_and_shift_are_near(factor):
    multiplier, exponent = fp.multiplier_shift(factor)
    assert 2**30 <= multiplier < 2**31
    error = abs(Fraction(multiplier) * Fraction(2) ** (exponent - 31) - Fraction(factor))
    assert error <= Fraction(2) ** (exponent - 32)


def test_multiplier_shift_at_the_edges():
    assert fp.multiplier_shift(1.0) == (2**30, 1)
    assert fp.multiplier_shift(0.5) == (2**30, 0)
    assert fp.multiplier_shift(float(np.nextafter(1.0, 0.0))) == (2**30, 1)  # rounds to 2^31, so the exponent grows
    assert fp.multiplier_shift(2.0**-32) == (2**30, -31)
    assert fp.multiplier_shift(2.0**-33) == (0, 0)
    assert fp.multiplier_shift(0.0) == (0, 0)
    for wrong in (-1.0, math.inf, math.nan, 2.0**31):
        with pytest.raises(ValueError, match="rescale factor"):
            fp.multiplier_shift(wrong)


INT32 = st.integers(-(2**31), 2**31 - 1)


@given(x=INT32, multiplier=INT32, shift=st.integers(-64, 31))
def test_two_roundings(x, multiplier, shift):
    v = x << shift if shift > 0 else x
    v = round_fraction(Fraction(v * multiplier, 1 << 31), RoundingMode.HALF_UP)
    v = min(max(v, -(2**31)), 2**31 - 1)
    v = round_fraction(Fraction(v, 1 << max(-shift, 0)), RoundingMode.HALF_AWAY_FROM_ZERO)
    assert int(fp.rescale_two_roundings(np.array([x], np.int32), multiplier, shift)[0]) == v


@given(x=INT32, multiplier=INT32, shift=st.integers(-64, 31), mode=st.sampled_from(MODES))
def test_one_rounding(x, multiplier, shift, mode):
    exact = Fraction(x * multiplier) * Fraction(2) ** shift
    v = fp.rescale_one_rounding(np.array([x], np.int32), multiplier, shift, mode)[0]
    for dtype in (DType.INT16, DType.UINT8):
        assert int(fp.saturate(v, dtype)) == min(max(round_fraction(exact, mode), dtype.min), dtype.max)


def test_ties_of_the_smallest_numbers_and_the_largest_product():
    assert fp.rescale_two_roundings(np.array([-2, 2, -6, 6]), 2**30, -1).tolist() == [-1, 1, -2, 2]
    lowest = np.array([-(2**31)], np.int32)
    for shift, expected in ((-62, 1), (-63, 1), (-64, 0)):
        assert fp.rescale_one_rounding(lowest, -(2**31), shift).tolist() == [expected]


def test_shifts_per_channel():
    x = np.array([[-7984, 7984], [5, -5]], dtype=np.int32)
    assert fp.rescale_two_roundings(x, np.array([[1583594044], [2**30]]), np.array([[-9], [1]])).tolist() == [
        [-12, 12],
        [5, -5],
    ]
    assert fp.rescale_one_rounding(x, np.array([[1583594044], [3]]), np.array([[-40], [2]])).tolist() == [
        [-11, 11],
        [60, -60],
    ]
