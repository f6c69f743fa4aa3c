"""Statistics that the engine collects in observed runs equal the statistics of single calls."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tpuconvert.optimizer.quantize.ranges.exact_statistics import Histogram
from tpuconvert.runtime.native.builder.loader import ISA_VARIABLE, available_isas, native
from tpuconvert.runtime.native.builder.storage import ARENA
from tpuconvert.runtime.native.statistics.channel_statistics import TensorStatistics, channel_summary

pytestmark = pytest.mark.skipif(not available_isas(), reason="the native engine is not installed")

SHAPE = (2, 3, 40)
ORDERS = [(0, 1, 2), (0, 2, 1), (2, 1, 0)]


class Memory:
    """A program without steps that has one tensor in its arena."""

    def __init__(self, order: tuple[int, int, int]) -> None:
        size = 4 * int(np.prod(SHAPE))
        buffers = [(ARENA, 64, size)]
        self.program = native().Program(steps=[], buffers=buffers, constants=[], arena_bytes=64 + size + 64, threads=1)
        self.memory = self.program.make_memory()
        flat = self.memory.read(self.program, 0).view(np.float32)
        self.rows = flat.reshape([SHAPE[axis] for axis in order]).transpose(np.argsort(order))

    def statistics(self, *, has_histogram: bool = True) -> TensorStatistics:
        return TensorStatistics(native().Place(0), self.rows, has_histogram=has_histogram)

    def run(self, found: TensorStatistics, values: np.ndarray) -> bool:
        """Show values; return False if they were left to the caller."""
        self.rows[...] = values
        observed = self.program.observations([(0, found.native)])
        return self.program.run_observed(self.memory, observed, 0, 0) == (0, 1)


def drawn(scale: float) -> np.ndarray:
    """Values of which a third is 0."""
    values = (np.random.default_rng(7).normal(size=SHAPE) * scale).astype(np.float32)
    return np.where(np.arange(40) % 3 == 0, np.float32(0), values)


@pytest.mark.parametrize("isa", available_isas())
@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_statistics_are_those_of_single_calls(
    order: tuple[int, int, int], isa: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ISA_VARIABLE, isa)
    memory, histogram = Memory(order), Histogram()
    found = memory.statistics()
    runs = [np.zeros(SHAPE, np.float32), *(drawn(scale) for scale in (1e-3, 1e-6, 40.0, 1.0))]
    for values in runs:
        assert memory.run(found, values)
        histogram.add(values, float(np.abs(values).max()))
    taken = found.take()
    assert taken is not None
    assert taken.runs == len(runs)
    wanted = [channel_summary(values) for values in runs]
    for name in ("sums", "squares", "highest", "lowest"):
        assert np.array_equal(getattr(taken.summary, name), np.concatenate([getattr(each, name) for each in wanted]))
    assert taken.summary.low == min(each.low for each in wanted)
    assert taken.summary.high == max(each.high for each in wanted)
    assert taken.exponent == histogram.exponent
    assert np.array_equal(taken.counts, histogram.counts)
    assert found.take() is None


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_left_to_the_caller(bad: float) -> None:
    memory = Memory(ORDERS[0])
    found = memory.statistics()
    values = drawn(1.0)
    values[1, 2, 5] = bad
    assert memory.run(found, drawn(2.0))
    assert not memory.run(found, values)
    taken = found.take()
    assert taken is not None
    assert taken.runs == 1
    assert taken.counts.sum() == values.size


def test_bins_that_are_no_normal_numbers_are_left_to_the_caller() -> None:
    memory = Memory(ORDERS[0])
    assert not memory.run(memory.statistics(), drawn(1e-38))
    assert memory.run(memory.statistics(has_histogram=False), drawn(1e-38))


def test_observations_stay_in_their_program() -> None:
    memory, other = Memory(ORDERS[0]), Memory(ORDERS[0])
    statistics = memory.statistics().native
    elsewhere = TensorStatistics(native().Place(0, 64), memory.rows, has_histogram=True).native
    refused: list[tuple[str, Callable[[], Any]]] = [
        ("leaves its buffer", lambda: memory.program.observations([(0, elsewhere)])),
        ("order of the steps", lambda: memory.program.observations([(1, statistics)])),
        ("another program", lambda: other.program.run_observed(other.memory, mine, 0, 0)),
        ("another program", lambda: memory.program.run_observed(other.memory, mine, 0, 0)),
    ]
    mine = memory.program.observations([(0, statistics)])
    for message, call in refused:
        with pytest.raises(native().Declined, match=message):
            call()
    with pytest.raises(TypeError):
        memory.program.observations([(0, "x")])
