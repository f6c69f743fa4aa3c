"""Parameters of which each value is tried in every run, and each combination in the nightly one."""

import itertools
from collections.abc import Sequence
from typing import Any

import pytest


def paired(*values: Sequence[Any]) -> list[Any]:
    """Return all combinations for ``pytest.mark.parametrize``; those off the diagonal are slow.

    Each value is in a combination that is not slow. Use it where a conversion takes long and a defect of one value does
    not need a certain value of the others.

    Args:
        values: of each parameter. A tuple is several parameters that belong together.
    """
    diagonal = {tuple(number % len(items) for items in values) for number in range(max(map(len, values)))}
    combinations = []
    for place in itertools.product(*(range(len(items)) for items in values)):
        chosen = [items[index] for items, index in zip(values, place, strict=True)]
        flat = [part for item in chosen for part in (item if isinstance(item, tuple) else (item,))]
        combinations.append(pytest.param(*flat, marks=() if place in diagonal else pytest.mark.slow))
    return combinations
