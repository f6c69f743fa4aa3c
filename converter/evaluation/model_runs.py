"""Runs of a model on samples that are split over workers."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from tpuconvert.model.model import Model
from tpuconvert.runtime.session.session import Session
from tpuconvert.samples.calibration_data import FeedSource
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.graph.graph_copy import FlatGraph
from tpuconvert.schema.types import Array, Chip
from tpuconvert.workers.workers import Shard, ThisProcess, Workers, bounds

Backend = Literal["auto", "native", "reference"]


@dataclass(frozen=True)
class Outputs:
    """Outputs of a model for one feed.

    Args:
        arrays: outputs by name.
        backend: backend that ran the model.
    """

    arrays: dict[str, Array]
    backend: str


class _ModelRun:
    """Outputs of a model for the feeds of a shard.

    Args:
        graph: graph of the model.
        chip: its chip.
        outputs: names of the outputs to return.
        backend: as for ``Session``.
        threads: as for ``Session``; None for the number that the worker has.
    """

    def __init__(self, graph: Graph, chip: Chip, outputs: Sequence[str], backend: Backend, threads: int | None) -> None:
        self.graph = graph
        self.chip = chip
        self._settings = tuple(outputs), backend, threads
        self._session: Session | None = None

    def outputs(self, shard: FeedSource) -> Iterator[Outputs]:
        """Yield the outputs for each feed; the session is kept for the next shard."""
        names, backend, threads = self._settings
        if self._session is None:
            self._session = Session(self, backend=backend, threads=threads)
        for feed in shard:
            outputs = self._session.run(feed)
            yield Outputs({name: outputs[name] for name in names}, self._session.backend)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "graph": FlatGraph.of(self.graph), "_session": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, graph=state["graph"].build())


class _ModelRuns:
    """Task: for each feed of a shard, the outputs of several models."""

    def __init__(self, runs: Sequence[_ModelRun]) -> None:
        self._runs = runs

    def __copy__(self) -> _ModelRuns:
        return _ModelRuns([copy.copy(run) for run in self._runs])

    def run(self, shard: Sequence[FeedSource], progress: Callable[[int], None]) -> list[tuple[Outputs, ...]]:
        """Run the models in turn."""
        results = []
        parts = [run.outputs(part) for run, part in zip(self._runs, shard, strict=True)]
        for done, outputs in enumerate(zip(*parts, strict=True), start=1):
            results.append(outputs)
            progress(done)
        return results


@dataclass(frozen=True)
class ModelFeeds:
    """A model, its feeds, and the names of the outputs that are wanted."""

    model: Model
    feeds: FeedSource
    outputs: Sequence[str]


@np.errstate(all="ignore")
def run_on(
    workers: Workers,
    models: Sequence[ModelFeeds],
    *,
    backend: Backend = "auto",
    threads: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Iterator[tuple[Outputs, ...]]:
    """Run models on workers and yield the outputs of all models for every feed, in the order of the feeds.

    Args:
        workers: run the models.
        models: the models with their feeds, the same number for each.
        backend: as for ``Session``.
        threads: number of engine threads of each worker; None for its share of the processors.
        progress: called with the number of feeds done.
    """
    # In this process each feed is a shard, so that only its outputs are in memory.
    count = len(models[0].feeds)
    parts = count if isinstance(workers, ThisProcess) else workers.shards_per_worker * workers.count
    shards: list[Shard[Sequence[FeedSource]]] = [
        Shard(f"samples {start} to {end - 1}", end - start, [item.feeds.part(start, end) for item in models])
        for start, end in bounds(count, parts)
    ]
    runs = [_ModelRun(item.model.graph, item.model.chip, item.outputs, backend, threads) for item in models]
    for results in workers.map_in_order(_ModelRuns(runs), shards, progress):
        yield from results
