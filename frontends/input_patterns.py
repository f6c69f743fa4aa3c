"""Shapes of several inputs by one pattern of their names, such as ``past_key_values.*``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TypeVar

from tpuconvert.schema.errors import UsageError

Extent = TypeVar("Extent")

ANY = "*"
"""Character of a pattern that matches any text."""


def expand_patterns(
    shapes: Mapping[str, Sequence[Extent]], names: Sequence[str], file: str
) -> dict[str, Sequence[Extent]]:
    """Return shapes by input name; a name has precedence over a pattern, and an earlier pattern over a later one.

    Args:
        shapes: shapes by name or pattern.
        names: names of the inputs.
        file: name for messages.

    Raises:
        UsageError: no input has a name of a pattern.
    """
    expanded = {name: shape for name, shape in shapes.items() if ANY not in name or name in names}
    for pattern in shapes:
        if pattern in expanded:
            continue
        matches = [name for name in names if fnmatchcase(name, pattern.replace("[", "[[]").replace("?", "[?]"))]
        if not matches:
            hint = f"its inputs: {', '.join(names)}"
            raise UsageError(f"input_shapes: no input has a name of the pattern '{pattern}'", file=file, hint=hint)
        for name in matches:
            expanded.setdefault(name, shapes[pattern])
    return expanded
