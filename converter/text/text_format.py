"""Formatting of numbers and names for messages."""

from __future__ import annotations

import math
from collections.abc import Mapping

from tpuconvert.schema.text.visible_text import one_line

LONGEST = 72
"""Length above which a name is shortened in the middle; TFLite concatenates the names of fused nodes."""


BYTE_UNITS = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))
"""Units of large numbers of bytes, and their sizes."""


def time_text(seconds: float) -> str:
    """Format a time in milliseconds or microseconds."""
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} us"


def several(count: int, what: str) -> str:
    """Format a count with its noun: ``1 sample``, ``2 samples``."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def against_limit(value: float, limit: float, *, is_least: bool, unit: str = "") -> str:
    """Format a missed limit, with enough digits to tell both numbers apart: ``0.99989 is below 0.9999``."""
    unit = f" {unit}" if unit else ""
    if math.isnan(value):
        return f"nan{unit} is not a number, expected {'at least' if is_least else 'at most'} {limit:.6g}{unit}"
    texts = ((f"{value:.{digits}g}", f"{limit:.{digits}g}") for digits in range(6, 18))
    shown = next((one for one, other in texts if one != other), repr(value))
    bound = next(text for digits in range(6, 18) if float(text := f"{limit:.{digits}g}") == limit)  # as it was given
    shown, bound = (f"{float(text):,.0f}" if "e+" in text else text for text in (shown, bound))
    return f"{shown}{unit} is {'below' if is_least else 'above'} {bound}{unit}"


def operator_counts(operators: Mapping[str, int]) -> str:
    """Format numbers of operators: ``add x2, mul``."""
    return ", ".join(f"{name} x{count}" if count > 1 else name for name, count in operators.items())


def shorten(name: str, longest: int = LONGEST) -> str:
    """Shorten a name to fit into a line: replace the middle of a long name by ``...``."""
    name = one_line(name)
    if len(name) <= longest:
        return name
    half = (longest - 3) // 2
    return f"{name[: longest - 3 - half]}...{name[len(name) - half :]}"


def bytes_text(count: int) -> str:
    """Format a number of bytes with a suitable unit."""
    for unit, size in BYTE_UNITS:
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"
