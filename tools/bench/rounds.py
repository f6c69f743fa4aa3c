"""Time engines in turns: in every round each one runs briefly and is compared with tpuconvert in that round.

Temporary load or throttling affects all engines alike. Absolute times of different calls of this program are not
comparable; the ratios are.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

from bench.engines import Job
from bench.worker import EngineError, Times, Worker

TRIAL_RUNS = 3
MOST_RUNS = 400
PAUSE = 0.02
"""Pause between turns in seconds: threads of the previous engine may still spin."""


@dataclass(frozen=True)
class Ratio:
    """Time of an engine divided by that of tpuconvert: median over the rounds, smallest and largest."""

    median: float
    low: float
    high: float


@dataclass(frozen=True)
class Measured:
    """One engine with one model.

    Args:
        label: of the job.
        cpu_ms: median time on the processor of all runs.
        wall_ms: shortest time on the clock.
        runs: that were measured.
        ratio: to the first job, None for that one itself. One thread: of times on the processor; several: on the clock.
        error: why there are no numbers.
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
        jobs: the engines.
        cpus: where all of them run.
        rounds: so often each one has its turn, plus one round to warm up.
        seconds: that a turn takes about.
    """
    with contextlib.ExitStack() as stack:
        workers, errors = _ready([stack.enter_context(Worker(job, cpus)) for job in jobs])
        turns: dict[Worker, list[Times]] = {worker: [] for worker in workers}
        counts = {worker: _runs_in(worker.run(TRIAL_RUNS), seconds) for worker in workers}
        for number in range(rounds + 1):
            for worker in workers:
                time.sleep(PAUSE)
                times = worker.run(counts[worker])
                if number:
                    turns[worker].append(times)
    return _summaries(jobs, {worker.job: turns[worker] for worker in workers}, errors)


def measure_loads(jobs: Sequence[Job], cpus: list[int], rounds: int) -> list[Measured]:
    """Time how long engines take to load a model, in turns. The first load, with the imports, does not count."""
    with contextlib.ExitStack() as stack:
        workers, errors = _ready([stack.enter_context(Worker(job, cpus)) for job in jobs])
        turns: dict[Job, list[Times]] = {worker.job: [] for worker in workers}
        for _ in range(rounds):
            for worker in workers:
                turns[worker.job].append(worker.load())
    return _summaries(jobs, turns, errors)


def _ready(workers: list[Worker]) -> tuple[list[Worker], dict[Job, str]]:
    """Load every model once; return the workers, and the reasons for failures."""
    able, errors = [], {}
    for worker in workers:
        try:
            worker.load()
            worker.run(1)
            able.append(worker)
        except EngineError as error:
            errors[worker.job] = str(error)
    return able, errors


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
        pairs = [_of(threads, mine) / _of(threads, ours) for mine, ours in zip(turns, reference, strict=True)]
        ratio = Ratio(statistics.median(pairs), min(pairs), max(pairs))
    cpu = [each for times in turns for each in times.cpu]
    wall = [each for times in turns for each in times.wall]
    return Measured(job.label, 1e3 * statistics.median(cpu), 1e3 * min(wall), len(wall), ratio)


def _of(threads: int, times: Times) -> float:
    """Wall time if either uses several threads, otherwise processor time."""
    return times.median_cpu if threads == 1 else min(times.wall)
