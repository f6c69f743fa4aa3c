"""One process per engine, which loads a model and runs it on request, so that engines can take turns."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tools.bench.engine_process import EngineError, EngineProcess, in_short
from tools.bench.engines import Job, import_engine, limit_threads, open_job, open_session, read_feeds
from tpuconvert.run.benchmark import KernelCost


@dataclass(frozen=True)
class Times:
    """Wall times and processor times of consecutive runs, in seconds."""

    wall: tuple[float, ...]
    cpu: tuple[float, ...]

    @property
    def median_cpu(self) -> float:
        """Median processor time, which does not depend on the load from other processes."""
        return statistics.median(self.cpu)


class Worker(EngineProcess):
    """A process with one engine, as a context manager.

    Raises:
        EngineError: the engine is not installed or cannot load the model.
    """

    def __init__(self, job: Job, cpus: list[int]) -> None:
        super().__init__(job.label, _serve, job, cpus)
        self.job = job

    def prepare(self) -> None:
        """Import all modules of the engine without loading the model."""
        self._ask(("prepare",))

    def load(self) -> Times:
        """Load the model, also if it was loaded before."""
        return self._request_times("load")

    def run(self, count: int) -> Times:
        """Run the model ``count`` times."""
        return self._request_times("run", count)

    def kernels(self, runs: int) -> list[KernelCost]:
        """Return the median time per kernel over this number of runs."""
        found: list[KernelCost] = self._ask(("kernels", runs))
        return found

    def peak_bytes(self) -> int:
        """Return the peak resident memory of the process, in bytes."""
        return int(self._ask(("peak_bytes",)))

    def _request_times(self, *request: Any) -> Times:
        wall, cpu = self._ask(request)
        return Times(wall, cpu)


def _serve(pipe: Connection, job: Job, cpus: list[int]) -> None:
    """Process requests until the other end of the pipe is closed."""
    limit_threads(job.threads, cpus)
    engine = _Loaded(job)
    while True:
        try:
            name, *arguments = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send(getattr(engine, name)(*arguments))
        except ImportError as error:
            pipe.send(EngineError(f"{job.label}: not installed ({error})"))
        except Exception as error:  # any exception of an engine becomes a row of the table
            pipe.send(EngineError(f"{job.label}: {in_short(error)}"))


_Pair = tuple[tuple[float, ...], tuple[float, ...]]


def _time_call(call: Callable[[], object], count: int) -> _Pair:
    wall, cpu = [], []
    for _ in range(count):
        on_cpu, on_clock = time.process_time(), time.perf_counter()
        call()
        wall.append(time.perf_counter() - on_clock)
        cpu.append(time.process_time() - on_cpu)
    return tuple(wall), tuple(cpu)


class _Loaded:
    """State of the worker process."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._run: Any = None

    def prepare(self) -> None:
        import_engine(self._job)

    def load(self) -> _Pair:
        self._run = None  # free the previous model first
        gc.collect()

        def open_it() -> None:
            self._run = open_job(self._job)

        return _time_call(open_it, 1)

    def run(self, count: int) -> _Pair:
        return _time_call(self._run, count)

    def kernels(self, runs: int) -> list[KernelCost]:
        from tpuconvert.model.model import load
        from tpuconvert.run.benchmark import by_kernel, profile_steps

        model = load(self._job.model)
        with open_session(self._job, model) as session:
            return by_kernel(profile_steps(session, model.graph, read_feeds(self._job), runs))

    def peak_bytes(self) -> int:
        """Read the peak resident memory. ``getrusage`` is unsuitable: its maximum includes the parent process."""
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        return 1024 * int(next(line.split()[1] for line in lines if line.startswith("VmHWM:")))
