"""A calibration collects the same with and without statistics of the native engine."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.onnx.models import graph_of, model, one, ramp
from tests.support.quantize.networks import Net
from tpuconvert.optimizer.quantize.calibration.calibration import collect
from tpuconvert.optimizer.quantize.calibration.collecting import Collecting
from tpuconvert.optimizer.quantize.ranges.ranges import RangeCollector
from tpuconvert.runtime.native.builder.loader import available_isas
from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.errors import RunError
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.types import Array

pytestmark = pytest.mark.skipif(not available_isas(), reason="the native engine is not installed")

Feeds = list[Mapping[str, Array]]


class _PlainSession(Session):
    """A session that calls the observer with every value."""

    def run(self, feeds: Any = None, *arrays: Any, observe: Any = None, borrow: bool = False, **named: Any) -> Any:
        return super().run(feeds, *arrays, observe=lambda value, array: observe(value, array), borrow=borrow, **named)


def contents(found: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """Return name, range and largest magnitudes of each collector, in their order."""
    return [
        (name, repr(item.result()), repr(sorted(item._channels.largest_of_samples())))
        for name, item in found.items()
        if isinstance(item, RangeCollector)
    ]


def observed(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count the calls of observers by value."""
    calls: Counter[str] = Counter()
    call = Collecting.__call__

    def counting(self: Collecting, value: Value, array: Array) -> None:
        calls[value.name] += 1
        call(self, value, array)

    monkeypatch.setattr(Collecting, "__call__", counting)
    return calls


def check(graph: Graph, feeds: Feeds, monkeypatch: pytest.MonkeyPatch, method: str = "mse") -> Counter[str]:
    """Compare both ways; return the calls of the observer."""
    calls = observed(monkeypatch)
    with _PlainSession(graph, observed=True) as session:
        wanted = contents(collect(graph, feeds, method, session=session))
    calls.clear()
    assert contents(collect(graph, feeds, method)) == wanted
    return calls


def network(batch: int | str) -> Graph:
    net = Net((batch, 4, 6, 6))
    return net.done(net.conv(net.conv(net.x, 8, "first"), 5, "last", kernel=1, relu=False))


def feeds_of(*shapes: tuple[int, ...]) -> Feeds:
    """Samples whose magnitudes differ, so that ranges grow."""
    scales = np.exp(np.random.default_rng(3).normal(size=len(shapes)) * 3)
    return [
        {"x": ramp(*shape, seed=seed) * np.float32(scale)}
        for seed, (shape, scale) in enumerate(zip(shapes, scales, strict=True))
    ]


@pytest.mark.parametrize("method", ["mse", "minmax"])
def test_the_engine_collects_what_the_observer_does(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = check(network(1), feeds_of(*[(1, 4, 6, 6)] * 70), monkeypatch, method)
    assert set(calls) == {"x"}, "the engine collects all values but the input"


def test_collectors_buffer_no_samples() -> None:
    """Statistics from the engine are added at each update; buffered, they would need the memory of many samples."""
    for item in collect(network(1), feeds_of(*[(1, 4, 6, 6)] * 40), "mse").values():
        assert isinstance(item, RangeCollector)
        assert sum(len(found.sums) for found in item._channels._waiting) <= 32


def test_batches_of_different_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = [3, 1, 3, 3, 2, 1, 1]
    calls = check(network("n"), feeds_of(*[(size, 4, 6, 6) for size in sizes]), monkeypatch)
    assert set(calls) == {"x"}


def test_values_that_are_not_finite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net = model([one("Log", "x", outputs=["z"]), one("Abs", "z")], {"x": ramp(1, 3, 4)}, ["y"])
    feeds: Feeds = [{"x": ramp(1, 3, 4, seed=seed, low=low)} for seed, low in enumerate((1.0, -1.0, 0.5, 0.5))]
    calls = check(graph_of(net, tmp_path), feeds, monkeypatch)
    assert calls == {"x": 4, "z": 1, "y": 1}


def test_values_without_channels_and_steps_without_a_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [one("Relu", "x", outputs=["a"]), one("Det", "a", outputs=["d"]), one("Neg", "d")]
    calls = check(graph_of(model(nodes, {"x": ramp(2, 3, 3)}, ["y"]), tmp_path), feeds_of((2, 3, 3)), monkeypatch)
    assert calls["y"] == 1


def test_a_failing_step_names_its_node(tmp_path: Path) -> None:
    indices = np.array([1, 9])
    net = model([one("Relu", "x", outputs=["a"]), one("Gather", "a", "i")], {"x": ramp(4, 3), "i": indices}, ["y"])
    with pytest.raises(RunError, match="the_Gather"):
        collect(graph_of(net, tmp_path), [{"x": ramp(4, 3), "i": indices}])
