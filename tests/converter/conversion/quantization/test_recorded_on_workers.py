"""Calibration and refinement on workers: threads share the recorded float tensors, others run the float graph again."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.networks.calibration_runs import Disordered
from tests.support.quantize.networks import Net
from tests.support.sampled import sampled
from tpuconvert.conversion.quantization.calibration_shards import calibrate_on
from tpuconvert.conversion.quantization.refinement_shards import split_samples
from tpuconvert.optimizer.quantize import legalize, quantize, refine
from tpuconvert.optimizer.quantize.calibration.first_samples import FirstMeans
from tpuconvert.optimizer.quantize.calibration.float_operands import FloatOperands
from tpuconvert.optimizer.quantize.calibration.recorded_floats import RecordedFloats
from tpuconvert.samples.calibration_data import load_feeds
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.types import Chip
from tpuconvert.workers.threads import Threads
from tpuconvert.workers.workers import ThisProcess, Workers

SAMPLES, REFINED = 20, 13


def network() -> Graph:
    net = Net((1, 3, 16, 16))
    first = net.conv(net.x, 8, "first")
    return net.done(net.conv(net.conv(first, 16, "second", stride=2), 8, "last", kernel=1, relu=False))


def constants_on(workers: Workers) -> tuple[list[bytes], list[bytes]]:
    """Return the constants of the refined network, and its recorded float outputs."""
    graph = network()
    samples = np.random.default_rng(0).normal(size=(SAMPLES, 1, 3, 16, 16)).astype(np.float32)
    feeds = load_feeds([{"x": sample} for sample in samples], graph.input_ports, None)
    recorded = RecordedFloats(graph, REFINED, (), range(SAMPLES - 4, SAMPLES))
    means = FirstMeans(REFINED, recorded)
    ranges, _ = calibrate_on(workers, graph, feeds, "auto", {}, lambda _: None, means)
    quantize(graph, ranges, Chip.BM1686)
    legalized = legalize(graph, Chip.BM1686)
    statistics_of = split_samples(workers, Chip.BM1686, feeds, REFINED)
    refine(
        legalized,
        graph,
        feeds,
        Chip.BM1686,
        means=means.by_name,
        max_samples=REFINED,
        recorded=recorded,
        statistics_of=statistics_of,
    )
    constants = [value.array.tobytes() for value in legalized.graph.values if value.is_constant]
    return constants, [outputs["last"].tobytes() for outputs in recorded.outputs_of(range(SAMPLES - 4, SAMPLES))]


@pytest.fixture(scope="module")
def expected() -> tuple[list[bytes], list[bytes]]:
    return constants_on(ThisProcess())


@pytest.mark.parametrize("count", [1, 2, 3])
def test_threads_use_the_record_and_give_the_same_bytes(
    count: int, expected: tuple[list[bytes], list[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FloatOperands, "operand", lambda *_: pytest.fail("the float graph was run"))
    with Threads(count) as workers:
        assert constants_on(workers) == expected
    assert len(expected[1]) == 4


@pytest.mark.parametrize("count", sampled([5, 2]))
def test_workers_without_the_record_give_the_same_bytes(count: int, expected: tuple[list[bytes], list[bytes]]) -> None:
    constants, outputs = constants_on(Disordered(count, seed=count))
    assert constants == expected[0] and outputs == []
