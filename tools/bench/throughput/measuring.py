"""Measure engines under the same load in turns, so that changes of the machine affect all of them."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from tools.bench.rounds import Ratio, started, take_turns
from tools.bench.throughput.load import Load, LoadWorker, percentile
from tools.bench.throughput.servers import Service


@dataclass(frozen=True)
class Served:
    """Measurements of one service.

    Args:
        label: label of the engine.
        images_per_second: median over the turns.
        latency_ms: median latency of a request.
        slow_ms: latency that 99 % of the requests do not exceed.
        ratio: throughput of tpuconvert divided by the throughput of the engine, per turn; None for tpuconvert.
        error: reason why there are no measurements.
    """

    label: str
    images_per_second: float = 0.0
    latency_ms: float = 0.0
    slow_ms: float = 0.0
    ratio: Ratio | None = None
    error: str = ""


def measure_load(services: Sequence[Service], cpus: list[int], rounds: int, seconds: float) -> list[Served]:
    """Measure services in turns; the first one is tpuconvert.

    Args:
        services: engines with the same load.
        cpus: processors on which all engines run.
        rounds: number of turns per engine, in addition to one warm-up round.
        seconds: approximate duration of a turn.
    """
    with contextlib.ExitStack() as stack:
        workers, failed = started(
            [stack.enter_context(LoadWorker(service, cpus)) for service in services], lambda worker: worker.run(1)
        )
        counts = {worker: _requests_in(worker.run(3), seconds, worker.service) for worker in workers}
        loads = take_turns(counts, rounds)
    turns = {worker.service: loads[worker] for worker in workers}
    errors = {worker.service: error for worker, error in failed.items()}
    ours = turns.get(services[0])
    return [
        _summary(service, turns[service], None if service is services[0] else ours)
        if service in turns
        else Served(service.label, error=errors[service])
        for service in services
    ]


def _requests_in(trial: Load, seconds: float, service: Service) -> int:
    """Return the number of requests of each client for a turn of this duration."""
    return max(1, round(seconds * trial.images_per_second / service.batch / service.clients))


def _summary(service: Service, loads: list[Load], reference: list[Load] | None) -> Served:
    ratio = None
    if reference:
        pairs = zip(reference, loads, strict=True)
        ratio = Ratio.of([ours.images_per_second / theirs.images_per_second for ours, theirs in pairs])
    latencies = [latency for load in loads for latency in load.latencies]
    return Served(
        service.label,
        statistics.median([load.images_per_second for load in loads]),
        1e3 * statistics.median(latencies),
        1e3 * percentile(latencies, 0.99),
        ratio,
    )
