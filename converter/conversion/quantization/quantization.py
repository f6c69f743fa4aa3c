"""Third step of a conversion: an optimized graph becomes a quantized graph.

Samples give ranges, ranges give scales, and the integer operators of the chip compute with them. A quantized
source keeps its scales.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tpuconvert.conversion.final_checks import check_finite, constant_arrays
from tpuconvert.conversion.model_building import Decision, QuantizedGraph
from tpuconvert.conversion.optimization import OptimizedGraph
from tpuconvert.conversion.options.options import Options
from tpuconvert.conversion.options.quantization import INT16_NODES, REFINEMENTS
from tpuconvert.conversion.quantization.accuracy_check import AccuracyCheck as AccuracyCheck
from tpuconvert.conversion.quantization.auto_methods import calibrate_and_check
from tpuconvert.conversion.quantization.balancing import find_balancing
from tpuconvert.conversion.quantization.calibration_feeds import CALIBRATION_HINT, calibration_feeds
from tpuconvert.conversion.quantization.decisions import (
    BalancedTensors,
    ConstantInputs,
    FewSamples,
    FloatNodes,
    IntegerShare,
    Refinement,
    Regions,
    RuleEffects,
    SingleNodes,
)
from tpuconvert.conversion.quantization.gates import BIAS, STRUCTURAL, effective, gate_algorithms
from tpuconvert.conversion.quantization.integer_forms import IntegerForms
from tpuconvert.conversion.quantization.refinement_shards import split_samples
from tpuconvert.conversion.quantization.sample_split import NO_SAMPLES, SampleSplit, split_feeds
from tpuconvert.conversion.quantization.wider_nodes import WiderNodesSearch
from tpuconvert.conversion.source_loading import is_quantized_source
from tpuconvert.optimizer.precision_rules import FLOAT32, INT8
from tpuconvert.optimizer.prepare_quantization import prepare
from tpuconvert.optimizer.quantize import Legalized, Precision, Range, apply_rules, float_paths, legalize, refine
from tpuconvert.optimizer.quantize.calibration.feature_maps import uncorrected_results
from tpuconvert.optimizer.quantize.calibration.first_samples import FirstMeans
from tpuconvert.optimizer.quantize.calibration.recorded_floats import RecordedFloats
from tpuconvert.optimizer.quantize.precision.precision_checks import (
    check_asymmetric_tensors,
    check_float16_ranges,
    check_wide_results,
)
from tpuconvert.optimizer.quantize.precision.precision_effects import describe_effects
from tpuconvert.optimizer.quantize.ranges.state_ranges import tie_state_ranges
from tpuconvert.optimizer.quantize.refinement.response_correction import correct_responses
from tpuconvert.optimizer.quantize.search.deciding import forget_annotations
from tpuconvert.optimizer.quantize.search.output_error import OutputError
from tpuconvert.progress import SILENT, Progress
from tpuconvert.samples.calibration_data import CalibrationSource, FeedSource
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.system.heap_memory import large_arrays_returned
from tpuconvert.schema.types import Array, Chip
from tpuconvert.workers.choice import open_workers
from tpuconvert.workers.workers import Workers

if TYPE_CHECKING:
    from tpuconvert.conversion.quantization.ranges_file import MeasuredRanges


@dataclass
class CalibrationCache:
    """Calibration of a source that several quantizations with the same options for ranges use.

    Args:
        ranges: ranges of all tensors, by name; None before the first quantization.
        decisions: samples that do not fit what the network expects, and the chosen methods.
        means: means per channel of the float tensors on the samples for refinement.
        floats: other tensors of the float graph.
        workers: open workers to use, in place of those that the options request.

    """

    ranges: Mapping[str, Range] | None = None
    decisions: Sequence[Decision] = ()
    means: Mapping[str, Array] = field(default_factory=dict)
    floats: RecordedFloats | None = None
    workers: Workers | None = None


@large_arrays_returned()
def quantize_graph(
    optimized: OptimizedGraph,
    options: Options,
    calibration: CalibrationSource | None = None,
    *,
    ranges: MeasuredRanges | None = None,
    cache: CalibrationCache | None = None,
    check: AccuracyCheck | None = None,
    progress: Progress = SILENT,
) -> QuantizedGraph:
    """Quantize a float graph if the options request it, and legalize quantized nodes for the chip.

    Args:
        optimized: the graph, which is changed in place.
        options: options of the conversion.
        calibration: calibration samples. They determine the ranges if none are given, and refine the weights.
        ranges: measured ranges. If they are given, samples only refine the weights.
        cache: calibration that several quantizations share; the first one fills it.
        check: records the float outputs on some samples, if there are any.
        progress: receives the stages.

    Raises:
        UsageError: the source is already quantized, or there are neither samples nor ranges.

    """
    graph = optimized.graph
    is_quantized = is_quantized_source(graph)
    if is_quantized and (calibration is not None or ranges is not None):
        hint = "leave --calibration and --ranges out"
        raise UsageError("the source is quantized already and keeps its own scales", hint=hint)
    if options.quantize is not None and not is_quantized:
        cache = cache or CalibrationCache()
        with open_workers(cache.workers or options.workers, options.scheduler) as workers:
            return _Quantization(workers, optimized, options, cache, check, progress).run(calibration, ranges)
    precision = _rules_of_quantized_source(optimized, options)
    progress.stage("legalize")
    legalized = legalize(graph, options.chip, precision.floats, shifts_only=options.exact_on == "bm1684")
    effects = RuleEffects(describe_effects(precision, graph, {}, legalized))
    return _with_decisions(graph, legalized, [effects], options.chip, is_quantized=is_quantized, ranges={})


class _Quantization:
    """Quantization of a float graph, with its samples, ranges and decisions.

    Args:
        workers: run the samples.
        optimized: the graph, which is changed in place.
        options: options of the conversion.
        cache: calibration that several quantizations share.
        check: records the float outputs on some samples.
        progress: receives the stages.
    """

    def __init__(
        self,
        workers: Workers,
        optimized: OptimizedGraph,
        options: Options,
        cache: CalibrationCache,
        check: AccuracyCheck | None,
        progress: Progress,
    ) -> None:
        self._workers = workers
        self._optimized = optimized
        self._graph = optimized.graph
        self._options = options
        self._cache = cache
        self._check = check
        self._progress = progress
        self._refinements = effective([name for name in REFINEMENTS if options.has_algorithm(name)])
        self._decisions: list[Decision] = []
        self._int16_decisions: list[Regions | SingleNodes] = []
        self._split = NO_SAMPLES

    def run(self, calibration: CalibrationSource | None, measured: MeasuredRanges | None) -> QuantizedGraph:
        """Quantize the graph. The arguments are the same as for :func:`quantize_graph`."""
        graph, options = self._graph, self._options
        feeds: FeedSource | None = None
        if calibration is not None or measured is None:
            feeds = calibration_feeds(graph, options, calibration)
            self._progress.report(f"calibration: {feeds.description}")
        constants = constant_arrays(graph)
        prepare(graph, options.disable_rules)
        check_finite(graph, checked=constants)
        precision = apply_rules(graph, options.precision_rules, options.chip, self._optimized.tensors)
        if feeds is not None:
            refined = options.refinement_samples if self._refinements else 0
            self._split = split_feeds(graph, options.chip, feeds, refined)
        if feeds is not None and self._check is not None:
            self._check.choose(feeds, self._split)
        ranges, self._decisions = _find_ranges(
            self._workers,
            self._optimized,
            options,
            feeds,
            measured,
            precision,
            self._cache,
            self._split,
            self._progress,
        )
        if feeds is not None and self._check is not None:
            self._check.record(graph, self._cache.floats)
        check_float16_ranges(precision, graph, ranges)
        forms = IntegerForms(graph, options, precision, ranges)
        self._progress.stage("quantize")
        if feeds is not None and measured is None and options.exact_on == "none" and options.has_algorithm("balancing"):
            forms.balancing = find_balancing(graph, options, feeds, ranges, precision, forms.legalize)
        floats = self._nodes_in_float(forms, precision, feeds)
        if feeds is not None:
            floats = self._widen(forms, floats, precision, feeds)
        elif options.max_int16_share and options.has_algorithm(INT16_NODES):
            raise UsageError("max_int16_share needs samples to choose nodes with", hint=CALIBRATION_HINT)
        self._progress.stage("legalize")
        if options.exact_on == "none":
            legalized = forms.legalize(floats)
        else:
            # 30 ms: imports the exporter
            from tpuconvert.conversion.quantization.exact_forms import quantize_exactly

            legalized = quantize_exactly(graph, options, forms.legalize, floats)
        if feeds is not None and self._refinements:
            legalized = self._refine_and_gate(forms, floats, legalized, feeds)
        check_wide_results(precision, graph, legalized)
        check_asymmetric_tensors(precision, graph, ranges, legalized)
        if forms.balanced:
            self._decisions.append(BalancedTensors(replace(forms.balancing, names=forms.balanced)))
        self._decisions += self._int16_decisions
        self._decisions.append(RuleEffects(describe_effects(precision, graph, ranges, legalized)))
        return _with_decisions(graph, legalized, self._decisions, options.chip, is_quantized=True, ranges=ranges)

    def _judged(self, feeds: FeedSource) -> FeedSource:
        """Return the samples on which candidates are compared."""
        return feeds.part(self._split.judged.start, self._split.judged.stop)

    def _nodes_in_float(self, forms: IntegerForms, precision: Precision, feeds: FeedSource | None) -> Mapping[str, str]:
        """Return the nodes that rules or decisions keep in float: the reason by the name of the node."""
        floats: Mapping[str, str] = {}
        if self._options.has_algorithm("decision-paths"):
            floats = float_paths(self._graph, lambda paths: forms.legalize(precision.nodes_in_float(paths)), feeds)
        return precision.nodes_in_float(floats)

    def _widen(
        self, forms: IntegerForms, floats: Mapping[str, str], precision: Precision, feeds: FeedSource
    ) -> Mapping[str, str]:
        """Choose the nodes with 16 bits and in float. Return all nodes in float."""

        def refine_all(target: Legalized) -> None:
            self._refine(target, feeds)

        refinement = refine_all if self._refinements else None
        searched, judged = self._split.searched(feeds), self._judged(feeds)
        search = WiderNodesSearch(
            self._graph, self._options, precision, forms, searched, judged, refinement, self._progress
        )
        chosen = search.choose(floats)
        self._decisions += chosen.float_decisions
        self._int16_decisions = list(chosen.int16_decisions)
        return chosen.floats

    def _refine_and_gate(
        self, forms: IntegerForms, floats: Mapping[str, str], legalized: Legalized, feeds: FeedSource
    ) -> Legalized:
        """Refine the integer graph. Return it, or one without the algorithms that do not reduce the error."""
        graph, options = self._graph, self._options

        def rebuild(left_out: Collection[str]) -> Legalized:
            forget_annotations(graph)
            return forms.legalize(floats, left_out=left_out)

        def refine_without(target: Legalized, left_out: Collection[str], share: float) -> None:
            self._refine(target, feeds, left_out, share)
            if responses is not None and BIAS not in left_out:
                correct_responses(target, responses, error)

        if options.exact_on != "none":
            self._refine(legalized, feeds)
            return legalized
        others = [name for name in STRUCTURAL if options.has_algorithm(name)] if options.effort == "high" else []
        costly = [INT16_NODES] if forms.int16 is not None and options.requests_int16 else []
        recorded = self._cache.floats
        float_outputs = recorded.outputs_of(self._split.judged) if recorded is not None else ()
        error = OutputError(graph, options.chip, self._judged(feeds), float_outputs)
        responses = None
        if BIAS in self._refinements and error.has_scores:
            first = feeds.part(0, min(len(feeds), options.refinement_samples))
            responses = OutputError(graph, options.chip, first)
        gated = gate_algorithms(legalized, rebuild, refine_without, error, self._refinements, others, costly)
        if INT16_NODES in gated.without_gain:
            self._int16_decisions = [replace(decision, has_gain=False) for decision in self._int16_decisions]
        self._decisions.append(Refinement(gated))
        return gated.legalized

    def _refine(
        self, target: Legalized, feeds: FeedSource, left_out: Collection[str] = (), bias_share: float = 1.0
    ) -> None:
        """Refine the constants of an integer graph in place, without the algorithms ``left_out``."""
        options, cache = self._options, self._cache
        enabled = {name: name in self._refinements and name not in left_out for name in REFINEMENTS}
        self._progress.stage("refine", len(target.graph))
        refine(
            target,
            self._graph,
            feeds,
            options.chip,
            progress=self._progress.advance,
            means=cache.means,  # empty with ranges from a file
            max_samples=options.refinement_samples,
            weight_rounding=enabled["weight-rounding"],
            bias_correction=bias_share if enabled["bias-correction"] else 0.0,
            reconstruction=enabled["reconstruction"],
            uncorrected=uncorrected_results(self._graph, options.chip),
            recorded=cache.floats,
            statistics_of=split_samples(self._workers, options.chip, feeds, options.refinement_samples),
        )


def _with_decisions(
    graph: Graph,
    legalized: Legalized,
    decisions: Sequence[Decision],
    chip: Chip,
    *,
    is_quantized: bool,
    ranges: Mapping[str, Range],
) -> QuantizedGraph:
    """Return the result with what decided it: the integer share, the decisions, and the nodes in float."""
    in_float = FloatNodes(legalized.float_nodes)
    if chip is not Chip.BM1682:
        decisions = [IntegerShare(legalized.graph, in_float), *decisions]
    legalized.graph.metadata, legalized.graph.notes = graph.metadata, graph.notes
    legalized.graph.deviations = graph.deviations
    return QuantizedGraph(legalized.graph, (*decisions, in_float), is_quantized, ranges)


def _rules_of_quantized_source(optimized: OptimizedGraph, options: Options) -> Precision:
    """Apply the precision rules to a quantized source, whose integers can only be replaced by float.

    Raises:
        UsageError: a rule changes the integers of the source.

    """
    for rule in options.precision_rules:
        if rule.dtype not in (FLOAT32, INT8) or rule.weights or rule.symmetry or rule.is_about_range:
            raise UsageError(
                f"precision rule '{rule.text}': the source is quantized already and keeps its own scales",
                file=optimized.graph.file,
                hint="only float32 and int8 apply to its nodes",
            )
    return apply_rules(optimized.graph, options.precision_rules, options.chip, optimized.tensors)


def _find_ranges(
    workers: Workers,
    optimized: OptimizedGraph,
    options: Options,
    feeds: FeedSource | None,
    measured: MeasuredRanges | None,
    precision: Precision,
    cache: CalibrationCache,
    split: SampleSplit,
    progress: Progress,
) -> tuple[Mapping[str, Range], list[Decision]]:
    graph = optimized.graph
    outputs = [port.name for port in graph.output_ports]
    if measured is not None:
        measured.check_methods(precision.methods)
        ranges = precision.with_thresholds(tie_state_ranges(graph, measured.of(graph)))
        inputs = {port.name: ranges[port.name] for port in graph.input_ports if port.name in ranges}
        return ranges, [FewSamples(measured.samples, outputs), ConstantInputs(inputs)]
    assert feeds is not None, "a quantization without samples was refused"
    if cache.ranges is None:
        means = FirstMeans(options.refinement_samples, _floats_to_record(graph, options, feeds, split))
        cache.ranges, cache.decisions = calibrate_and_check(
            workers, graph, feeds, options, optimized.expected, progress, precision, means
        )
        cache.means, cache.floats = means.by_name, means.floats
    ranges = precision.with_thresholds(tie_state_ranges(graph, cache.ranges))
    return ranges, [FewSamples(feeds.samples, outputs), *cache.decisions]


def _floats_to_record(graph: Graph, options: Options, feeds: FeedSource, split: SampleSplit) -> RecordedFloats | None:
    """Return the record of the float tensors that later steps need; None if they need none."""
    count = len(feeds)
    refined, outputs = 0, {*split.measured}
    if all(options.has_algorithm(name) for name in ("weight-rounding", "reconstruction")):
        refined = min(count, options.refinement_samples) if feeds.samples == count else 0
        outputs |= {*split.judged}
    return RecordedFloats(graph, refined, uncorrected_results(graph, options.chip), outputs)
