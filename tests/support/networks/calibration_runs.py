"""Calibrations of the bundled example on given workers, as digests of the ranges."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.support.networks.small_models import examples
from tpuconvert.conversion.optimization import optimize_graph
from tpuconvert.conversion.options.options import Options
from tpuconvert.conversion.quantization.calibration_feeds import calibration_feeds
from tpuconvert.conversion.quantization.calibration_shards import calibrate_on
from tpuconvert.conversion.source import Source
from tpuconvert.conversion.source_loading import load_source
from tpuconvert.optimizer.precision_rules import METHODS
from tpuconvert.optimizer.quantize.calibration.calibration import AutoTensors
from tpuconvert.optimizer.quantize.calibration.first_samples import FirstMeans
from tpuconvert.samples.calibration_data import FeedSource
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.workers.workers import Shard, Workers

PREPROCESS = "color=GRAY,scale=0.0625"


@dataclass(frozen=True)
class Example:
    """The optimized graph of the example and its 100 calibration samples."""

    graph: Graph
    feeds: FeedSource

    def digest(
        self,
        workers: Workers,
        progress: Callable[[int], None] = lambda _: None,
    ) -> str:
        """SHA-256 of the ranges, the means on the first samples, the thresholds of all methods and the findings."""
        auto = AutoTensors(self.graph, "auto", {})
        means = FirstMeans(min(64, len(self.feeds) // 2))
        ranges, statistics = calibrate_on(workers, self.graph, self.feeds, "auto", {}, progress, means, auto)
        assert means.by_name and auto.collectors.keys() == auto.names
        content = [
            {name: asdict(found) for name, found in ranges.items()},
            {name: mean.tolist() for name, mean in means.by_name.items()},
            {name: [auto.collectors[name].threshold(method) for method in METHODS[1:]] for name in sorted(auto.names)},
            list(map(str, statistics.findings())),
        ]
        return hashlib.sha256(json.dumps(content, default=bytes.hex).encode()).hexdigest()


def load_example(calibration: Path | None = None) -> Example:
    """Load the example, with samples of a file or folder."""
    options = Options.of(quantize="int8", preprocess=PREPROCESS)
    graph = load_source(Source(examples() / "digits.onnx"), options)
    optimize_graph(graph, options)
    return Example(graph, calibration_feeds(graph, options, calibration or examples() / "calibration.npz"))


class Disordered(Workers):
    """Workers that run shards in random order and deliver some of them repeatedly. Everything is pickled.

    Args:
        count: number of workers that they claim to be.
        seed: of the order.
    """

    def __init__(self, count: int, seed: int) -> None:
        self.count = count
        self._random = random.Random(seed)

    def results(
        self, task: Any, shards: Sequence[Shard[Any]], progress: Callable[[int, int], None]
    ) -> Iterator[tuple[int, Any]]:
        order = list(range(len(shards)))
        order += self._random.choices(order, k=len(order) // 2)
        self._random.shuffle(order)
        for index in order:
            received = pickle.loads(pickle.dumps((task, shards[index].content)))
            result = received[0].run(received[1], lambda _: None)
            yield index, pickle.loads(pickle.dumps(result))

    def close(self) -> None:
        """Do nothing."""


class Exit:
    """Task that ends its process; the shard is the exit code."""

    def run(self, shard: int, progress: Callable[[int], None]) -> None:
        os._exit(shard)


class Refuse:
    """Task that fails, unless the shard is empty."""

    def run(self, shard: str, progress: Callable[[int], None]) -> str:
        if shard:
            raise UsageError(f"{shard}: wrong", file="a.npz", hint="correct it")
        return "accepted"
