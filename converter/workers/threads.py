"""Workers that are threads of this process: they share the network and return results without copies."""

from __future__ import annotations

import contextvars
import copy
import functools
import queue
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tpuconvert.known_errors import known_error
from tpuconvert.runtime.threads import available_threads, limited_threads
from tpuconvert.workers.workers import Failure, R, S, Shard, Task, Workers

_SWITCH_SECONDS = 0.0005
"""Longest time that a thread waits for another one that runs Python code. Python's default is longer than most steps of
a network, between which a thread needs the interpreter lock."""

_Event = tuple[int, bool, Any]
"""Index of a shard, whether it has ended, and its result or the number of its steps done."""


class Threads(Workers):
    """Threads of this process, each with its part of the processors.

    The time of a shard is spent in functions that release the interpreter lock: the native engine, NumPy and the
    decoders of images.

    Args:
        count: number of threads.
    """

    shards_per_worker = 2
    """Threads of one machine are equally fast, and the caller merges results in the time of their processors."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._limit = max(1, available_threads() // count)
        self._task: object = None
        self._copies: list[Any] = []

    def results(
        self, task: Task[S, R], shards: Sequence[Shard[S]], progress: Callable[[int, int], None]
    ) -> Iterator[tuple[int, R | Failure]]:
        """Yield the results as they arrive. A shard with a worker runs in the thread of this worker."""
        if self._task is not task:
            # A task may keep what it prepares for the next shard: every thread has a copy, with the same constants.
            self._task, self._copies = task, [copy.copy(task) for _ in range(self.count)]
        events: queue.SimpleQueue[_Event] = queue.SimpleQueue()
        stop = threading.Event()
        shared = deque((index, shard) for index, shard in enumerate(shards) if shard.worker is None)
        threads = []
        for number, own in enumerate(self._copies):
            placed = [(i, s) for i, s in enumerate(shards) if s.worker is not None and s.worker % self.count == number]
            run = functools.partial(self._serve, own, deque(placed), shared, events, stop)
            threads.append(threading.Thread(target=contextvars.copy_context().run, args=(run,), daemon=True))
        interval = sys.getswitchinterval()
        sys.setswitchinterval(_SWITCH_SECONDS)
        try:
            for thread in threads:
                thread.start()
            left = len(shards)
            while left:
                index, is_result, payload = events.get()
                if is_result:
                    if isinstance(payload, _Exit):
                        raise payload.error
                    left -= 1
                    yield index, payload
                else:
                    progress(index, payload)
        finally:
            stop.set()
            sys.setswitchinterval(interval)
            for thread in threads:
                if thread.is_alive():  # Ctrl-C may come before its start
                    thread.join()

    def _serve(
        self,
        task: Task[Any, Any],
        placed: deque[tuple[int, Shard[Any]]],
        shared: deque[tuple[int, Shard[Any]]],
        events: queue.SimpleQueue[_Event],
        stop: threading.Event,
    ) -> None:
        """Run the shards of one worker, and any that are left of those without a worker."""

        def report(index: int, steps: int) -> None:
            if stop.is_set():
                raise _Stopped
            events.put((index, False, steps))

        with limited_threads(self._limit):
            while not stop.is_set():
                try:
                    index, shard = (placed or shared).popleft()
                except IndexError:
                    return
                try:
                    outcome = task.run(shard.content, functools.partial(report, index))
                except _Stopped:
                    return
                except Exception as error:
                    outcome = Failure(known_error(error))
                except BaseException as error:
                    outcome = _Exit(error)
                events.put((index, True, outcome))

    def close(self) -> None:
        """Drop what the tasks keep."""
        self._task, self._copies = None, []


class _Exit:
    """An exception that is not an error, such as ``SystemExit``: the caller raises it."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


class _Stopped(Exception):
    """The caller does not wait for the results."""
