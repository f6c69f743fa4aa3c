"""A process with one engine under load: clients that send their next request as soon as the last one is answered."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection

from tools.bench.engine_process import EngineError, EngineProcess, in_short
from tools.bench.engines import Run, limit_threads
from tools.bench.throughput.servers import SERVERS, Service


@dataclass(frozen=True)
class Load:
    """Measurement of one turn.

    Args:
        seconds: wall time from the first request to the last answer.
        latencies: wall time of every request, in seconds.
        images: number of images of all requests.
    """

    seconds: float
    latencies: tuple[float, ...]
    images: int

    @property
    def images_per_second(self) -> float:
        """Throughput."""
        return self.images / self.seconds


def run_clients(runs: Sequence[Run], requests: int, batch: int) -> Load:
    """Let every client run its share of the requests.

    Args:
        runs: the function of each client.
        requests: number of requests of each client.
        batch: number of images of a request.
    """
    start_together = threading.Barrier(len(runs) + 1)
    latencies: list[list[float]] = [[] for _ in runs]

    def work(run: Run, mine: list[float]) -> None:
        start_together.wait()
        for _ in range(requests):
            start = time.perf_counter()
            run()
            mine.append(time.perf_counter() - start)

    threads = [threading.Thread(target=work, args=each) for each in zip(runs, latencies, strict=True)]
    for thread in threads:
        thread.start()
    start_together.wait()
    start = time.perf_counter()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - start
    found = tuple(latency for mine in latencies for latency in mine)
    if len(found) != len(runs) * requests:
        raise EngineError("a client failed")
    return Load(seconds, found, len(found) * batch)


class LoadWorker(EngineProcess):
    """A process with one service, as a context manager.

    Raises:
        EngineError: the engine is not installed or cannot run the model.
    """

    def __init__(self, service: Service, cpus: list[int]) -> None:
        super().__init__(service.label, _serve, service, cpus)
        self.service = service

    def run(self, requests: int) -> Load:
        """Run this number of requests per client."""
        answer = self._ask(requests)
        assert isinstance(answer, Load)
        return answer


def _serve(pipe: Connection, service: Service, cpus: list[int]) -> None:
    """Process requests until the other end of the pipe is closed."""
    limit_threads(service.threads, cpus)
    runs: list[Run] = []
    while True:
        try:
            requests = pipe.recv()
        except EOFError:
            return
        try:
            runs = runs or open_clients(service, SERVERS[service.engine])
            pipe.send(run_clients(runs, requests, service.batch))
        except ImportError as error:
            pipe.send(EngineError(f"not installed ({error})"))
        except Exception as error:  # any exception of an engine becomes a row of the table
            pipe.send(EngineError(in_short(error)))


def open_clients(service: Service, server: Callable[[Service], Callable[[], Run]]) -> list[Run]:
    """Return the function of each client; each has run once."""
    client = server(service)
    runs = [client() for _ in range(service.clients)]
    for run in runs:
        run()
    return runs


def percentile(latencies: Sequence[float], share: float) -> float:
    """Return the latency that a share of the requests does not exceed."""
    ordered = sorted(latencies)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
