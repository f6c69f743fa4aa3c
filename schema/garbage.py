"""How often Python looks for reference cycles."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

OBJECTS = 10_000_000
"""So many new objects are waited for. A graph of ten thousand nodes makes a million, and nearly all of them stay."""


@contextlib.contextmanager
def rarely_collected() -> Iterator[None]:
    """Look for cycles less often while a graph is built and rewritten.

    By default Python looks after every 700 new objects, and sometimes at all that there are, which takes a third of the
    time that a large graph takes, and finds nothing. Who has switched it off, or made it rarer still, is left alone.
    """
    first, *rest = gc.get_threshold()
    if 0 < first < OBJECTS:
        gc.set_threshold(OBJECTS, *rest)
    try:
        yield
    finally:
        gc.set_threshold(first, *rest)
