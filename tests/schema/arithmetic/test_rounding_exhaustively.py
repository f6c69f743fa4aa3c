"""All seven rounding modes for every 16-bit value and every shift from 0 to 31.

The expected quotients follow the definitions of the operator set: floor and rest of x / 2^s from Python's ``divmod``,
and a comparison of twice the rest with the divisor.
"""

from collections.abc import Sequence

import numpy as np
import pytest

from tpuconvert.schema.arithmetic import fixed_point
from tpuconvert.schema.arithmetic.fixed_point import RoundingMode
from tpuconvert.schema.ops.shifts.arithmetic_shift import ArithmeticShift
from tpuconvert.schema.types import I32

MODES = [mode for mode in RoundingMode if mode is not RoundingMode.UNKNOWN]
SHIFTS = range(32)
SIGNED, UNSIGNED = range(-(1 << 15), 1 << 15), range(1 << 16)
FEW = sorted({*range(-70, 70), *(sign * (1 << k) + d for sign in (-1, 1) for k in range(15) for d in (-1, 0, 1))})


def is_raised(mode: RoundingMode, floor: int, rest: int, divisor: int, x: int) -> bool:
    """Return True if the result is the integer above the floor; doubled, so that 1/2 is an integer too."""
    twice = 2 * rest
    if rest == 0:
        return False
    if mode is RoundingMode.DOWN:
        return False
    if mode is RoundingMode.UP:
        return True
    if mode is RoundingMode.TOWARDS_ZERO:
        return x < 0
    if twice != divisor:
        return twice > divisor
    return {
        RoundingMode.HALF_UP: True,
        RoundingMode.HALF_DOWN: False,
        RoundingMode.HALF_AWAY_FROM_ZERO: x >= 0,
        RoundingMode.HALF_TO_EVEN: floor % 2 == 1,
    }[mode]


def quotient(mode: RoundingMode, x: int, shift: int) -> int:
    divisor = 2**shift
    floor, rest = divmod(x, divisor)
    return floor + is_raised(mode, floor, rest, divisor, x)


def compare(mode: RoundingMode, shift: int, numbers: Sequence[int]) -> None:
    expected = [quotient(mode, x, shift) for x in numbers]
    found = fixed_point.round_shift(np.array(numbers, np.int64), shift, mode)
    assert found.tolist() == expected, f"{mode.name}, {shift}"
    (shifted,) = ArithmeticShift(-shift, mode, I32).evaluate(np.array(numbers, np.int32))
    assert shifted.tolist() == expected, f"{mode.name}, {shift}"


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_values_near_powers_of_two_at_every_shift(mode: RoundingMode) -> None:
    for shift in SHIFTS:
        compare(mode, shift, FEW)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_every_16_bit_value_at_every_shift(mode: RoundingMode) -> None:
    for shift in SHIFTS:
        compare(mode, shift, SIGNED)
        compare(mode, shift, UNSIGNED)
