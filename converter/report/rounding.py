"""Rounding of the numbers in the data of the report."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

DIGITS = 5
"""Significant digits of a floating-point number."""


def round_number(value: Any, digits: int = DIGITS) -> Any:
    """Round a float to significant digits; one that is not finite becomes None, and an integral one an integer."""
    if not isinstance(value, float):
        return value
    if not math.isfinite(value):
        return None
    rounded = float(f"{value:.{digits}g}")
    return int(rounded) if rounded.is_integer() else rounded


def round_numbers(value: Any) -> Any:
    """Round the numbers in mappings and lists."""
    if isinstance(value, Mapping):
        return {key: round_numbers(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [round_numbers(each) for each in value]
    return round_number(value)


def without_none(value: Any) -> Any:
    """Leave keys without a value out. Columns of nodes are kept as they are, because they have equal length."""
    if isinstance(value, Mapping):
        return {key: each if key == "nodes" else without_none(each) for key, each in value.items() if each is not None}
    if isinstance(value, list) and value and isinstance(value[0], Mapping):
        return [without_none(each) for each in value]
    return value
