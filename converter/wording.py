"""Numbers and names in sentences."""

from __future__ import annotations

from collections.abc import Mapping

from tpuconvert.schema.visible_text import one_line

LONGEST = 72
"""A longer name is cut in its middle where it only serves to recognise something; TFLite joins names of fused nodes."""


def several(count: int, what: str) -> str:
    """``1 sample``, ``2 samples``."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def counted(operators: Mapping[str, int]) -> str:
    """``add x2, mul``."""
    return ", ".join(f"{name} x{count}" if count > 1 else name for name, count in operators.items())


def shortened(name: str, longest: int = LONGEST) -> str:
    """A name that fits into a line; both ends of a longer one are kept."""
    name = one_line(name)
    if len(name) <= longest:
        return name
    half = (longest - 3) // 2
    return f"{name[: longest - 3 - half]}...{name[len(name) - half :]}"


def bytes_text(count: int) -> str:
    """A number of bytes in the unit that suits it."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"
