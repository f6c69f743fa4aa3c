"""Calibration split by sample over workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tpuconvert.conversion.quantization.counted_samples import Counted, Part
from tpuconvert.optimizer.quantize.calibration.calibration import (
    AutoTensors,
    calibrate,
    check_mergeable,
    collect,
)
from tpuconvert.optimizer.quantize.calibration.first_samples import FirstMeans
from tpuconvert.optimizer.quantize.calibration.recorded_floats import RecordedFloats
from tpuconvert.optimizer.quantize.ranges.calibrators import Collector
from tpuconvert.optimizer.quantize.ranges.ranges import Range
from tpuconvert.runtime.session.session import Session
from tpuconvert.samples.calibration_data import FeedSource
from tpuconvert.samples.sample_statistics import SampleStatistics
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.graph.graph_copy import FlatGraph
from tpuconvert.workers.workers import Shard, ThisProcess, Workers, bounds


@dataclass(frozen=True)
class Batches:
    """Consecutive batches of the samples.

    Args:
        start: number of the first one.
        feeds: their feeds.
    """

    start: int
    feeds: FeedSource


class Calibration:
    """Task: the collectors of all tensors on a shard of the samples, and the statistics of these samples.

    Args:
        graph: float graph.
        method: see ``calibrate``.
        methods: see ``calibrate``.
        keeps: names of the tensors whose histograms are kept.
        floats: records other tensors, in this process only.
    """

    def __init__(
        self,
        graph: Graph,
        method: str,
        methods: Mapping[str, str],
        keeps: frozenset[str] = frozenset(),
        floats: RecordedFloats | None = None,
    ) -> None:
        self._graph = graph
        self._methods = method, methods
        self._keeps = keeps
        self._floats = floats
        self._session: Session | None = None

    def run(self, shard: Batches, progress: Callable[[int], None]) -> tuple[dict[str, Collector], SampleStatistics]:
        """Run the graph on the samples. The session is kept for the next shard."""
        if self._session is None:
            self._session = Session(self._graph, observed=True)
        statistics = SampleStatistics(self._graph.input_ports, shard.feeds.images)
        feeds, (method, methods) = statistics.watch(shard.feeds), self._methods
        with np.errstate(all="ignore"):
            collectors = collect(
                self._graph,
                feeds,
                method,
                progress,
                methods,
                session=self._session,
                keeps=self._keeps,
                floats=self._floats,
                start=shard.start,
            )
        return collectors, statistics

    def __copy__(self) -> Calibration:
        """Return a task for another thread, which records to the same object."""
        return Calibration(FlatGraph.of(self._graph).build(), *self._methods, self._keeps, self._floats)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_graph": FlatGraph.of(self._graph), "_floats": None, "_session": None}

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
    auto: AutoTensors | None = None,
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
        auto: receives the collectors of the tensors with ``auto``.

    Raises:
        UsageError: the collectors of a plugin cannot be merged.
    """
    statistics = SampleStatistics(graph.input_ports, feeds.images)
    if isinstance(workers, ThisProcess):
        return calibrate(graph, statistics.watch(feeds), method, progress, methods, means, auto), statistics
    check_mergeable(method, methods)
    # A shard has either first samples or others, so that the means can be recorded before all are merged.
    first = means.count(feeds) if means is not None else 0
    counted = Counted()
    keeps = frozenset(auto.names) if auto is not None else frozenset()
    pieces = [*_split(0, first, len(feeds), workers), *_split(first, len(feeds), len(feeds), workers)]
    shards = [
        Shard(f"samples {low} to {high - 1}", high - low, Batches(low, feeds.part(low, high))) for low, high in pieces
    ]
    floats = means.floats if means is not None else None
    task = Calibration(graph, method, methods, keeps, floats)
    for index, (new_collectors, part) in workers.map(task, shards, progress):
        counted = counted.with_part(Part(*pieces[index], part), new_collectors, graph.input_ports, first)
    if means is not None:
        means.record(counted.first)
    for counted_part in counted.parts:
        statistics.extend(counted_part.statistics)
    collectors = counted.collectors()
    if auto is not None:
        auto.record(collectors)
    return {name: item.result() for name, item in collectors.items()}, statistics


def _split(start: int, end: int, count: int, workers: Workers) -> list[tuple[int, int]]:
    """Split the batches ``start`` to ``end - 1`` of ``count`` into shards, as many for every worker."""
    if start == end:
        return []
    parts = workers.count * max(1, round(workers.shards_per_worker * (end - start) / count))
    return [(start + low, start + high) for low, high in bounds(end - start, parts)]
