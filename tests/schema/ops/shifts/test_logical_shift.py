"""Logical shifts, with values computed by hand and by scalar integers."""

import itertools
from fractions import Fraction

import numpy as np
import pytest

from tests.support.operators.op_cases import Case, u8, u16
from tpuconvert.schema.arithmetic.fixed_point import RoundingMode
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.ops.shifts.logical_shift import LogicalPcShift, LogicalShift
from tpuconvert.schema.types import I8, U8, U16, U32, Chip, TensorType

DOWN, HALF_UP, UP = RoundingMode.DOWN, RoundingMode.HALF_UP, RoundingMode.UP
MODES = [mode for mode in RoundingMode if mode is not RoundingMode.UNKNOWN]
BM1686 = (Chip.BM1686,)

CASES = [
    Case(LogicalShift(1, DOWN), [u8(255, 128, 3)], [u8(254, 0, 6)], "the highest bit is dropped", BM1686),
    Case(LogicalShift(4, DOWN, U16), [u8(255)], [u16(4080)], "a wider result has room for it", BM1686),
    Case(LogicalShift(9, DOWN, U8), [u16(3)], [u8(0)], "a narrower result drops more", BM1686),
    Case(LogicalShift(-1, HALF_UP), [u8(255, 3, 2)], [u8(128, 2, 1)], "ties round up", BM1686),
    Case(LogicalShift(-1, DOWN, U8), [u16(65535, 510)], [u8(255, 255)], "right shifts saturate", BM1686),
    Case(LogicalShift(0, DOWN, U8), [u16(256)], [u8(255)], "no shift saturates too", BM1686),
    Case(LogicalShift(-64, UP), [u8(0, 1)], [u8(0, 1)], "beyond the width", BM1686),
    Case(
        LogicalPcShift(HALF_UP),
        [u8([[3, 200], [3, 200], [3, 200]]).reshape(1, 3, 2), np.array([1, -1, 100], np.int8)],
        [u8([[6, 144], [2, 100], [0, 0]]).reshape(1, 3, 2)],
        "one amount per channel",
        BM1686,
    ),
    Case(
        LogicalPcShift(DOWN, shift_axis=0),
        [u8([1], [4]), np.array([2, -2], np.int8)],
        [u8([4], [1])],
        "along another axis",
        BM1686,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_by_hand(case):
    case.check()


def round_fraction(value, mode):
    """Round a nonnegative fraction."""
    below = int(value)
    rest = value - below
    tie_grows = {
        RoundingMode.HALF_TO_EVEN: below % 2 == 1,
        RoundingMode.HALF_AWAY_FROM_ZERO: True,
        RoundingMode.HALF_UP: True,
        RoundingMode.HALF_DOWN: False,
    }
    if mode in tie_grows:
        return below + (rest > Fraction(1, 2) or (rest == Fraction(1, 2) and tie_grows[mode]))
    return below + (mode is RoundingMode.UP and rest > 0)


@pytest.mark.parametrize("dtype", [U8, U16, U32], ids=lambda dtype: dtype.value)
def test_against_plain_integers(dtype):
    numbers = sorted({0, 1, 2, 3, 5, 6, 7, 100, dtype.max // 2, dtype.max // 2 + 1, dtype.max - 1, dtype.max})
    x = np.array(numbers, dtype.numpy)
    for out, mode, shift in itertools.product((U8, U16, U32), MODES, (-64, -33, -32, -9, -8, -3, -2, -1, 0, 1, 7, 31)):
        found = LogicalShift(shift, mode, out).evaluate(x)[0].tolist()
        if shift > 0:
            wanted = [number * 2**shift % 2**out.bits for number in numbers]
        else:
            wanted = [min(round_fraction(Fraction(number, 2**-shift), mode), out.max) for number in numbers]
        assert found == wanted, (out, mode, shift)


def test_what_is_refused():
    with pytest.raises(ValueError, match=r"-64\.\.31"):
        LogicalShift(32, DOWN)
    with pytest.raises(ValueError, match="reserved"):
        LogicalPcShift(RoundingMode.UNKNOWN)
    with pytest.raises(ShapeError, match="one amount per index of axis 1"):
        LogicalPcShift(DOWN).infer(TensorType(U8, (1, 3)), TensorType(I8, (2,)))
