"""Conversions between integers and float32 in every rounding mode, against exact fractions."""

import math
from fractions import Fraction

import numpy as np
import pytest

from tests.support.operators.exact_rounding import MODES, round_fraction
from tpuconvert.schema.arithmetic.fixed_point import RoundingMode
from tpuconvert.schema.arithmetic.rescaling import dequantize, integers_of, requantize, to_binary32
from tpuconvert.schema.types import I8, I32, U8

every_mode = pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)


@every_mode
def test_integers_become_float32(mode: RoundingMode) -> None:
    numbers = [0, 1, -1, 2**24 - 1, 2**24, 2**24 + 1, 2**24 + 2, 2**24 + 3, 2**25 + 2, 2**31 - 1, 3 * 2**24 + 5]
    x = np.array([*numbers, *(-number for number in numbers), -(2**31)], np.int32)
    cuts = [max(abs(number).bit_length() - 24, 0) for number in x.tolist()]
    expected = [
        round_fraction(Fraction(number, 1 << cut), mode) << cut for number, cut in zip(x.tolist(), cuts, strict=True)
    ]
    converted = to_binary32(x, mode)
    assert converted.dtype == np.float32
    assert converted.astype(np.int64).tolist() == expected


@every_mode
def test_float32_becomes_integers(mode: RoundingMode) -> None:
    v = np.arange(-24, 25, dtype=np.float32) / 4
    expected = [round_fraction(Fraction(float(number)), mode) for number in v]
    assert integers_of(v, mode, I8).tolist() == expected
    assert integers_of(v, mode, U8).tolist() == [max(number, 0) for number in expected]
    assert integers_of(np.array([math.nan, math.inf, -math.inf], np.float32), mode, I8).tolist() == [0, 127, -128]


@every_mode
def test_requantization_rounds_once_to_float_and_once_to_integers(mode: RoundingMode) -> None:
    half, quarter, zero = np.float32(0.5), np.float32(0.25), np.float32(0)
    x = np.arange(-9, 10, dtype=np.int32)
    expected = [round_fraction(Fraction(number, 2) + Fraction(1, 4), mode) for number in x.tolist()]
    assert requantize(x, half, quarter, I8, to_integer=mode).tolist() == expected
    large = np.array([2**24 + 1, -(2**24) - 1], np.int32)
    expected = [round_fraction(Fraction(number, 2), mode) * 2 for number in large.tolist()]
    assert requantize(large, np.float32(1), zero, I32, to_float=mode).tolist() == expected


def test_dequantization_rounds_the_exact_difference() -> None:
    x, offset = np.array([-(2**15), 2**15 - 1], np.int16), np.int64(2**30)
    expected = [np.float32(int(number) - 2**30) * np.float32(0.1) for number in x]
    found = dequantize(x, np.asarray(offset), np.asarray(np.float32(0.1)))
    assert found.dtype == np.float32
    assert found.tolist() == [float(number) for number in expected]
    assert dequantize(np.array([7], np.uint8), np.asarray(np.int64(9)), np.asarray(np.float32(0.5))).tolist() == [-1.0]
