"""Runs of a model on samples that are split over workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from tpuconvert.model import Model
from tpuconvert.runtime.session import Session
from tpuconvert.samples.calibration_data import FeedSource
from tpuconvert.schema.graph import Graph
from tpuconvert.schema.graph_copy import FlatGraph
from tpuconvert.schema.types import Array, Chip
from tpuconvert.workers.workers import Shard, ThisProcess, Workers, bounds

_SHARDS = 4
"""Number of shards per worker."""

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
    """Task: outputs of a model for every feed of a shard.

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

    def run(self, shard: FeedSource, progress: Callable[[int], None]) -> list[Outputs]:
        """Run the model; the session is kept for the next shard."""
        names, backend, threads = self._settings
        if self._session is None:
            self._session = Session(self, backend=backend, threads=threads)
        results = []
        for done, feed in enumerate(shard, start=1):
            found = self._session.run(feed)
            results.append(Outputs({name: found[name] for name in names}, self._session.backend))
            progress(done)
        return results

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "graph": FlatGraph.of(self.graph), "_session": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, graph=state["graph"].build())


@np.errstate(all="ignore")
def run_on(
    workers: Workers,
    model: Model,
    feeds: FeedSource,
    outputs: Sequence[str],
    *,
    backend: Backend = "auto",
    threads: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Iterator[Outputs]:
    """Run a model on workers and yield the outputs for every feed, in the order of the feeds.

    Args:
        workers: run the model.
        model: the model.
        feeds: its inputs.
        outputs: names of the outputs to yield.
        backend: as for ``Session``.
        threads: number of engine threads of each worker; None for its share of the processors.
        progress: called with the number of feeds done.
    """
    # In this process each feed is a shard, so that only its outputs are in memory.
    parts = len(feeds) if isinstance(workers, ThisProcess) else _SHARDS * workers.count
    shards = [
        Shard(f"samples {start} to {end - 1}", end - start, feeds.part(start, end))
        for start, end in bounds(len(feeds), parts)
    ]
    task = _ModelRun(model.graph, model.chip, outputs, backend, threads)
    for results in workers.map_in_order(task, shards, progress):
        yield from results
