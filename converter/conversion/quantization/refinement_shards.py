"""Refinement split by sample over workers.

Every worker keeps a part of the samples at the operand of the same linear operator: with n parts every nth sample, so
that each has as many of the first samples, which are compared with the float graph. A request moves them to an
operator, with the weights and biases chosen since the last request, and returns sums over these samples. The chosen
constants determine the state of a worker: one that does not have it, because another worker ended, gets all of them and
runs its samples from the inputs on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from tpuconvert.optimizer.engine.node_properties import operand, operands
from tpuconvert.optimizer.quantize.calibration.first_samples import FirstMeans
from tpuconvert.optimizer.quantize.calibration.recorded_floats import RecordedFloats
from tpuconvert.optimizer.quantize.ranges.ranges import ChannelMeans
from tpuconvert.optimizer.quantize.refinement.operand_statistics import FloatReference, OperandSamples
from tpuconvert.optimizer.quantize.refinement.refinement import StatisticsOf
from tpuconvert.optimizer.quantize.weights.reconstruction import DriftSums
from tpuconvert.optimizer.quantize.weights.weight_rounding import InputSums
from tpuconvert.samples.calibration_data import FeedSource
from tpuconvert.schema.graph.graph import Graph, Node
from tpuconvert.schema.graph.graph_copy import FlatGraph
from tpuconvert.schema.types import Array, Chip
from tpuconvert.workers.workers import Shard, ThisProcess, Workers

Statistic = Literal["images", "inputs", "accumulators", "drift"]


@dataclass(frozen=True)
class _Request:
    """A statistic of a part of the samples.

    Args:
        start: first feed of the part.
        step: difference between its feeds: the number of parts.
        statistic: name of a method of ``OperandStatistics``.
        arguments: its arguments; the first one is the index of the operator.
        first: index of the first operator in ``constants``.
        constants: weights and biases of consecutive operators. Results of earlier ones were in earlier requests.
    """

    start: int
    step: int
    statistic: Statistic
    arguments: tuple[int, ...]
    first: int
    constants: tuple[tuple[Array, Array], ...]


class _State:
    """A part of the samples on a worker, with a graph of its own.

    Attributes:
        refined: number of operators whose final constants the graph has.
    """

    def __init__(
        self,
        graph: Graph,
        chip: Chip,
        names: Sequence[str],
        feeds: FeedSource,
        reference: FloatReference | None,
    ) -> None:
        by_name = {node.name: node for node in graph.nodes}
        self._products = [by_name[name] for name in names]
        self.samples = OperandSamples(graph, chip, list(feeds), self._products, reference)
        self.refined = 0

    def answer(self, request: _Request) -> Any:
        for index, constants in enumerate(request.constants, start=request.first):
            _, weight, bias = operands(self._products[index])
            weight.data, bias.data = constants
        self.refined = request.arguments[0]
        with np.errstate(all="ignore"):
            return getattr(self.samples, request.statistic)(*request.arguments)


class _Refinement:
    """Task: statistics of a part of the samples; None if this worker does not have the state before the request."""

    def __init__(
        self,
        graph: FlatGraph,
        chip: Chip,
        names: Sequence[str],
        feeds: FeedSource,
        reference: tuple[FlatGraph, tuple[str, ...], int] | None,
        recorded: RecordedFloats | None,
    ) -> None:
        self._settings = graph, chip, tuple(names), feeds, reference
        self._recorded = recorded
        self._states: dict[tuple[int, int], _State] = {}

    def run(self, shard: _Request, progress: Callable[[int], None]) -> Any:
        """Move the samples to the operator and return the statistic."""
        key, index = (shard.start, shard.step), shard.arguments[0]
        state = self._states.get(key)
        if state is None or state.refined < shard.first or state.samples.index > index:
            if shard.first > 0:
                return None
            state = self._states[key] = self._new_state(*key)
        return state.answer(shard)

    def _new_state(self, start: int, step: int) -> _State:
        graph, chip, names, feeds, packed = self._settings
        reference = None
        if packed is not None:
            floats, float_names, compared = packed
            count = len(range(start, compared, step))
            if count:
                reference = FloatReference(floats.build(), float_names, count, self._recorded, start, step)
        return _State(graph.build(), chip, names, feeds.part(start, len(feeds), step), reference)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_recorded": None, "_states": {}}

    def __copy__(self) -> _Refinement:
        """Return a task for another thread, which takes from the same record."""
        return _Refinement(*self._settings, self._recorded)


class SplitSamples:
    """``OperandStatistics`` of samples that are split over workers.

    Args:
        workers: run the graph.
        graph: integer graph.
        chip: the target.
        feeds: the samples.
        products: linear operators of the graph, in topological order.
        reference: float graph for ``drift``.
    """

    def __init__(
        self,
        workers: Workers,
        graph: Graph,
        chip: Chip,
        feeds: FeedSource,
        products: Sequence[Node],
        reference: FloatReference | None,
    ) -> None:
        self._workers = workers
        self._products = products
        self._feeds = len(feeds)
        packed, recorded = None, None
        if reference is not None:
            recorded = reference.recorded
            packed = FlatGraph.of(reference.graph), tuple(reference.names), min(reference.feeds, len(feeds))
        self._task = _Refinement(FlatGraph.of(graph), chip, [node.name for node in products], feeds, packed, recorded)
        self._parts = min(len(feeds), workers.count)
        self._refined = 0

    def images(self, index: int) -> int:
        """Extent of axis 0 of the operand, added over all feeds."""
        extent = operand(self._products[index]).shape[0]
        return extent * self._feeds if isinstance(extent, int) else sum(self._collect("images", index))

    def inputs(self, index: int, limit: int) -> InputSums:
        """Sums of the inputs of the operator, at up to ``limit`` positions of each image of a convolution."""
        parts: list[InputSums] = self._collect("inputs", index, limit)
        for part in parts[1:]:
            parts[0].merge(part)
        return parts[0]

    def accumulators(self, index: int) -> ChannelMeans:
        """Means of the accumulator per output channel."""
        means = ChannelMeans()
        for part in self._collect("accumulators", index):
            means.merge(part)
        return means

    def drift(self, index: int, limit: int) -> dict[int, DriftSums]:
        """Sums of the inputs and of their drift, over two halves of the samples."""
        halves: dict[int, DriftSums] = {}
        for part in self._collect("drift", index, limit):
            for half, sums in part.items():
                halves[half] = halves[half].merged(sums) if half in halves else sums
        return halves

    def _collect(self, statistic: Statistic, *arguments: int) -> list[Any]:
        """Return a statistic of all parts of the samples."""
        end = arguments[0] + (statistic == "accumulators")
        results = self._request(range(self._parts), statistic, arguments, self._refined, end)
        missing = [part for part, result in results.items() if result is None]
        if missing:
            results |= self._request(missing, statistic, arguments, 0, end)
        self._refined = arguments[0]
        return [results[part] for part in sorted(results)]

    def _request(
        self, parts: Sequence[int], statistic: Statistic, arguments: tuple[int, ...], first: int, end: int
    ) -> dict[int, Any]:
        constants = []
        for node in self._products[first:end]:
            _, weight, bias = operands(node)
            constants.append((weight.array, bias.array))
        shards = []
        for part in parts:
            request = _Request(part, self._parts, statistic, arguments, first, tuple(constants))
            name = f"refinement on samples {part}, {part + self._parts} ... of {self._feeds}"
            shards.append(Shard(name, 1, request, part))
        return {parts[index]: result for index, result in self._workers.map(self._task, shards)}


def split_samples(workers: Workers, chip: Chip, feeds: FeedSource, max_samples: int) -> StatisticsOf | None:
    """Return the statistics for ``refine`` of samples that are split over workers; None to run them in this process.

    Args:
        workers: run the integer graph.
        chip: the target.
        feeds: calibration samples.
        max_samples: maximum number of samples, as for ``refine``.
    """
    if isinstance(workers, ThisProcess):
        return None
    first = feeds.part(0, FirstMeans(max_samples).count(feeds))
    return lambda graph, products, reference: SplitSamples(workers, graph, chip, first, products, reference)
