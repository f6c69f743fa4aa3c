"""Calibration split by sample over workers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tpuconvert.diagnosis.samples import SampleStatistics
from tpuconvert.optimizer.quantize.calibration import calibrate, check_mergeable, collect, merge_into
from tpuconvert.optimizer.quantize.calibrators import Collector
from tpuconvert.optimizer.quantize.first_samples import FirstMeans
from tpuconvert.optimizer.quantize.ranges import Range
from tpuconvert.runtime.session import Session
from tpuconvert.samples.calibration_data import FeedSource
from tpuconvert.schema.graph import Graph
from tpuconvert.schema.graph_copy import FlatGraph
from tpuconvert.workers.workers import Shard, ThisProcess, Workers, bounds

SHARDS = 4
"""Number of shards per worker. More of them balance the load of workers of different speed."""


class Calibration:
    """Task: the collectors of all tensors on a shard of the samples, and the statistics of these samples.

    Args:
        graph: float graph.
        method: see ``calibrate``.
        methods: see ``calibrate``.
    """

    def __init__(self, graph: Graph, method: str, methods: Mapping[str, str]) -> None:
        self._graph = graph
        self._methods = method, methods
        self._session: Session | None = None

    def run(self, shard: FeedSource, progress: Callable[[int], None]) -> tuple[dict[str, Collector], SampleStatistics]:
        """Run the graph on the samples. The session is kept for the next shard."""
        if self._session is None:
            self._session = Session(self._graph, observed=True)
        statistics = SampleStatistics(self._graph.input_ports, shard.images)
        feeds, (method, methods) = statistics.watch(shard), self._methods
        with np.errstate(all="ignore"):
            return collect(self._graph, feeds, method, progress, methods, session=self._session), statistics

    def __getstate__(self) -> dict[str, Any]:
        return {"_graph": FlatGraph.of(self._graph), "_methods": self._methods, "_session": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _graph=state["_graph"].build())


def calibrate_on(
    workers: Workers,
    graph: Graph,
    feeds: FeedSource,
    method: str,
    methods: Mapping[str, str],
    progress: Callable[[int], None],
    means: FirstMeans | None = None,
) -> tuple[dict[str, Range], SampleStatistics]:
    """Return the ranges of all tensors, and the statistics of the samples. Neither depends on the workers.

    Args:
        workers: run the graph.
        graph: float graph.
        feeds: calibration samples.
        method: see ``calibrate``.
        methods: see ``calibrate``.
        progress: called with the number of batches done.
        means: receives the means on the first samples.

    Raises:
        UsageError: the samples must not be split, because the collectors of a plugin cannot be merged.
    """
    statistics = SampleStatistics(graph.input_ports, feeds.images)
    if isinstance(workers, ThisProcess):
        return calibrate(graph, statistics.watch(feeds), method, progress, methods, means), statistics
    check_mergeable(method, methods)
    # A shard has either first samples or others, so that the means can be recorded before all are merged.
    count = means.count(feeds) if means is not None else 0
    of_first = sample_shards(feeds, 0, count, workers)
    shards = [*of_first, *sample_shards(feeds, count, len(feeds), workers)]
    first: dict[str, Collector] = {}
    others: dict[str, Collector] = {}
    parts: dict[int, SampleStatistics] = {}
    for index, (found, part) in workers.map(Calibration(graph, method, methods), shards, progress):
        merge_into(first if index < len(of_first) else others, found)
        parts[index] = part
    if means is not None:
        means.record(first)
    merge_into(others, first)
    for index in sorted(parts):
        statistics.extend(parts[index])
    return {name: item.result() for name, item in others.items()}, statistics


def sample_shards(feeds: FeedSource, start: int, end: int, workers: Workers) -> list[Shard[FeedSource]]:
    """Split the batches ``start`` to ``end - 1``. All batches together give about ``SHARDS`` shards per worker."""
    parts = math.ceil(SHARDS * workers.count * (end - start) / len(feeds))
    return [
        Shard(f"samples {start + low} to {start + high - 1}", high - low, feeds.part(start + low, start + high))
        for low, high in bounds(end - start, parts)
    ]
