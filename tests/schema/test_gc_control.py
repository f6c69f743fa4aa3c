"""Garbage collection is less frequent inside the context and unchanged after it."""

import gc

from tpuconvert.schema.gc_control import OBJECTS, reduced_gc_frequency


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


def test_later_collection_finds_cycles() -> None:
    class Ring:
        def __init__(self) -> None:
            self.self = self

    with reduced_gc_frequency():
        Ring()
    gc.collect()
    assert not [item for item in gc.get_objects() if isinstance(item, Ring)]
