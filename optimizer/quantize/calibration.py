"""Running a float graph over calibration data and collecting the range of every activation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from tpuconvert.optimizer.quantize.calibrators import Collector, collector
from tpuconvert.optimizer.quantize.ranges import Range
from tpuconvert.runtime.session import Session
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.graph import Graph, Value
from tpuconvert.schema.types import Array


def calibrate(
    graph: Graph,
    batches: Iterable[Mapping[str, Array]],
    method: str = "mse",
    progress: Callable[[int], None] | None = None,
) -> dict[str, Range]:
    """Ranges of all FLOAT32 inputs and results, by value name.

    Args:
        graph: float graph; values keep the names that the result refers to.
        batches: feeds for ``Session.run``, one after the other; they are not kept.
        method: ``minmax``, ``kl``, ``mse``, or that of a plugin.
        progress: called with the number of batches done.

    Raises:
        UsageError: when there is no batch, or a batch does not fit the graph's inputs.
    """
    collectors: dict[str, Collector] = {}

    def observe(value: Value, array: Array) -> None:
        if value.dtype.is_float:
            if value.name not in collectors:
                collectors[value.name] = collector(method)
            collectors[value.name].add(array)

    done = 0
    with Session(graph, backend="auto") as session:
        for feeds in batches:
            session.run(feeds, observe=observe)
            done += 1
            if progress is not None:
                progress(done)
    if done == 0:
        raise UsageError("there are no calibration samples", hint="give at least one; 50 to 200 are usual")
    return {name: found.result() for name, found in collectors.items()}
