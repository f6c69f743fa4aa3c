"""Choice of the calibration method of every tensor by the error at the outputs of the network (method ``auto``).

The histograms of a calibration give the thresholds of all methods. Candidates are compared by a float graph that rounds
the activations (``float_simulation``) on held-out samples:

1. Every method for all tensors together.
2. Zero points for all tensors of one-sided functions, on BM1686.
3. Other thresholds of single tensors, in the order of the difference that they make to the error of the tensor.

A candidate that clips more values is accepted if the error falls relative to the scatter over the samples, first on few
samples and then on all. The logarithms of the errors are compared, so that no sample outweighs the others. One that
clips less is accepted if the mean error falls: few samples with large responses may cause all of it. In both cases no
branch of an output may be harmed, and no task (``task_metrics``).

Feature maps of dense predictors (``feature_maps``) begin without clipping. They are clipped only if the error falls by
far: SiLU makes outliers that matter, hard swish rare huge values that do not.

The work is limited to a share of the calibration, by an estimate that depends on the network and the number of samples
only, not by time: the choice is reproducible. There is no search if the first candidate is beyond the limit.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from tpuconvert.optimizer.engine.node_properties import computed_operands
from tpuconvert.optimizer.precision_rules import AUTO, METHODS
from tpuconvert.optimizer.quantize.calibration.feature_maps import names_of_dense_feature_maps
from tpuconvert.optimizer.quantize.ranges.ranges import Range, RangeCollector
from tpuconvert.optimizer.quantize.scales.annotate import activation_params
from tpuconvert.optimizer.quantize.search.deciding import forget_annotations
from tpuconvert.optimizer.quantize.search.float_simulation import simulate
from tpuconvert.optimizer.quantize.search.measuring_work import Work
from tpuconvert.optimizer.quantize.search.output_error import Errors, Feed, OutputError
from tpuconvert.optimizer.quantize.traits import keeps_scale
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.types import Chip

SHARE = 3.0
"""Largest work of a search, as a share of the work of the calibration."""

HIGH_SHARE = 10.0
"""The same with high effort."""

LEAST = 1e11
"""Smallest limit for the work, in units of one multiply-accumulate: about 2.5 seconds of one core."""

FEWEST = 4
"""Number of samples of the first comparison, and smallest number for a search."""

_ENOUGH = 8
"""Number of samples of the second comparison, unless there are fewer, or the work permits more."""

_CLEAR = 2.0
"""Number of standard errors by which the mean logarithm of the error must fall."""

_SMALLEST_GAIN = 0.005
"""Smallest decrease of the mean logarithm of the error."""

_GAIN_OF_RANGE = 0.2
"""Smallest share by which the mean error must fall if a candidate clips less: 1 dB. Between the halves of the
calibration samples of five classifiers, the ratio of the errors of two methods varied by as much."""

_RATIO_OF_FEATURE_MAPS = 0.25
"""Largest ratio of the errors, -6 dB, for which feature maps of dense predictors are clipped: their largest values
belong to objects, and held-out samples without objects do not show what clipping does. With 1 to 3 dB less error, YuNet
kept 73 instead of 94 % of its detections, UltraFace 83 instead of 98 %. Where rare values of hard swish round whole
channels to 0, the error falls by 6 to 10 dB."""

_SMALLEST_EFFECT = 0.01
"""Smallest change of the error of a tensor that is measured, as a share of the error at the outputs."""

_WIDEST = "minmax"
"""Method without clipping."""

_ONE_SIDED = 0.25
"""Largest share of the largest value that the smallest one has in a tensor of SiLU, hard swish, GELU or leaky ReLU."""

_SAME = 0.03
"""Thresholds of a tensor that differ by a smaller share are one candidate."""


@dataclass(frozen=True)
class MethodChoice:
    """Result of a search.

    Args:
        methods: method of every tensor that could have another one, by name.
        ranges: ranges of all tensors with the thresholds of these methods.
        before: error at the outputs with the methods at the start.
        after: error at the outputs with ``methods``.
        candidates: number of measured candidates.
    """

    methods: Mapping[str, str]
    ranges: Mapping[str, Range]
    before: Errors
    after: Errors
    candidates: int

    def describe(self) -> str:
        """Return one sentence: the number of tensors per method, and the error at the outputs."""
        names = list(self.methods.values())
        zero_points = sum(self.ranges[name].has_zero_point for name in self.methods)
        counts = sorted((-names.count(method), method) for method in set(names))
        texts = [f"{-count} tensor{'s' if count < -1 else ''} {method}" for count, method in counts]
        error = f"{self.before.sqnr:.1f} dB"
        if self.after is not self.before:
            error += f" -> {self.after.sqnr:.1f} dB"
        if zero_points:
            texts.append(f"{zero_points} with a zero point")
        return f"{', '.join(texts)}; error of the activations at the outputs {error}, {self.candidates} candidates"


@dataclass(frozen=True)
class _Candidate:
    """Other settings of some tensors.

    Args:
        methods: methods by name of the tensor.
        zero_points: names of the tensors that get a zero point.
        effect: change of the error of the tensor, if it is a single one.
    """

    methods: Mapping[str, str]
    zero_points: frozenset[str] = frozenset()
    effect: float = 0.0


@dataclass(frozen=True)
class SearchStart:
    """Network and methods from which a search starts.

    Args:
        graph: float graph without annotations.
        chip: the target.
        annotate: annotates the graph with scales for ranges, and returns the names of the nodes that stay float.
        collectors: histograms of the tensors whose method can change, by name.
        ranges: ranges of all tensors, by name.
        methods: methods of the tensors in ``collectors``.
        feeds: held-out samples, in an order that depends on their content only.
        symmetric: names of the tensors that get no zero point.
    """

    graph: Graph
    chip: Chip
    annotate: Callable[[Mapping[str, Range]], Collection[str]]
    collectors: Mapping[str, RangeCollector]
    ranges: Mapping[str, Range]
    methods: Mapping[str, str]
    feeds: Sequence[Feed]
    symmetric: Collection[str] = ()


def search_methods(start: SearchStart, samples: int, least: float = LEAST, share: float = SHARE) -> MethodChoice | None:
    """Choose the calibration methods of tensors.

    Args:
        start: the network and its methods.
        samples: number of calibration samples, which limits the work.
        least: smallest limit for the work.
        share: largest work as a share of the work of the calibration.

    Returns:
        The choice; None if there are too few samples to measure a difference, if measuring takes too much work compared
        with the calibration, or if no tensor is quantized.
    """
    if len(start.feeds) < FEWEST or start.chip is Chip.BM1682:
        return None
    work = Work(start.graph, start.chip, start.feeds[0])
    budget = max(least, share * samples * work.sample)
    # The float outputs, the start and a candidate, on all samples and on few.
    if 3 * work.sample * (FEWEST + min(len(start.feeds), _ENOUGH)) + 2 * work.candidate > budget:
        return None
    return _Search(start, work, budget).run()


class _Search:
    """State of a search: the current methods, their error, and the work that is left."""

    def __init__(self, start: SearchStart, work: Work, budget: float) -> None:
        self._graph = start.graph
        self._chip = start.chip
        self._symmetric = start.symmetric
        self._dense = names_of_dense_feature_maps(start.graph)
        self._annotate = start.annotate
        self._floats: Collection[str] = ()
        self._collectors = start.collectors
        self._ranges = start.ranges
        self._methods = dict(start.methods)
        self._zero_points: frozenset[str] = frozenset()
        self._left = budget
        self._candidates = 0
        self._thresholds: dict[tuple[str, str], float] = {}
        self._work = work
        # A third of the work for the float outputs, the start and the first candidate.
        samples = int(min(len(start.feeds), max(_ENOUGH, budget / 3 / (3 * work.sample))))
        self._few = OutputError(start.graph, start.chip, start.feeds[:FEWEST])
        self._all = OutputError(start.graph, start.chip, start.feeds[:samples])
        self._left -= work.sample * (samples + FEWEST)

    def run(self) -> MethodChoice | None:
        """Measure candidates until the work is done."""
        try:
            return self._run()
        finally:
            forget_annotations(self._graph)

    def _run(self) -> MethodChoice | None:
        names = self._tensors_with_scale()
        if not names:
            return None
        start = simulate(self._graph, floats=self._floats)
        self._errors_of_few, self._errors = self._few.measure(start), self._all.measure(start)
        self._left -= self._work.sample * (len(self._all.feeds) + FEWEST) + self._work.candidate
        before = self._errors
        for candidates in (self._for_all, self._with_zero_points, self._for_single):
            for candidate in candidates(names):
                self._measure(candidate)
        chosen = {name: self._methods[name] for name in names}
        ranges = {
            name: self._with_method(name, value_range) if name in chosen else value_range
            for name, value_range in self._ranges.items()
        }
        return MethodChoice(chosen, ranges, before, self._errors, self._candidates)

    def _with_method(self, name: str, value_range: Range) -> Range:
        """Return the range of a tensor with the threshold of its method."""
        method = self._methods[name]
        threshold = self._threshold(name, method)
        statistics = self._collectors[name].statistics(method, threshold)
        has_zero_point = name in self._zero_points
        return dataclasses.replace(
            value_range, threshold=threshold, method=method, statistics=statistics, has_zero_point=has_zero_point
        )

    def _tensors_with_scale(self) -> list[str]:
        """Annotate the graph, and return the names of the tensors whose own threshold determines their scale."""
        self._floats = self._annotate(self._ranges)
        values = [value for value in self._graph.values if value.name in self._collectors and not _shares(value)]
        return [value.name for value in values if _has_own_scale(value, self._ranges[value.name])]

    def _simulate(self, changes: Mapping[str, str], zero_points: Collection[str]) -> Graph:
        """Return the float graph that rounds the activations, after some settings changed."""
        methods = {**self._methods, **changes}
        ranges = dict(self._ranges)
        for name in self._collectors:
            threshold, has_zero_point = self._threshold(name, methods[name]), name in zero_points
            ranges[name] = dataclasses.replace(ranges[name], threshold=threshold, has_zero_point=has_zero_point)
        forget_annotations(self._graph)
        self._floats = self._annotate(ranges)
        return simulate(self._graph, floats=self._floats)

    def _threshold(self, name: str, method: str) -> float:
        key = name, method
        if key not in self._thresholds:
            self._thresholds[key] = self._collectors[name].threshold(method)
        return self._thresholds[key]

    def _narrows(self, name: str, method: str) -> bool:
        """Return True if a method has a smaller threshold than the current one of a tensor."""
        return self._threshold(name, method) < self._threshold(name, self._methods[name])

    def _for_all(self, names: Sequence[str]) -> list[_Candidate]:
        """Return every method for all tensors."""
        return [_Candidate(dict.fromkeys(names, method)) for method in METHODS if method != AUTO]

    def _with_zero_points(self, names: Sequence[str]) -> list[_Candidate]:
        """Return zero points for all tensors of which symmetric integers would leave almost a half unused."""
        if self._chip is not Chip.BM1686:
            return []
        ranges = ((name, self._ranges[name]) for name in names if name not in self._symmetric)
        one_sided = frozenset(
            name for name, value_range in ranges if 0.0 > value_range.low > -_ONE_SIDED * value_range.high
        )
        return [_Candidate({}, one_sided)] if one_sided else []

    def _for_single(self, names: Sequence[str]) -> list[_Candidate]:
        """Return the thresholds of single tensors that matter: the most promising ones of each tensor first."""
        first, others = [], []
        for name in names:
            thresholds = self._thresholds_of(name)
            thresholds.sort(key=lambda candidate: candidate.effect)
            # The smallest error of the tensor, and the largest threshold if the current one clips.
            best = [candidate for candidate in thresholds[:1] if candidate.effect < 0.0]
            best += [
                candidate for candidate in thresholds if candidate.methods[name] == _WIDEST and candidate not in best
            ]
            first += best
            others += [candidate for candidate in thresholds if candidate not in best]
        return [
            candidate
            for candidates in (first, others)
            for candidate in sorted(candidates, key=lambda candidate: -abs(candidate.effect))
        ]

    def _thresholds_of(self, name: str) -> list[_Candidate]:
        """Return the other thresholds of a tensor, without those that cannot decrease the error at the outputs."""
        collector = self._collectors[name]
        current = self._threshold(name, self._methods[name])
        seen, candidates = [current], []
        for method in METHODS:
            threshold = 0.0 if method == AUTO else self._threshold(name, method)
            if threshold <= 0.0 or any(_is_same(threshold, other) for other in seen):
                continue
            seen.append(threshold)
            effect = collector.error(threshold) - collector.error(current)
            # A smaller threshold clips more values. It needs a smaller error of the tensor in return.
            limit = 0.0 if threshold < current else self._errors.mean
            if abs(effect) > _SMALLEST_EFFECT * self._errors.mean and effect < limit:
                candidates.append(_Candidate({name: method}, effect=effect))
        return candidates

    def _measure(self, candidate: _Candidate) -> None:
        """Measure a candidate and accept it if it is better, unless too little work is left."""
        cost = self._work.sample * FEWEST + self._work.candidate
        changes = {
            name: method
            for name, method in candidate.methods.items()
            if not _is_same(self._threshold(name, method), self._threshold(name, self._methods[name]))
        }
        zero_points = self._zero_points | candidate.zero_points
        is_new = bool(changes) or zero_points != self._zero_points
        if not is_new or cost + self._work.sample * len(self._all.feeds) > self._left:
            return
        self._candidates += 1
        self._left -= cost
        clips = any(self._narrows(name, method) for name, method in changes.items())
        # The ranges include the held-out samples, which favors minmax: many tensors must be better on most samples.
        clips = clips or len(changes) > 1 or bool(candidate.zero_points)
        graph = self._simulate(changes, zero_points)
        few = self._few.measure(graph)
        if clips and few.mean >= self._errors_of_few.mean:
            return
        self._left -= self._work.sample * len(self._all.feeds)
        errors = self._all.measure(graph)
        clips_dense = any(name in self._dense and self._narrows(name, method) for name, method in changes.items())
        if clips_dense and errors.mean > _RATIO_OF_FEATURE_MAPS * self._errors.mean:
            return
        if is_better(errors, self._errors, clips=clips):
            self._methods.update(changes)
            self._zero_points = zero_points
            self._errors_of_few, self._errors = few, errors


def is_better(errors: Errors, current: Errors, *, clips: bool) -> bool:
    """Return True if the error falls clearly, and nothing is harmed: neither large values of a branch nor a task.

    If the score of a task rises, any decrease is enough for a candidate that does not clip more. 16 bits and float,
    which later choices add where 8 bits are not enough, do not mend clipping.

    Args:
        errors: errors of a candidate.
        current: errors without it.
        clips: whether the candidate clips more values. It must then be better on most samples.
    """
    if errors.harms(current):
        return False
    if not clips:
        return errors.mean < (1.0 if errors.gains(current) else 1.0 - _GAIN_OF_RANGE) * current.mean
    ratio = errors.log_ratio_to(current)
    return errors.mean < current.mean and ratio.mean < -max(_SMALLEST_GAIN, _CLEAR * ratio.standard_error)


def _is_same(threshold: float, other: float) -> bool:
    return abs(threshold - other) <= _SAME * other


def _shares(value: Value) -> bool:
    """Return True if a value has the scale of the operand of its node, or of its only user, a clamp."""
    user = value.users[0] if len(value.uses) == 1 else None
    if user is not None and user.op.clamp_range() is not None and user.outputs[0].quant == value.quant:
        return True
    node = value.producer
    return node is not None and keeps_scale(node.op) and len(computed_operands(node)) == 1


def _has_own_scale(value: Value, value_range: Range) -> bool:
    """Return True if the scale follows from the threshold of the value, which is not 0."""
    own = value_range.threshold > 0.0 and activation_params(value_range, value_range.has_zero_point).scale[0]
    return value.quant is not None and max(value.quant.scale) == own
