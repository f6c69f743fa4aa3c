"""How often Python looks for reference cycles."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

OBJECTS = 10_000_000
"""So many new objects are waited for. A graph of ten thousand nodes makes a million, and nearly all of them stay."""


@contextlib.contextmanager
def reduced_gc_frequency() -> Iterator[None]:
    """Look for cycles less often while a graph is built and rewritten.

    By default Python looks after every 700 new objects, and sometimes at all that there are, which takes a third of the
    time that a large graph takes, and finds nothing. Who has switched it off, or made it rarer still, is left alone.

    What is there at the end counts as old, as if it had been looked at: the next look would be at all of it otherwise.
    """
    first, *rest = gc.get_threshold()
    is_rarer = 0 < first < OBJECTS
    if is_rarer:
        gc.set_threshold(OBJECTS, *rest)
    try:
        yield
    finally:
        if is_rarer:  # otherwise this is inside of another, perhaps of another thread, which ends it
            if not gc.get_freeze_count():  # who has frozen objects wants them to stay so
                gc.freeze()
                gc.unfreeze()
            gc.set_threshold(first, *rest)
