"""Workers in processes of this machine."""

from __future__ import annotations

import multiprocessing
import pickle
import signal
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from tpuconvert.known_errors import known_error
from tpuconvert.runtime.session import available_threads
from tpuconvert.schema.errors import InternalError, ResourceLimitError, TpuConvertError
from tpuconvert.workers.environment import Environment
from tpuconvert.workers.workers import ATTEMPTS, R, S, Shard, Task, Workers


@dataclass
class _Worker:
    process: BaseProcess
    connection: Connection
    task: bytes | None = None
    """The task that the process has."""
    shard: int | None = None
    """The shard that it runs."""


class Processes(Workers):
    """Processes of this machine, each with its part of the processors. They are started for the first shards.

    Args:
        count: number of processes.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._threads = max(1, available_threads() // count)
        self._context = multiprocessing.get_context("spawn")  # threads of the engine do not survive a fork
        self._workers: list[_Worker] = []

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers."""
        return [worker.process.pid for worker in self._workers if worker.process.pid is not None]

    def results(
        self, task: Task[S, R], shards: Sequence[Shard[S]], progress: Callable[[int, int], None]
    ) -> Iterator[tuple[int, R]]:
        """Yield the results as they arrive. A shard of a process that ends runs again in another one."""
        packed = pickle.dumps(task, protocol=pickle.HIGHEST_PROTOCOL)
        waiting = deque(range(len(shards)))
        attempts = [0] * len(shards)
        while len(self._workers) < min(self.count, len(shards)):
            self._workers.append(self._start())
        for worker in self._workers:
            assert worker.shard is None, "the shards of another task are running"
        while waiting or any(worker.shard is not None for worker in self._workers):
            for position, worker in enumerate(self._workers):
                if worker.shard is None and waiting:
                    index = waiting.popleft()
                    attempts[index] += 1
                    if not _send(worker, packed, index, shards[index].content):
                        self._replace(position, worker, index, shards[index], attempts[index], waiting)
            ready = wait([worker.connection for worker in self._workers if worker.shard is not None])
            for position, worker in enumerate(self._workers):
                if worker.shard is None or worker.connection not in ready:
                    continue
                index = worker.shard
                try:
                    answer = worker.connection.recv()
                except (EOFError, OSError):
                    self._replace(position, worker, index, shards[index], attempts[index], waiting)
                    continue
                if isinstance(answer, int):
                    progress(index, answer)
                    continue
                worker.shard = None
                result, error = answer
                if error is not None:
                    raise error
                yield index, result

    def close(self) -> None:
        """End the processes, even if they are running shards."""
        for worker in self._workers:
            worker.process.kill()
        for worker in self._workers:
            worker.process.join()
            worker.connection.close()
        self._workers = []

    def _start(self) -> _Worker:
        ours, theirs = self._context.Pipe()
        arguments = (theirs, Environment.of_this_process(), self._threads)
        process = self._context.Process(target=_serve, args=arguments, daemon=True)
        process.start()
        theirs.close()
        return _Worker(process, ours)

    def _replace(
        self, position: int, worker: _Worker, index: int, shard: Shard[Any], attempts: int, waiting: deque[int]
    ) -> None:
        """Start another process in place of one that ended, and put its shard into the queue again."""
        worker.process.join()
        worker.connection.close()
        if attempts >= ATTEMPTS:
            raise lost_shard(shard, f"the last process ended with exit code {worker.process.exitcode}")
        waiting.appendleft(index)
        self._workers[position] = self._start()


def lost_shard(shard: Shard[Any], reason: str) -> ResourceLimitError:
    """Create the error for a shard whose workers ended too often."""
    hint = "workers that are killed are often out of memory: use fewer of them"
    return ResourceLimitError(f"{shard.name}: {ATTEMPTS} workers ended while they ran it; {reason}", hint=hint)


def _send(worker: _Worker, task: bytes, index: int, content: object) -> bool:
    """Send a shard, and the task unless the process has it. Return False if the process has ended."""
    try:
        worker.connection.send((None if worker.task is task else task, content))
    except OSError:
        return False
    worker.task, worker.shard = task, index
    return True


def _serve(connection: Connection, environment: Environment, threads: int) -> None:
    """Run shards until the client closes the connection."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes of a terminal; the client ends them
    task: Task[Any, Any] | None = None
    answer: tuple[Any, TpuConvertError | None]
    while True:
        try:
            packed, content = connection.recv()
        except EOFError:
            return
        try:
            if packed is not None:
                environment.check_and_load()
                task = pickle.loads(packed)
            assert task is not None
            answer = (task.run(content, threads, connection.send), None)
        except Exception as error:
            answer = (None, portable_error(error))
        connection.send(answer)


def portable_error(error: Exception) -> TpuConvertError:
    """Convert an error of a worker to one that can be pickled."""
    known = known_error(error)
    try:
        pickle.loads(pickle.dumps(known))
    except Exception:
        return InternalError(str(known))
    return known
