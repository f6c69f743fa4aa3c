"""Workers of a dask.distributed cluster, on any number of machines."""

from __future__ import annotations

import hashlib
import pickle
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tpuconvert.runtime.session import limited_threads
from tpuconvert.schema.errors import MissingExtraError, UsageError
from tpuconvert.workers.environment import Environment
from tpuconvert.workers.processes import lost_shard, portable_error
from tpuconvert.workers.workers import ATTEMPTS, Failure, R, S, Shard, Task, Workers

if TYPE_CHECKING:
    import distributed

INSTALL = "pip install 'tpuconvert[distributed]'"

_SECONDS = 10
"""Time to wait for the scheduler, and for its first worker."""

_RESTART_SECONDS = 30
"""Time to wait for a worker if all of them ended."""

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
        try:
            self._client: distributed.Client = distributed.Client(address, timeout=_SECONDS, set_as_default=False)
        except (OSError, ValueError, TypeError) as error:
            hint = "start one with: dask scheduler; its output has the address"
            raise UsageError(f"{address}: no dask scheduler answers ({error})", hint=hint) from error
        try:
            self._client.wait_for_workers(1, timeout=_SECONDS)
            nthreads = self._client.nthreads()
        except TimeoutError:
            self.close()
            hint = f"start workers with: dask worker {address} --nthreads 1 --nworkers N"
            raise UsageError(f"{address}: the scheduler has no workers", hint=hint) from None
        self.count = max(1, sum(nthreads.values()))

    def results(
        self, task: Task[S, R], shards: Sequence[Shard[S]], progress: Callable[[int, int], None]
    ) -> Iterator[tuple[int, R | Failure]]:
        """Yield the results as they arrive; progress is that of whole shards.

        A shard of a worker that ends runs again on another one.
        """
        packed = self._pickled(task)
        environment = Environment.of_this_process()
        waiting = deque((index, 1) for index in range(len(shards)))
        while waiting:
            lost = []
            for index, attempt, result in self._round(packed, environment, shards, waiting):
                if not isinstance(result, _Lost):
                    yield index, result
                elif attempt < ATTEMPTS:
                    lost.append((index, attempt + 1))
                else:
                    yield index, Failure(lost_shard(shards[index], result.reason))
            waiting = deque(lost)

    def _round(
        self, packed: bytes, environment: Environment, shards: Sequence[Shard[Any]], waiting: Sequence[tuple[int, int]]
    ) -> Iterator[tuple[int, int, Any]]:
        """Submit shards. Yield index, attempt, and the result or a ``_Lost``."""
        # 0 ms: imported by the constructor
        import distributed

        if self._sent is None or self._sent[0] is not packed:
            try:
                # The only worker may have ended and be starting again.
                self._client.wait_for_workers(1, timeout=_RESTART_SECONDS)
                future = self._client.scatter(packed, broadcast=True, hash=False)
            except TimeoutError:
                yield from ((index, attempt, _Lost("the scheduler has no workers")) for index, attempt in waiting)
                return
            self._sent = packed, hashlib.sha256(packed).digest(), future
        _, digest, sent = self._sent
        addresses = sorted(self._client.nthreads())
        running = {}
        for index, attempt in waiting:
            content = pickle.dumps(shards[index].content, protocol=pickle.HIGHEST_PROTOCOL)
            place = shards[index].place
            where: dict[str, Any] = {}
            if place is not None and addresses:
                where = {"workers": [addresses[place % len(addresses)]], "allow_other_workers": True}
            future = self._client.submit(_run, sent, digest, environment, content, pure=False, **where)
            running[future] = index, attempt
        try:
            for future in distributed.as_completed(running, loop=self._client.loop):
                index, attempt = running.pop(future)
                try:
                    yield index, attempt, future.result()
                except distributed.KilledWorker as error:
                    yield index, ATTEMPTS, _Lost(f"the last one was {error.last_worker.address}")
                except distributed.CancelledError as error:
                    self._sent = None  # perhaps the only worker that had the task ended
                    yield index, attempt, _Lost(f"the scheduler cancelled it ({error})")
                except ImportError as error:
                    hint = f"install tpuconvert {environment.version} on every worker"
                    raise UsageError(f"{self._address}: a worker cannot import {error.name}", hint=hint) from error
        finally:
            self._client.cancel(list(running))

    def close(self) -> None:
        """Leave the cluster; its workers stay."""
        self._client.close()


@dataclass(frozen=True)
class _Lost:
    """Reason for which the workers of a shard have no result."""

    reason: str


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


def _ignore(_: int) -> None:
    """Report no progress."""


def _task(packed: bytes, digest: bytes) -> Task[Any, Any]:
    """Unpickle a task, unless it is the one of the last call."""
    if digest not in _last_task:
        _last_task.clear()
        _last_task[digest] = pickle.loads(packed)
    return _last_task[digest]
