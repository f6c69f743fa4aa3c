"""Numbers in sentences."""

import math

import pytest

from tpuconvert.wording import against_limit


@pytest.mark.parametrize(
    ("value", "limit", "is_least", "text"),
    [
        (0.5, 0.9999, True, "0.5 is below 0.9999"),
        (0.99989999, 0.9999, True, "0.99989999 is below 0.9999"),
        (math.nextafter(0.9999, 0), 0.9999, True, "0.9998999999999999 is below 0.9999"),
        (12.3456781, 12.345678, False, "12.3456781 is above 12.345678"),
        (math.nan, 0.99, True, "nan is not a number, expected at least 0.99"),
        (math.inf, 2.0, False, "inf is above 2"),
    ],
)
def test_a_value_and_its_limit_have_the_digits_that_tell_them_apart(
    value: float, limit: float, is_least: bool, text: str
) -> None:
    assert against_limit(value, limit, is_least=is_least) == text


def test_a_unit_follows_both_numbers() -> None:
    assert against_limit(14.7, 20.0, is_least=True, unit="dB") == "14.7 dB is below 20 dB"
