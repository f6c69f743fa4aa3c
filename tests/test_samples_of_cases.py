"""``sampled`` and ``paired`` leave each value of each parameter in every run, and all cases in the nightly one."""

import itertools
from typing import Any

import pytest

from tests.support.each import check_each
from tests.support.paired import paired
from tests.support.sampled import sampled

VALUES = ([(1, 2), (3, 4), (5, 6)], [True, False], list("abcde"), [[0], {"x": 1}])
PRODUCT = list(itertools.product(*VALUES))


def in_every_run(cases: list[Any]) -> list[tuple[Any, ...]]:
    return [case.values for case in cases if not any(mark.name == "slow" for mark in case.marks)]


@pytest.mark.parametrize("every", [1, 4, 7, 1000])
def test_a_sample_of_a_product_has_each_value(every: int) -> None:
    cases = sampled(PRODUCT, every)
    assert [case.values for case in cases] == PRODUCT
    sample = in_every_run(cases)
    assert set(range(0, len(PRODUCT), every)) <= {PRODUCT.index(values) for values in sample}
    assert len(sample) <= len(PRODUCT[::every]) + sum(map(len, VALUES))
    for index, values in enumerate(VALUES):
        assert all(value in [chosen[index] for chosen in sample] for value in values)


def test_pairs_of_a_product_have_each_value() -> None:
    cases = paired(*([(value,) for value in values] for values in VALUES))
    assert [case.values for case in cases] == PRODUCT
    sample = in_every_run(cases)
    assert len(sample) == max(map(len, VALUES))
    for index, values in enumerate(VALUES):
        assert all(value in [chosen[index] for chosen in sample] for value in values)


def test_a_sample_of_one_parameter_is_chosen_by_position() -> None:
    assert in_every_run(sampled(range(9))) == [(0,), (4,), (8,)]
    assert in_every_run(sampled("abcde", every=2)) == [("a",), ("c",), ("e",)]


def test_equal_numbers_of_different_types_are_different_values() -> None:
    assert in_every_run(sampled([(1, "a"), (True, "a"), (1, "b"), (True, "b")])) == [(1, "a"), (True, "a"), (1, "b")]


def test_marks_and_names_of_cases_stay() -> None:
    skipped = pytest.mark.skip(reason="absent")
    first, second = sampled([pytest.param(1, id="one", marks=skipped), pytest.param(2, id="two", marks=skipped)])
    assert (first.id, second.id) == ("one", "two")
    assert [[mark.name for mark in case.marks] for case in (first, second)] == [["skip"], ["skip", "slow"]]


def test_each_failing_case_is_named() -> None:
    def check(case: int) -> None:
        assert case % 2, "even"

    check_each(check, [1, 3])
    with pytest.raises(pytest.fail.Exception, match=r"2 of 3 cases fail: \['2', '4'\]"):
        check_each(check, [1, 2, 4])
    with pytest.raises(AssertionError, match="no cases"):
        check_each(check, [])
