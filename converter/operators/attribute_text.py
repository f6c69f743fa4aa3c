"""Attributes of operators as short text."""

from __future__ import annotations

import re

_FEW = 4
"""Largest length of a list of numbers that is shown in full; of longer lists the length and range are shown."""

_LIST = re.compile(r"\((-?[0-9.e+-]+(?:, -?[0-9.e+-]+)+)\)")


def short_lists(parameters: str) -> str:
    """Show long lists of numbers in attributes as their length and range."""
    return _LIST.sub(_shorten, parameters)


def _shorten(match: re.Match[str]) -> str:
    numbers = match[1].split(", ")
    if len(numbers) <= _FEW:
        return match[0]
    ordered = sorted(numbers, key=float)
    return f"({len(numbers)} numbers, {ordered[0]} to {ordered[-1]})"
