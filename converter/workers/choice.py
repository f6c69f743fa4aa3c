"""Choose the workers that options request."""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

from tpuconvert.schema.errors import UsageError
from tpuconvert.workers.cluster import Cluster
from tpuconvert.workers.processes import Processes
from tpuconvert.workers.workers import ThisProcess, Workers

QUANTIZER = ("tpuconvert.quantize.calibration_shards", "tpuconvert.quantize.refinement_shards")
"""Modules of the tasks of a quantization. Their import takes 200 ms."""


def open_workers(
    count: int | Workers, scheduler: str | None, modules: Sequence[str] = ()
) -> AbstractContextManager[Workers]:
    """Return workers, for a ``with`` block.

    Args:
        count: number of processes; 1 is the calling process. Or open workers, which the block does not close.
        scheduler: address of a dask scheduler, or None.
        modules: as for ``Processes``.

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
    return ThisProcess() if count == 1 or is_worker else Processes(count, modules)
