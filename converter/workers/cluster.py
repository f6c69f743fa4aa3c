"""Workers of a dask.distributed cluster, on any number of machines."""

from __future__ import annotations

import hashlib
import pickle
import queue
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tpuconvert.runtime.threads import limited_threads
from tpuconvert.schema.errors import MissingExtraError, ResourceLimitError, UsageError
from tpuconvert.workers.environment import Environment
from tpuconvert.workers.processes import lost_shard, portable_error
from tpuconvert.workers.workers import ATTEMPTS, Failure, R, S, Shard, Task, Workers

if TYPE_CHECKING:
    import distributed

INSTALL = "pip install 'tpuconvert[distributed]'"

_SECONDS = 10
"""Time to wait for the scheduler, and for its first worker."""

_RESTART_SECONDS = 60
"""Time to wait for a worker if all of them ended."""

_POLL_SECONDS = 2.0
"""Time between two looks at the list of workers while no result arrives."""

_SCHEDULER = "start one with: dask scheduler; its output has the address"
_START = "start workers with: dask worker {} --nthreads 1 --nworkers N"

_loading = threading.Lock()
_last_task: dict[bytes, Task[Any, Any]] = {}
"""On a worker: the last task by the digest of its pickle."""


class Cluster(Workers):
    """Workers of a dask scheduler. Each of their threads runs one shard at a time, with one thread of the engine.

    Args:
        address: address of the scheduler, such as ``tcp://host:8786``.

    Raises:
        MissingExtraError: dask.distributed is not installed.
        UsageError: no scheduler answers, or it has no workers.
    """

    def __init__(self, address: str) -> None:
        try:
            # 650 ms; an optional dependency
            import distributed
        except ImportError as error:
            raise MissingExtraError("--scheduler needs dask.distributed", hint=INSTALL) from error
        self._address = address
        self._sent: tuple[bytes, bytes, Any] | None = None
        self._seen = 0.0  # last time at which there were workers
        try:
            self._client: distributed.Client = distributed.Client(address, timeout=_SECONDS, set_as_default=False)
        except (OSError, ValueError, TypeError) as error:
            raise UsageError(f"{address}: no dask scheduler answers ({error})", hint=_SCHEDULER) from error
        try:
            self._client.wait_for_workers(1, timeout=_SECONDS)
            nthreads = self._client.nthreads()
        except TimeoutError:
            self.close()
            raise UsageError(f"{address}: the scheduler has no workers", hint=_START.format(address)) from None
        self.count = max(1, sum(nthreads.values()))

    def results(
        self, task: Task[S, R], shards: Sequence[Shard[S]], progress: Callable[[int, int], None]
    ) -> Iterator[tuple[int, R | Failure]]:
        """Yield the results as they arrive; progress is reported per shard.

        The scheduler runs a shard of a worker that ends again on another one, or on the next one that starts. If the
        connection to the scheduler was interrupted, the shards without a result are submitted again.
        """
        packed = self._pickled(task)
        environment = Environment.of_this_process()
        waiting = list(range(len(shards)))
        for _ in range(ATTEMPTS):
            lost = []
            for index, result in self._round(packed, environment, shards, waiting):
                if isinstance(result, _Lost):
                    lost.append(index)
                else:
                    yield index, result
            waiting = lost
            if not waiting:
                return
        raise self._disconnected()

    def _round(
        self, packed: bytes, environment: Environment, shards: Sequence[Shard[Any]], waiting: Sequence[int]
    ) -> Iterator[tuple[int, Any]]:
        """Submit shards. Yield the index and the result of each, or ``_Lost`` if the scheduler canceled it."""
        sent, digest = self._send(packed)
        self._seen = time.monotonic()
        addresses = self._addresses()
        finished: queue.SimpleQueue[Any] = queue.SimpleQueue()
        running = {}
        try:
            for index in waiting:
                content = pickle.dumps(shards[index].content, protocol=pickle.HIGHEST_PROTOCOL)
                worker = shards[index].worker
                where: dict[str, Any] = {}
                if worker is not None and addresses:
                    where = {"workers": [addresses[worker % len(addresses)]], "allow_other_workers": True}
                future = self._submit(_run, sent, digest, environment, content, **where)
                running[future] = index
                future.add_done_callback(finished.put)
            while running:
                future = self._next(finished)
                index = running.pop(future)
                yield index, self._result(future, shards[index], environment)
        finally:
            self._client.cancel(list(running))

    def _send(self, packed: bytes) -> tuple[Any, bytes]:
        """Return the future of a pickled task on the workers, and its digest.

        It is the result of a function: the scheduler computes it again if the only worker that had it ended. Data that
        are scattered would be lost, and scattering fails while a worker of the scheduler's list has ended.
        """
        if self._sent is None or self._sent[0] is not packed:
            self._sent = packed, hashlib.sha256(packed).digest(), self._submit(_identity, packed)
        _, digest, sent = self._sent
        return sent, digest

    def _submit(self, *call: Any, **where: Any) -> Any:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sending large graph")  # a task contains the constants of a network
            try:
                return self._client.submit(*call, pure=False, **where)
            except Exception as error:  # of a closed client: the class depends on the version of distributed
                raise self._disconnected() from error

    def _next(self, finished: queue.SimpleQueue[Any]) -> Any:
        """Wait for a future that is finished.

        Raises:
            ResourceLimitError: all workers ended, and none started again.
        """
        while True:
            try:
                return finished.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                self._check_workers()

    def _result(self, future: Any, shard: Shard[Any], environment: Environment) -> Any:
        """Return the result of a finished future, which runs again if the worker that has it ended meanwhile."""
        # 0 ms: imported by the constructor
        import distributed

        while True:
            try:
                return future.result(timeout=_RESTART_SECONDS)
            except TimeoutError:
                self._check_workers()
            except distributed.KilledWorker as error:
                return Failure(lost_shard(shard, f"the last one was {error.last_worker.address}"))
            except distributed.CancelledError:
                self._sent = None
                return _Lost()
            except ImportError as error:
                hint = f"install tpuconvert {environment.version} on every worker"
                raise UsageError(f"{self._address}: a worker cannot import {error.name}", hint=hint) from error

    def _check_workers(self) -> None:
        """Raise an error if there has been no worker for too long.

        Raises:
            ResourceLimitError: all workers ended, and none started again.
        """
        if self._addresses():
            self._seen = time.monotonic()
        elif time.monotonic() - self._seen > _RESTART_SECONDS:
            raise ResourceLimitError(
                f"{self._address}: all workers ended, and none has started for {_RESTART_SECONDS} seconds",
                hint=f"{_START.format(self._address)}; workers that are killed are often out of memory",
            )

    def _addresses(self) -> list[str]:
        """Addresses of the workers."""
        try:
            return sorted(self._client.nthreads())
        except (OSError, AttributeError, TimeoutError) as error:
            raise self._disconnected() from error

    def _disconnected(self) -> UsageError:
        """Create the error for a lost scheduler."""
        return UsageError(f"{self._address}: the connection to the scheduler was lost", hint=_SCHEDULER)

    def close(self) -> None:
        """Leave the cluster; its workers stay."""
        self._client.close()


class _Lost:
    """Result of a shard that the scheduler canceled, because it lost the connection to this process."""


def _run(packed: bytes, digest: bytes, environment: Environment, content: bytes) -> Any:
    """Run a shard on a worker of the cluster."""
    try:
        with _loading:
            environment.check_and_load()
            task = _task(packed, digest)
        with limited_threads(1):
            return task.run(pickle.loads(content), _ignore)
    except Exception as error:
        return Failure(portable_error(error))


def _identity(packed: bytes) -> bytes:
    """Return a pickled task."""
    return packed


def _ignore(_: int) -> None:
    """Report no progress."""


def _task(packed: bytes, digest: bytes) -> Task[Any, Any]:
    """Unpickle a task, unless it is the one of the last call."""
    if digest not in _last_task:
        _last_task.clear()
        _last_task[digest] = pickle.loads(packed)
    return _last_task[digest]
