"""Pooled result memory is reused, but never while a reference to it exists."""

import threading
import weakref

import numpy as np
import pytest

from tpuconvert.runtime.native.builder.results import ResultMemory

LARGE = (64, 1024)


def test_memory_is_used_again_once_nobody_refers_to_it() -> None:
    results = ResultMemory(LARGE, np.dtype(np.float32))
    first = results.new()
    address = first.ctypes.data
    del first
    assert results.new().ctypes.data == address


@pytest.mark.parametrize("keep", [lambda y: y, lambda y: y[3:5], lambda y: memoryview(y), lambda y: y.T.ravel("K")])
def test_whatever_was_made_from_a_result_keeps_it(keep: object) -> None:
    assert callable(keep)
    results = ResultMemory(LARGE, np.dtype(np.float32))
    first = results.new()
    first[...] = 1.0
    kept = keep(first)
    del first
    for _ in range(5):
        results.new()[...] = 2.0
    assert np.all(np.asarray(kept) == 1.0)


def test_all_results_that_are_held_differ() -> None:
    results = ResultMemory(LARGE, np.dtype(np.int8))
    held = [results.new() for _ in range(7)]
    assert len({array.ctypes.data for array in held}) == 7
    assert all(array.shape == LARGE and array.dtype == np.int8 and array.flags.c_contiguous for array in held)


def test_small_results_of_a_block_do_not_overlap() -> None:
    results = ResultMemory((2, 3), np.dtype(np.float32))
    held = [results.new() for _ in range(20)]
    for number, array in enumerate(held):
        array[...] = number
    assert all(np.all(array == number) for number, array in enumerate(held))
    assert all(array.ctypes.data % 64 == 0 for array in held)


@pytest.mark.parametrize("shape", [(2, 3), (1000, 10), (16383,)])
def test_blocks_are_small_and_freed_with_their_last_result(shape: tuple[int, ...]) -> None:
    results = ResultMemory(shape, np.dtype(np.float32))
    block = weakref.ref(results.new().base)  # type: ignore[arg-type]  # an array
    assert block() is None or block().nbytes <= (1 << 16) + 128  # type: ignore[union-attr]
    for _ in range(8):  # the rest of the block
        results.new()
    assert block() is None


@pytest.mark.parametrize("shape", [(1,), (3, 5), LARGE])
def test_results_are_aligned(shape: tuple[int, ...]) -> None:
    assert ResultMemory(shape, np.dtype(np.int8)).new().ctypes.data % 64 == 0


def test_threads_never_share_memory() -> None:
    results = ResultMemory(LARGE, np.dtype(np.int64))
    wrong: list[int] = []

    def work(number: int) -> None:
        for _ in range(200):
            mine = results.new()
            mine[...] = number
            if not np.all(mine == number):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
