"""Ranges of a network depend on the set of samples only: not on their order, batches or distribution to processes."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Iterable, Mapping

import numpy as np
import pytest

from tests.support.quantize.networks import Net
from tpuconvert.optimizer.quantize import calibrate
from tpuconvert.optimizer.quantize.calibration.calibration import collect, merge_collectors
from tpuconvert.optimizer.quantize.ranges.ranges import Range
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.types import Array

METHODS = ("minmax", "kl", "mse", "percentile:99")


def network(batch: int | str) -> Graph:
    net = Net((batch, 4, 6, 6))
    first = net.conv(net.x, 8, "first")
    return net.done(net.conv(net.conv(first, 8, "depthwise", groups=8), 5, "last", kernel=1, relu=False))


def samples(count: int) -> list[np.ndarray]:
    """Samples whose magnitudes differ, so that the first one does not show the range."""
    rng = np.random.default_rng(7)
    drawn = rng.normal(size=(count, 1, 4, 6, 6)) * np.exp(rng.normal(size=(count, 1, 1, 1, 1)))
    return list(drawn.astype(np.float32))


def ranges(graph: Graph, feeds: list[np.ndarray], method: str) -> str:
    """Return all ranges in a form that distinguishes all floats."""
    return repr(sorted(calibrate(graph, [{"x": feed} for feed in feeds], method).items()))


@pytest.mark.parametrize("method", METHODS)
def test_the_order_of_samples_does_not_change_a_range(method: str) -> None:
    graph, given = network(1), samples(80)
    first = ranges(graph, given, method)
    for seed in range(4):
        order = np.random.default_rng(seed).permutation(len(given))
        assert ranges(graph, [given[index] for index in order], method) == first


@pytest.mark.parametrize("method", METHODS)
def test_the_batch_size_does_not_change_a_range(method: str) -> None:
    given = samples(24)
    first = ranges(network(1), given, method)
    for size, extent in itertools.product((2, 3, 8, 24), ("fixed", "open")):
        batches = [np.concatenate(given[start : start + size]) for start in range(0, len(given), size)]
        assert ranges(network(size if extent == "fixed" else "n"), batches, method) == first, (size, extent)
    mixed = [np.concatenate(given[:5]), np.concatenate(given[5:6]), np.concatenate(given[6:])]
    assert ranges(network("n"), mixed, method) == first


def feeds(arrays: Iterable[Array]) -> list[Mapping[str, Array]]:
    return [{"x": array} for array in arrays]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("parts", [1, 2, 5])
def test_merged_parts_give_the_ranges_of_all_samples(method: str, parts: int) -> None:
    graph, given = network(1), samples(20)
    whole = repr(sorted(calibrate(graph, feeds(given), method).items()))
    for seed in range(3):
        rng = np.random.default_rng([parts, seed])
        worker = rng.integers(parts, size=len(given))
        chosen = [feeds(given[index] for index in np.flatnonzero(worker == number)) for number in range(parts)]
        found = [pickle.loads(pickle.dumps(collect(graph, part, method))) for part in chosen if part]
        merged = merge_collectors(found[index] for index in rng.permutation(len(found)))
        assert repr(sorted((name, item.result()) for name, item in merged.items())) == whole


def test_collectors_of_a_plugin_are_refused_by_name() -> None:
    class Largest:
        def add(self, array: Array) -> None:
            """No samples are collected."""

        def result(self) -> Range:
            return Range(0.0, 1.0, 1.0)

    with pytest.raises(UsageError, match="Largest cannot be merged"):
        merge_collectors([{"x": Largest()}, {"x": Largest()}])
