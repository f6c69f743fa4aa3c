"""Rounding of exact fractions in every mode, by definition."""

import math
from fractions import Fraction

from tpuconvert.schema.arithmetic.fixed_point import RoundingMode

MODES = [mode for mode in RoundingMode if mode is not RoundingMode.UNKNOWN]
"""The modes that operators accept."""


def round_fraction(value: Fraction, mode: RoundingMode) -> int:
    """The nearest integer by definition, on exact fractions."""
    floor = math.floor(value)
    rest = value - floor
    half = Fraction(1, 2)
    return (
        floor
        + {
            RoundingMode.DOWN: False,
            RoundingMode.UP: rest != 0,
            RoundingMode.TOWARDS_ZERO: value < 0 and rest != 0,
            RoundingMode.HALF_UP: rest >= half,
            RoundingMode.HALF_DOWN: rest > half,
            RoundingMode.HALF_AWAY_FROM_ZERO: rest > half or (rest == half and value >= 0),
            RoundingMode.HALF_TO_EVEN: rest > half or (rest == half and floor % 2 == 1),
        }[mode]
    )
