"""Reduce the frequency of garbage collections while large graphs are built."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from dataclasses import dataclass

OBJECTS = 10_000_000
"""New objects between two collections. A graph of ten thousand nodes creates a million objects, almost no garbage."""

_MOST_BYTES = 64 << 20
_FEWEST_OBJECTS = 20_000


@dataclass
class _Uncollected:
    """Objects and bytes since the last full collection, which may be garbage, and objects that it left."""

    objects: int = 0
    nbytes: int = 0
    left: int = 0
    collections: int = 0


_uncollected = _Uncollected()


@dataclass
class _Frozen:
    """True once the program has frozen objects."""

    is_known: bool = False

    def any(self) -> bool:
        """Return True if the program has frozen objects, or has at an earlier call.

        CPython counts frozen objects one by one, which takes 30 ms for two million.
        """
        self.is_known = self.is_known or gc.get_freeze_count() > 0
        return self.is_known


_frozen = _Frozen()


def note_arrays(nbytes: int) -> None:
    """Count bytes of arrays that a new graph refers to. The collector sees objects only."""
    _uncollected.nbytes += nbytes


def collect_if_due() -> None:
    """Collect garbage if there may be much: graphs are reference cycles, and keep their arrays until a collection.

    CPython does not collect the oldest generation until 25 % of its objects are new, and does not count those that
    :func:`reduced_gc_frequency` moves there. Call this before a new file is read: then the graph of the last one is
    mostly dropped, and a process that reads one model never pays for it. A collector that the caller disabled stays
    idle.
    """
    uncollected = _uncollected
    collections = gc.get_stats()[2]["collections"]
    if collections != uncollected.collections:  # the program has collected meanwhile
        uncollected.collections, uncollected.objects, uncollected.nbytes = collections, 0, 0
    objects = uncollected.objects + gc.get_count()[0]
    if gc.isenabled() and (objects > max(_FEWEST_OBJECTS, uncollected.left // 4) or uncollected.nbytes > _MOST_BYTES):
        uncollected.objects = uncollected.nbytes = 0
        gc.collect()
        uncollected.collections = collections + 1
        uncollected.left = len(gc.get_objects())


def collect_dropped_graphs(nbytes: int) -> None:
    """Collect garbage between steps that build a graph each, if there may be much.

    Within :func:`reduced_gc_frequency` the graphs of all steps would stay in memory: 120 MiB for a search over 70
    graphs of ResNet50. For small graphs, collections at each step would take longer than the steps, if the process has
    many other objects.

    Args:
        nbytes: size of the constants of the last graph.
    """
    note_arrays(nbytes)
    collect_if_due()


@contextlib.contextmanager
def reduced_gc_frequency() -> Iterator[None]:
    """Collect garbage less often while a graph is built and rewritten.

    By default CPython searches for reference cycles after every 700 new objects, and examines all objects regularly. A
    conversion creates many objects and few cycles: with the default a chain of 16,384 nodes takes 28 % more CPU time
    (2.70 s instead of 2.10 s). A threshold that the caller disabled or set higher is not changed.

    At the end all objects are moved to the oldest generation; otherwise the next collection would examine all of them.
    This is left out in a program that has frozen objects, since it would thaw them.
    """
    first, *rest = gc.get_threshold()
    is_changed = 0 < first < OBJECTS
    if is_changed:
        gc.set_threshold(OBJECTS, *rest)
    try:
        yield
    finally:
        if is_changed:  # else an enclosing block, maybe of another thread, restores it
            if not _frozen.any():  # objects that the caller has frozen must stay frozen
                _uncollected.objects += gc.get_count()[0]
                gc.freeze()
                gc.unfreeze()
            gc.set_threshold(first, *rest)
