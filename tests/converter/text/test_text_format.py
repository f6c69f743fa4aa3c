"""Numbers in messages."""

import math

import pytest

from tpuconvert.ci.manifest import LIMITS
from tpuconvert.ci.runner import Miss
from tpuconvert.evaluation.result import Evaluation
from tpuconvert.schema.errors import ThresholdError
from tpuconvert.text.text_format import against_limit


@pytest.mark.parametrize(
    ("value", "limit", "is_least", "text"),
    [
        (0.5, 0.9999, True, "0.5 is below 0.9999"),
        (0.99989999, 0.9999, True, "0.99989999 is below 0.9999"),
        (math.nextafter(0.9999, 0), 0.9999, True, "0.9998999999999999 is below 0.9999"),
        (0.999988, 0.9999999, True, "0.999988 is below 0.9999999"),
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


def test_evaluate_and_ci_write_enough_digits() -> None:
    """With four or six digits both numbers would look equal, or even be in the wrong order."""
    with pytest.raises(ThresholdError, match=r"top1 0.99996 is below 0.99999 on 50000 samples"):
        Evaluation(50000, "y", "native", {"top1": 0.99996}).check({"top1": 0.99999})
    limit = next(limit for limit in LIMITS if limit.key == "cosine")
    assert str(Miss(limit, wanted=0.9999, found=0.99989999)) == "cosine 0.99989999 is below 0.9999"
