"""Garbage collection is less frequent inside the context, unchanged after it, and done on request."""

import gc
import weakref
from collections.abc import Callable

import pytest

from tpuconvert.schema.system import gc_control
from tpuconvert.schema.system.gc_control import (
    OBJECTS,
    collect_dropped_graphs,
    collect_if_due,
    note_arrays,
    reduced_gc_frequency,
)


@pytest.fixture(autouse=True)
def _nothing_is_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thaw what tests/conftest.py has frozen, and forget that something was."""
    gc.unfreeze()
    monkeypatch.setattr(gc_control, "_frozen", gc_control._Frozen())


def test_moves_objects_to_oldest_generation() -> None:
    before = gc.get_threshold()
    with reduced_gc_frequency():
        assert gc.get_threshold()[0] == OBJECTS
        made: list[list[int]] = [[number] for number in range(1000)]
    assert gc.get_threshold() == before and gc.get_freeze_count() == 0
    old = {id(item) for item in gc.get_objects(generation=2)}
    assert {id(item) for item in made} <= old


def test_keeps_settings_of_caller() -> None:
    before = gc.get_threshold()
    mine: list[list[int]] = [[]]
    gc.freeze()
    try:
        with reduced_gc_frequency():
            pass
        # Frozen objects are in no generation. Others of them may end meanwhile, so that counting would not do.
        assert gc.get_freeze_count() > 0 and all(item is not mine for item in gc.get_objects())
        gc.set_threshold(0)
        with reduced_gc_frequency():
            assert gc.get_threshold()[0] == 0
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def test_frozen_objects_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []
    count = gc.get_freeze_count
    monkeypatch.setattr(gc, "get_freeze_count", lambda: counts.append(count()) or counts[-1])
    gc.freeze()
    try:
        for _ in range(10):
            with reduced_gc_frequency():
                pass
    finally:
        gc.unfreeze()
    assert len(counts) == 1 and counts[0] > 0


def test_later_collection_finds_cycles() -> None:
    class Ring:
        def __init__(self) -> None:
            self.self = self

    with reduced_gc_frequency():
        Ring()
    gc.collect()
    assert not [item for item in gc.get_objects() if isinstance(item, Ring)]


class Cycle:
    """Garbage that only a collection frees."""

    def __init__(self) -> None:
        self.itself = self


def _leave_many_objects() -> list[object]:
    return [[] for _ in range(max(100_000, len(gc.get_objects())))]


def _note_many_bytes() -> None:
    note_arrays(100 << 20)


@pytest.mark.parametrize("fill", [_leave_many_objects, _note_many_bytes])
def test_garbage_is_collected_when_it_may_be_much(fill: Callable[[], object]) -> None:
    gc.collect()
    collect_if_due()
    for _ in range(2):  # the second time: the counts begin again
        with reduced_gc_frequency():
            found = weakref.ref(Cycle())
            kept = fill()
        assert found() is not None
        collect_if_due()
        assert found() is None
        del kept


def test_little_garbage_is_kept() -> None:
    note_arrays(100 << 20)
    collect_if_due()
    with reduced_gc_frequency():
        found = weakref.ref(Cycle())
    collect_if_due()
    assert found() is not None


def test_a_collection_of_the_program_counts() -> None:
    collect_if_due()
    note_arrays(100 << 20)
    gc.collect()
    with reduced_gc_frequency():
        found = weakref.ref(Cycle())
    collect_if_due()
    assert found() is not None
    note_arrays(100 << 20)
    collect_if_due()
    assert found() is None


def test_a_disabled_collector_stays_idle() -> None:
    gc.disable()
    try:
        with reduced_gc_frequency():
            found = weakref.ref(Cycle())
        note_arrays(100 << 20)
        collect_if_due()
        assert found() is not None
    finally:
        gc.enable()
    collect_if_due()
    assert found() is None and gc_control._uncollected.nbytes == 0


@pytest.mark.parametrize(("nbytes", "is_collected"), [(100 << 20, True), (1 << 20, False)])
def test_dropped_graphs_are_collected_if_they_are_large(nbytes: int, is_collected: bool) -> None:
    gc.collect()
    collect_if_due()
    with reduced_gc_frequency():
        found = weakref.ref(Cycle())
        collect_dropped_graphs(nbytes)
        assert (found() is None) == is_collected
