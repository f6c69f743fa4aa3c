"""Validation of the passes while they run: ``--validate``.

The graph is run on samples before and after every pass that changed it. If an output differs by more than the
tolerance, the pass is repeated on copies of the graph before it, each time with fewer firings, to find the firing that
made the difference. This is possible because rules fire in the same order on equal graphs. A pass that consists of no
rules is reported by its name and the first tensor that differs.

A quantized source is compared in dequantized values, with the saturation of its scales.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from tpuconvert.optimizer.engine.engine import Trace
from tpuconvert.optimizer.pipeline import Observer, Pass
from tpuconvert.optimizer.quantize import as_float
from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.errors import ThresholdError
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.graph.graph_copy import copy_graph
from tpuconvert.schema.types import Array, Chip

Feed = Mapping[str, Array]
Results = list[dict[str, Array]]

TOLERANCE = 1e-4
"""Tolerance as a fraction of an output's range. Reordered float32 sums stay far below; a wrong rewrite exceeds it."""


_SHARE = 0.01
"""Smallest range of an output, as a fraction of its largest magnitude. Smaller ranges are considered rounding noise."""


@dataclass(frozen=True)
class _Program:
    """Program for a session: a graph, and the chip whose arithmetic is used."""

    graph: Graph
    chip: Chip


@dataclass(frozen=True)
class _Difference:
    output: str
    of_range: float


class Validator(Observer):
    """Runs the graph before and after every pass.

    Args:
        feeds: samples, which are random or given by the user.
        chip: the target whose arithmetic is used.

    Attributes:
        checked: number of pass executions whose outputs were compared.
    """

    def __init__(self, feeds: Iterable[Feed], *, chip: Chip = Chip.BM1686) -> None:
        self._feeds = list(feeds)
        self._chip = chip
        self._before: Graph | None = None
        self._expected: Results = []
        self.checked = 0

    def before(self, step: Pass, graph: Graph) -> None:
        """Store a copy of the graph, and its outputs."""
        if self._before is None:
            self._before = copy_graph(graph)
            self._expected = self._run(self._before)

    def after(self, step: Pass, graph: Graph, fired: Collection[str]) -> None:
        """Compare the outputs with those before the pass.

        Raises:
            ThresholdError: the pass changed an output; the error names the rule and the node.
        """
        assert self._before is not None, "a pass ends that did not begin"
        copy = copy_graph(graph)
        results = self._run(copy)
        self.checked += 1
        difference = self._difference(results)
        if difference is not None:
            raise self._blame(step, self._before, difference)
        self._before, self._expected = copy, results

    def _run(self, graph: Graph) -> Results:
        """Return the outputs of the graph. A quantized source is converted to float, which changes a copy."""
        is_annotated = any(value.quant is not None for value in graph.values)
        with Session(_Program(as_float(copy_graph(graph)) if is_annotated else graph, self._chip)) as session:
            return [session.run(feed) for feed in self._feeds]

    def _difference(self, results: Results) -> _Difference | None:
        worst: _Difference | None = None
        for expected, actual in zip(self._expected, results, strict=True):
            for name, want in expected.items():
                of_range = distance(want, actual[name])
                if of_range > max(TOLERANCE, worst.of_range if worst else 0.0):
                    worst = _Difference(name, of_range)
        return worst

    def _blame(self, step: Pass, before: Graph, worst: _Difference) -> ThresholdError:
        rule, node = self._bisect(step, before) if step.rules else (step.name, self._first_changed(step, before))
        return ThresholdError(
            f"{'rule' if step.rules and rule != step.name else 'pass'} '{rule}' changes output '{worst.output}' by "
            f"{worst.of_range:.2g} of its range; {TOLERANCE:.2g} is allowed",
            file=before.file,
            node=node,
            hint=f"this is a mistake in the rewrite; --disable-rule {rule} converts without it",
        )

    def _bisect(self, step: Pass, before: Graph) -> tuple[str, str]:
        """Return the firing between the largest good and the smallest bad number of firings."""
        trace = Trace()
        step.run(copy_graph(before), trace, None)
        good, bad = 0, sum(trace.fired.values())
        while bad - good > 1:
            middle = (good + bad) // 2
            graph = copy_graph(before)
            step.run(graph, Trace(), middle)
            if self._difference(self._run(graph)) is None:
                good = middle
            else:
                bad = middle
        trace = Trace()
        step.run(copy_graph(before), trace, bad)
        return trace.last if trace.last[0] else (step.name, "")

    def _first_changed(self, step: Pass, before: Graph) -> str:
        """Return the first tensor, in topological order, that is in both graphs and differs."""
        graph = copy_graph(before)
        step.run(graph, Trace(), None)
        expected = _tensors(_Program(before, self._chip), self._feeds[0])
        for name, array in _tensors(_Program(graph, self._chip), self._feeds[0]).items():
            if name in expected and distance(expected[name], array) > TOLERANCE:
                return name
        return ""


def distance(expected: Array, actual: Array) -> float:
    """The largest difference as a fraction of the range of ``want``; infinite if shapes or NaN positions differ."""
    if expected.shape != actual.shape:
        return np.inf
    if expected.size == 0 or np.array_equal(expected, actual, equal_nan=expected.dtype.kind == "f"):
        return 0.0
    if expected.dtype.kind == "b":
        return 1.0
    a, b = expected.astype(np.float64), actual.astype(np.float64)
    finite = np.isfinite(a) & np.isfinite(b)
    with np.errstate(invalid="ignore"):
        if not ((a == b) | finite | (np.isnan(a) & np.isnan(b))).all():
            return np.inf
    if not finite.any():
        return 0.0
    a, b = a[finite], b[finite]
    span = max(float(a.max() - a.min()), _SHARE * float(np.abs(a).max())) or 1.0
    return float(np.abs(a - b).max()) / span


def _tensors(program: _Program, feed: Feed) -> dict[str, Array]:
    arrays: dict[str, Array] = {}

    def note(value: Value, array: Array) -> None:
        arrays[value.name] = array.copy()

    with Session(program, backend="reference") as session:
        session.run(feed, observe=note)
    return arrays
