"""Workers in processes of this machine."""

from __future__ import annotations

import multiprocessing
import pickle
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Self

from tpuconvert.known_errors import known_error
from tpuconvert.runtime.threads import available_threads, limited_threads
from tpuconvert.schema.errors import InternalError, ResourceLimitError, TpuConvertError
from tpuconvert.workers.child_process import isolated_starts
from tpuconvert.workers.environment import Environment
from tpuconvert.workers.workers import ATTEMPTS, Failure, R, S, Shard, Task, Workers


@dataclass
class _Worker:
    process: BaseProcess
    connection: Connection
    task: bytes | None = None
    """The task that the process has."""
    shard: int | None = None
    """The shard that it runs."""


@dataclass(frozen=True)
class _Answer:
    """The result of a shard, sent to the client. What is sent before it are numbers of steps done."""

    result: Any


class Processes(Workers):
    """Processes of this machine, each with its part of the processors.

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
    ) -> Iterator[tuple[int, R | Failure]]:
        """Yield the results as they arrive. A shard of a process that ends runs again in another one."""
        packed = self._pickled(task)
        waiting = deque(range(len(shards)))
        attempts = [0] * len(shards)
        self._start_all()
        for worker in self._workers:
            assert worker.shard is None, "the shards of another task are running"
        while waiting or any(worker.shard is not None for worker in self._workers):
            lost: list[tuple[int, int]] = []
            for position, worker in enumerate(self._workers):
                index = self._choose(waiting, shards, position)
                if index is not None:
                    waiting.remove(index)
                    attempts[index] += 1
                    if not _send(worker, packed, index, shards[index].content):
                        lost.append((position, index))
            running = [worker.connection for worker in self._workers if worker.shard is not None]
            ready = wait(running, timeout=0 if lost else None) if running else []
            for position, worker in enumerate(self._workers):
                if worker.shard is None or worker.connection not in ready:
                    continue
                index = worker.shard
                try:
                    answer = worker.connection.recv()
                except (EOFError, OSError):
                    lost.append((position, index))
                    continue
                if isinstance(answer, _Answer):
                    worker.shard = None
                    yield index, answer.result
                else:
                    progress(index, answer)
            for position, index in lost:
                reason = self._replace(position)
                if attempts[index] < ATTEMPTS:
                    waiting.appendleft(index)
                else:
                    yield index, Failure(lost_shard(shards[index], reason))

    def __enter__(self) -> Self:
        """Start the processes."""
        self._start_all()
        return self

    def close(self) -> None:
        """End the processes, even if they are running shards."""
        for worker in self._workers:
            worker.process.kill()
        for worker in self._workers:
            worker.process.join()
            worker.connection.close()
        self._workers = []

    def _start_all(self) -> None:
        while len(self._workers) < self.count:
            self._workers.append(self._start())

    def _choose(self, waiting: Iterable[int], shards: Sequence[Shard[Any]], position: int) -> int | None:
        """Return the shard that a worker runs next. It leaves a shard to the idle worker that it belongs to."""
        if self._workers[position].shard is not None:
            return None
        for index in waiting:
            worker = shards[index].worker
            own = position if worker is None else worker % len(self._workers)
            if own == position or self._workers[own].shard is not None:
                return index
        return None

    def _start(self) -> _Worker:
        ours, theirs = self._context.Pipe()
        arguments = (theirs, Environment.of_this_process(), self._threads)
        process = self._context.Process(target=_serve, args=arguments, daemon=True)
        with isolated_starts(), _blocked_interrupts():
            process.start()
        theirs.close()
        return _Worker(process, ours)

    def _replace(self, position: int) -> str:
        """Start another process in place of one that ended, and return the reason."""
        worker = self._workers[position]
        worker.process.join()
        worker.connection.close()
        self._workers[position] = self._start()
        return f"the last process ended with exit code {worker.process.exitcode}"


def lost_shard(shard: Shard[Any], reason: str) -> ResourceLimitError:
    """Create the error for a shard whose workers ended too often."""
    hint = "workers that are killed are often out of memory: use fewer of them"
    return ResourceLimitError(f"{shard.name}: {ATTEMPTS} workers ended while they ran it; {reason}", hint=hint)


@contextmanager
def _blocked_interrupts() -> Iterator[None]:
    """Block interrupts in processes that start in the block: until they ignore them, Ctrl-C would print a traceback."""
    resource_tracker.ensure_running()  # its start would unblock them
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _send(worker: _Worker, task: bytes, index: int, content: object) -> bool:
    """Send a shard, and the task unless the process has it. Return False if the process has ended."""
    try:
        worker.connection.send((worker.task is task, content))
        if worker.task is not task:
            worker.connection.send_bytes(task)
    except OSError:
        return False
    worker.task, worker.shard = task, index
    return True


def _serve(connection: Connection, environment: Environment, threads: int) -> None:
    """Run shards until the client closes the connection."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes of a terminal; the client ends them
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    task: Task[Any, Any] | None = None
    answer: _Answer
    while True:
        try:
            has_task, content = connection.recv()
            packed = None if has_task else connection.recv_bytes()
        except EOFError:
            return
        try:
            with limited_threads(threads):
                if packed is not None:
                    environment.check_and_load()
                    task = pickle.loads(packed)
                assert task is not None
                answer = _Answer(task.run(content, connection.send))
        except Exception as error:
            answer = _Answer(Failure(portable_error(error)))
        try:
            connection.send(answer)
        except OSError:  # the client was killed
            return


def portable_error(error: Exception) -> TpuConvertError:
    """Convert an error of a worker to one that can be pickled."""
    reported = known_error(error)
    try:
        pickle.loads(pickle.dumps(reported))
    except Exception:  # fields of a plugin's error may raise anything; its text is returned
        return InternalError(str(reported))
    return reported
