"""Many cases of one code path, of which a fixed sample is tried in every run, and all in the nightly one."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest


def sampled(cases: Iterable[Any], every: int = 4) -> list[Any]:
    """Return the cases for ``pytest.mark.parametrize``; those outside the sample are slow.

    The sample has every n-th case from the first one on. Of several parameters, it has each value that several cases
    share: a case with a value that no case of the sample has is added. Use it where the cases take seconds together and
    most defects are defects of many cases.

    Args:
        cases: a value, or a tuple of values for several parameters; what ``pytest.param`` returns, too.
        every: distance of the cases that are chosen by their position.
    """
    slow = pytest.mark.slow
    params = [case if isinstance(case, type(pytest.param())) else _param(case) for case in cases]
    counts = Counter(key for param in params for key in _keys(param))
    shared = {key for key, count in counts.items() if count > 1}
    chosen = set(range(0, len(params), every))
    tried = {key for position in chosen for key in _keys(params[position])}
    for position, param in enumerate(params):
        if (shared & _keys(param)) - tried:
            chosen.add(position)
            tried |= _keys(param)
    return [
        param if position in chosen else pytest.param(*param.values, id=param.id, marks=[*param.marks, slow])
        for position, param in enumerate(params)
    ]


def _param(case: Any) -> Any:
    return pytest.param(*case) if isinstance(case, tuple) and not hasattr(case, "_fields") else pytest.param(case)


def _keys(param: Any) -> set[tuple[int, Any]]:
    """Parameters with their values. What has no hash is compared by its text."""
    return {(index, _hashable(value)) for index, value in enumerate(param.values)}


def _hashable(value: Any) -> Any:
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return (type(value), value)
