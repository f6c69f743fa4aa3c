"""Float tensors recorded during a calibration: refinement gives the same weights without a run of the float graph."""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tests.support.quantize.networks import Net
from tpuconvert.optimizer.quantize import calibrate, legalize, quantize, refine
from tpuconvert.optimizer.quantize.calibration.calibration import collect
from tpuconvert.optimizer.quantize.calibration.first_samples import FirstMeans
from tpuconvert.optimizer.quantize.calibration.float_operands import FloatOperands
from tpuconvert.optimizer.quantize.calibration.recorded_floats import RecordedFloats
from tpuconvert.optimizer.quantize.search.output_error import OutputError
from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.ops.arithmetic import Add
from tpuconvert.schema.types import Chip

SAMPLES = 12


def network() -> Graph:
    """Return convolutions of several kernels and strides, whose operands have several users."""
    net = Net((1, 3, 32, 32))
    first = net.conv(net.x, 8, "first")
    branch = net.conv(first, 8, "pointwise", kernel=1, stride=2)
    other = net.conv(first, 8, "strided", stride=2)
    return net.done(net.conv(net.graph.add(Add(), branch, other, name="sum"), 40, "last", kernel=1, relu=False))


def feeds(count: int = SAMPLES) -> list[dict[str, np.ndarray]]:
    return [{"x": np.random.default_rng(n).normal(size=(1, 3, 32, 32)).astype(np.float32)} for n in range(count)]


def record(graph: Graph, *, refined: int = SAMPLES, outputs: range = range(0)) -> RecordedFloats:
    found = RecordedFloats(graph, refined, (), outputs)
    ranges = calibrate(graph, feeds(), means=FirstMeans(SAMPLES, found))
    quantize(graph, ranges, Chip.BM1686)
    return found


def refined_weights(recorded: RecordedFloats | None, graph: Graph) -> list[bytes]:
    legalized = legalize(graph, Chip.BM1686)
    refine(legalized, graph, feeds(), Chip.BM1686, recorded=recorded)
    return [value.array.tobytes() for value in legalized.graph.values if value.is_constant]


def test_the_weights_are_those_without_a_record(monkeypatch):
    graph = network()
    recorded = record(graph)
    expected = refined_weights(None, graph)
    monkeypatch.setattr(FloatOperands, "operand", lambda *_: pytest.fail("the float graph was run"))
    assert refined_weights(recorded, graph) == expected


@pytest.mark.parametrize("refined", [0, SAMPLES // 2])
def test_a_record_for_other_samples_is_not_used(refined):
    graph = network()
    recorded = record(graph, refined=refined)
    assert refined_weights(recorded, graph) == refined_weights(None, graph)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_record_what_one_records(threads):
    graph = network()
    expected = record(graph, outputs=range(SAMPLES - 3, SAMPLES))
    found = RecordedFloats(graph, SAMPLES, (), range(SAMPLES - 3, SAMPLES))

    def run(thread: int) -> None:
        own = copy.copy(graph)
        for number in reversed(range(thread, SAMPLES, threads)):
            collect(own, feeds()[number : number + 1], floats=found, start=number)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(run, range(threads)))
    first, second = (item.outputs_of(range(SAMPLES - 3, SAMPLES)) for item in (found, expected))
    assert [item["last"].tobytes() for item in first] == [item["last"].tobytes() for item in second]
    assert refined_weights(found, graph) == refined_weights(expected, graph)


def test_outputs_end_before_a_feed_that_is_not_recorded():
    found = RecordedFloats(network(), SAMPLES, (), range(4, 8))
    for number in (7, 5, 3, 4):
        found.add_outputs(number, {"y": np.full(1, number, np.float32)})
    assert [int(outputs["y"][0]) for outputs in found.outputs_of(range(4, 8))] == [4, 5]


def test_outputs_are_those_of_a_run():
    graph = network()
    recorded = record(graph, outputs=range(SAMPLES - 3, SAMPLES))
    outputs = recorded.outputs_of(range(SAMPLES - 3, SAMPLES))
    last = feeds()[-3:]
    with Session(graph) as session:
        runs = [session.run(feed) for feed in last]
    assert [run.keys() for run in runs] == [run.keys() for run in outputs]
    for run, known in zip(runs, outputs, strict=True):
        assert all(np.array_equal(run[name], known[name]) for name in run)
    legalized = legalize(graph, Chip.BM1686)
    for known in (outputs, outputs[:1]):
        measured = OutputError(graph, Chip.BM1686, last, known).measure(legalized.graph)
        assert measured.mean == OutputError(graph, Chip.BM1686, last).measure(legalized.graph).mean
