"""Time engines in turns: every engine runs briefly in each round, and is compared with tpuconvert in the same round.

Temporary load or throttling affects all engines alike. Ratios from different runs of this program are comparable;
absolute times are not.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from tools.bench.engine_process import EngineError
from tools.bench.engines import Job
from tools.bench.worker import Times, Worker

TRIAL_RUNS = 3
MOST_RUNS = 400
PAUSE = 0.02
"""Pause between turns in seconds, because threads of the previous engine may still be spinning."""


@dataclass(frozen=True)
class Ratio:
    """Time of an engine divided by the time of tpuconvert: median, smallest and largest ratio over the rounds."""

    median: float
    low: float
    high: float

    @staticmethod
    def of(pairs: Sequence[float]) -> Ratio:
        """Return the ratio of two engines from one ratio per round."""
        return Ratio(statistics.median(pairs), min(pairs), max(pairs))


class Engine(Protocol):
    """A process that runs one engine."""

    def run(self, count: int, /) -> Any:
        """Run the subject a number of times and return the measurements."""


E = TypeVar("E", bound=Engine)


def started(workers: Sequence[E], start: Callable[[E], object]) -> tuple[list[E], dict[E, str]]:
    """Start every worker; return those that work, and the reasons of the others."""
    able, errors = [], {}
    for worker in workers:
        try:
            start(worker)
            able.append(worker)
        except EngineError as error:
            errors[worker] = str(error)
    return able, errors


def take_turns(counts: Mapping[E, int], rounds: int) -> dict[E, list[Any]]:
    """Let every engine run briefly in each round, after a warm-up round, and return the measurements per round."""
    turns: dict[E, list[Any]] = {worker: [] for worker in counts}
    for number in range(rounds + 1):
        for worker, count in counts.items():
            time.sleep(PAUSE)
            times = worker.run(count)
            if number:
                turns[worker].append(times)
    return turns


@dataclass(frozen=True)
class Measured:
    """Measurements of one model in one engine.

    Args:
        label: label of the job.
        cpu_ms: median processor time of all runs.
        wall_ms: shortest wall time.
        runs: number of measured runs.
        ratio: ratio to the first job, None for the first job: of processor times for one thread, else of wall times.
        error: reason why there are no measurements.
    """

    label: str
    cpu_ms: float = 0.0
    wall_ms: float = 0.0
    runs: int = 0
    ratio: Ratio | None = None
    error: str = ""


def measure(jobs: Sequence[Job], cpus: list[int], rounds: int, seconds: float) -> list[Measured]:
    """Time engines in turns; the first job is the reference of the ratios.

    Args:
        jobs: the engines with their models.
        cpus: processors on which all engines run.
        rounds: number of turns per engine, in addition to one warm-up round.
        seconds: approximate duration of a turn.
    """
    with contextlib.ExitStack() as stack:
        workers, errors = started([stack.enter_context(Worker(job, cpus)) for job in jobs], _load)
        turns = take_turns({worker: _runs_in(worker.run(TRIAL_RUNS), seconds) for worker in workers}, rounds)
    return _summaries(jobs, {worker.job: turns[worker] for worker in workers}, _by_job(errors))


def measure_loads(jobs: Sequence[Job], cpus: list[int], rounds: int) -> list[Measured]:
    """Time the loading of a model, engines taking turns. The first load is not counted, because it includes imports."""
    with contextlib.ExitStack() as stack:
        workers, errors = started([stack.enter_context(Worker(job, cpus)) for job in jobs], _load)
        turns: dict[Job, list[Times]] = {worker.job: [] for worker in workers}
        for _ in range(rounds):
            for worker in workers:
                turns[worker.job].append(worker.load())
    return _summaries(jobs, turns, _by_job(errors))


def _load(worker: Worker) -> None:
    worker.load()
    worker.run(1)


def _by_job(errors: Mapping[Worker, str]) -> dict[Job, str]:
    return {worker.job: error for worker, error in errors.items()}


def _runs_in(trial: Times, seconds: float) -> int:
    return max(1, min(MOST_RUNS, int(seconds / min(trial.wall))))


def _summaries(jobs: Sequence[Job], turns: dict[Job, list[Times]], errors: dict[Job, str]) -> list[Measured]:
    ours = turns.get(jobs[0])
    return [
        _summary(job, turns[job], None if job is jobs[0] else ours, jobs[0].threads)
        if job in turns
        else Measured(job.label, error=errors[job])
        for job in jobs
    ]


def _summary(job: Job, turns: list[Times], reference: list[Times] | None, threads: int) -> Measured:
    ratio = None
    if reference:
        threads = max(threads, job.threads)
        pairs = zip(turns, reference, strict=True)
        ratio = Ratio.of([_of(threads, mine) / _of(threads, ours) for mine, ours in pairs])
    cpu = [each for times in turns for each in times.cpu]
    wall = [each for times in turns for each in times.wall]
    return Measured(job.label, 1e3 * statistics.median(cpu), 1e3 * min(wall), len(wall), ratio)


def _of(threads: int, times: Times) -> float:
    """Return the median processor time for one thread, otherwise the shortest wall time."""
    return times.median_cpu if threads == 1 else min(times.wall)
