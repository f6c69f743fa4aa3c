"""Trial of precision rules: the float graph is quantized again with a rule, and the error at the outputs is measured.

The error of a quantized operand has several remedies. From the cheapest on: another range, float users of the operand,
and float producers too. Which of them helps depends on the chip: the result of an integer conv has one scale, with 16
bits, even for float users. A trial therefore uses the lowering of a conversion. It leaves the refinement of the weights
out, so its error is compared with the error of a trial without a further rule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from tpuconvert.conversion.optimization import optimize_graph
from tpuconvert.conversion.options.options import Options
from tpuconvert.conversion.options.quantization import ALGORITHMS, INT16_NODES, METHOD_SEARCH, REFINEMENTS
from tpuconvert.conversion.quantization.quantization import CalibrationCache, quantize_graph
from tpuconvert.model.float_names import rule_options
from tpuconvert.optimizer.precision_rules import AUTO
from tpuconvert.precision.output_noise import NoiseSum, to_decibel
from tpuconvert.runtime.session.session import Session
from tpuconvert.samples.calibration_data import load_feeds
from tpuconvert.schema.errors import TpuConvertError, UsageError
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.text.plain_values import Plain, Unbounded
from tpuconvert.schema.types import Array

Feed = Mapping[str, Array]

MOST_FEEDS = 8
"""Largest number of feeds on which the error of a trial is measured."""

ENOUGH = 0.75
"""Share of the noise that a cheaper rule has to remove, relative to the noise that the best candidate removes."""

LEAST = 0.1
"""Share of the noise of the network that the best candidate has to remove. Less is not distinguished from no effect."""


@dataclass(frozen=True)
class Candidate:
    """Options that may remove an error.

    Args:
        ranges: names of tensors that get another range.
        method: the calibration method of these tensors.
        keep_float: names of nodes that are kept in float.

    """

    ranges: tuple[str, ...] = ()
    method: str = ""
    keep_float: tuple[str, ...] = ()

    @property
    def options(self) -> str:
        """Options of ``convert``, quoted for a shell."""
        return rule_options([f"{name}={self.method}" for name in self.ranges], self.keep_float)


@dataclass(frozen=True)
class MeasuredRule(Plain, hidden=("options",), keys={"before": "sqnr_db_before", "after": "sqnr_db_after"}):
    """Options that remove an error, with their effect on the network without refinement of the weights.

    Args:
        options: options of ``convert``, quoted for a shell.
        before: SQNR at the outputs without the options, in decibel.
        after: SQNR with them.

    """

    options: str
    before: Unbounded
    after: Unbounded


class RuleTrials:
    """Quantizations of one source with different rules, on the same feeds.

    Args:
        load: reads the source; a quantization changes the graph.
        options: options of the model.
        graph: the optimized float graph.
        feeds: samples. They determine the ranges.

    """

    def __init__(self, load: Callable[[], Graph], options: Options, graph: Graph, feeds: Sequence[Feed]) -> None:
        self._load = load
        # Refinement and the search for methods take most of the time of a conversion, and change all candidates alike.
        skipped = (METHOD_SEARCH, INT16_NODES, *REFINEMENTS)
        without = tuple(name for name in ALGORITHMS if name in skipped or not options.has_algorithm(name))
        self._options = replace(options, effort="default", without=without, max_int16_share=None, golden=0)
        self._graph = graph
        self._feeds = feeds
        self._float_outputs: list[list[Array]] = []
        self._own = CalibrationCache()  # ranges with the methods of the options
        self._automatic = CalibrationCache()  # ranges that the automatic choice of a method gives
        self._noises: dict[Candidate, float | None] = {}

    def choose(self, candidates: Sequence[Candidate], tried: Callable[[], None]) -> MeasuredRule | None:
        """Return the first candidate that removes about as much noise as the best one; None if none removes any.

        Args:
            candidates: the cheapest first.
            tried: is called after each of them.

        """
        before = self._noise(Candidate())
        noises = []
        for candidate in candidates:
            noise = self._noise(candidate)
            noises += [(candidate, noise)] if noise is not None else []
            tried()
        if before is None or not noises:
            return None
        removed = before - min(noise for _, noise in noises)
        for candidate, noise in noises:
            if removed > LEAST * before and before - noise >= ENOUGH * removed:
                return MeasuredRule(candidate.options, to_decibel(before), to_decibel(noise))
        return None

    def _noise(self, candidate: Candidate) -> float | None:
        if candidate not in self._noises:
            try:
                self._noises[candidate] = self._measure(candidate)
            except TpuConvertError:  # such as a rule that selects no node: it is not a remedy
                self._noises[candidate] = None
        return self._noises[candidate]

    def _measure(self, candidate: Candidate) -> float:
        thresholds = self._thresholds(candidate) if candidate.ranges else {}
        rules = (*self._options.precision, *(f"{name}=threshold:{number!r}" for name, number in thresholds.items()))
        keep = (*self._options.keep_float, *candidate.keep_float)
        quantized = self._quantize(replace(self._options, precision=rules, keep_float=keep), self._own)
        noise = NoiseSum(self._graph)
        with Session(quantized) as integers:
            for feed, expected in zip(self._feeds, self._floats(), strict=False):
                noise.add(expected, list(integers.run(feed).values()))
        return noise.result().noise

    def _quantize(self, options: Options, cache: CalibrationCache) -> Graph:
        optimized = optimize_graph(self._load(), options)
        feeds = load_feeds(list(self._feeds), optimized.graph.input_ports)  # they are preprocessed already
        return quantize_graph(optimized, options, feeds, cache=cache).graph

    def _thresholds(self, candidate: Candidate) -> dict[str, float]:
        """Return the thresholds that the method of a candidate gives, so that trials need no further calibration.

        Raises:
            UsageError: a tensor has no range.

        """
        if self._automatic.ranges is None:
            rules = tuple(rule.text for rule in self._options.precision_rules if not rule.is_about_range)
            options = replace(self._options, precision=rules, keep_float=(), calibration_method=AUTO)
            self._quantize(options, self._automatic)
        ranges = self._automatic.ranges or {}
        missing = [name for name in candidate.ranges if name not in ranges]
        if missing:
            raise UsageError(f"'{missing[0]}' has no range", hint="collect the ranges again, with all tensors")
        chosen = [ranges[name] for name in candidate.ranges]
        numbers = [item.threshold if candidate.method == AUTO else max(-item.low, item.high) for item in chosen]
        return dict(zip(candidate.ranges, numbers, strict=True))

    def _floats(self) -> list[list[Array]]:
        if not self._float_outputs:
            with Session(self._graph) as floats:
                self._float_outputs = [list(floats.run(feed).values()) for feed in self._feeds[:MOST_FEEDS]]
        return self._float_outputs
