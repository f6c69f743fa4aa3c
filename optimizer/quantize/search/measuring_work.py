"""Estimated work of measuring errors at the outputs, which limits the number of samples and of candidates.

The estimate depends on the network only, not on time, so that all choices are reproducible.
"""

from __future__ import annotations

import math

import numpy as np

from tpuconvert.optimizer.quantize.search.output_error import Feed
from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.types import Array, Chip

_ELEMENT = 64
"""Work per element of a tensor: number of multiply-accumulates that take as long as rounding it."""

_CANDIDATE = 0.5e9
"""Work per candidate that does not depend on the samples: annotation and plan."""

_WEIGHT = 1400
"""Work per candidate and weight on BM1686: the choice of per-channel scales reads the weights several times."""

_REFERENCE = 20
"""Factor of the work if the NumPy executor runs the network, because its extents depend on data."""

_FEW = 8
"""Smallest number of feeds that are measured, unless there are fewer."""

_MOST = 64
"""Largest number of feeds that are measured."""

_WORK = 6e10
"""Limit for the work of more than ``_FEW`` feeds, in units of one multiply-accumulate: 1.5 seconds of one core."""

_RUNS = 4
"""Number of runs of every feed by a comparison of few candidates."""


class Work:
    """Estimated work of measuring candidates.

    Args:
        graph: float graph without annotations.
        chip: the target.
        feed: a sample.

    Attributes:
        sample: work per sample.
        candidate: further work per candidate.
    """

    def __init__(self, graph: Graph, chip: Chip, feed: Feed) -> None:
        self.sample = _work_per_sample(graph, feed)
        weights = sum(value.array.size for value in graph.values if value.is_constant)
        self.candidate = _CANDIDATE + (_WEIGHT * weights if chip is Chip.BM1686 else 0.0)


def _work_per_sample(graph: Graph, feed: Feed) -> float:
    """Work for one run of the float graph with rounded values, from the extents of its tensors on one sample."""
    values = [value for value in graph.values if not value.is_constant]
    shapes = {value.name: tuple(extent for extent in value.shape if isinstance(extent, int)) for value in values}
    factor = 1
    if any(len(shapes[value.name]) < value.rank for value in values):

        def observe(value: Value, array: Array) -> None:
            shapes[value.name] = array.shape

        with Session(graph, observed=True) as session, np.errstate(all="ignore"):
            session.run(feed, observe=observe, borrow=True)
            factor = _REFERENCE if session.backend == "reference" else 1
    macs = 0
    for node in graph.nodes:
        present = [value for value in node.inputs if value is not None]
        operands = [value.array.shape if value.is_constant else shapes[value.name] for value in present]
        macs += node.op.count_macs(operands, [shapes[value.name] for value in node.outputs])
    return factor * float(macs + _ELEMENT * sum(map(math.prod, shapes.values())))


def affordable_feeds(graph: Graph, chip: Chip, feed: Feed, runs: int = _RUNS) -> int:
    """Number of feeds on which errors are measured: more than a few of a small network, which has fewer decisions.

    Args:
        graph: float graph without annotations.
        chip: the target.
        feed: a sample.
        runs: number of times that each feed is run for one choice.
    """
    return min(_MOST, max(_FEW, int(_WORK / runs / max(1.0, Work(graph, chip, feed).sample))))
