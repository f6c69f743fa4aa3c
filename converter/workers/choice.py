"""Choose the workers that options request."""

from __future__ import annotations

import multiprocessing
from contextlib import AbstractContextManager, nullcontext

from tpuconvert.schema.errors import UsageError
from tpuconvert.workers.cluster import Cluster
from tpuconvert.workers.processes import Processes
from tpuconvert.workers.threads import Threads
from tpuconvert.workers.workers import ThisProcess, Workers


def open_workers(
    count: int | Workers, scheduler: str | None, *, in_processes: bool = False
) -> AbstractContextManager[Workers]:
    """Return workers, for a ``with`` block.

    Args:
        count: number of workers on this machine; 1 is the caller. Or open workers, which the block does not close.
        scheduler: address of a dask scheduler, or None.
        in_processes: True for tasks that spend their time in Python, of which threads run one at a time.

    Raises:
        MissingExtraError: dask.distributed is not installed.
        UsageError: both are given, or the scheduler does not answer.
    """
    if isinstance(count, Workers):
        return nullcontext(count)
    if scheduler is not None:
        if count != 1:
            raise UsageError(
                f"--workers {count} with --scheduler", hint="leave one out: the scheduler has its own workers"
            )
        return Cluster(scheduler)
    # A worker has no workers of its own: a model of a manifest, which requests them, may run in one.
    is_worker = multiprocessing.current_process().daemon
    if count == 1 or is_worker:
        return ThisProcess()
    return Processes(count) if in_processes else Threads(count)
