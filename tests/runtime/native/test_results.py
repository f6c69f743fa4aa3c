"""Pooled result memory is reused, but never while a reference to it exists."""

import sys
import threading

import numpy as np
import pytest

from tpuconvert.runtime.native.results import ResultMemory

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


def test_small_results_are_not_kept() -> None:
    results = ResultMemory((2, 3), np.dtype(np.float32))
    base = results.new().base
    fresh = np.empty(1)
    assert sys.getrefcount(base) == sys.getrefcount(fresh)  # no other references than those of this function


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
