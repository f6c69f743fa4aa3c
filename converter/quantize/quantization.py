"""Third step of a conversion: an optimized graph becomes a quantized graph.

Samples give ranges, ranges give scales, and the integer operators of the chip compute with them. A quantized
source keeps its scales.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tpuconvert.final_checks import check_finite, constant_arrays
from tpuconvert.model_building import QuantizedGraph
from tpuconvert.optimization import OptimizedGraph
from tpuconvert.optimizer.precision_rules import FLOAT32, INT8
from tpuconvert.optimizer.quantize import (
    NO_RULES,
    Balancing,
    Legalized,
    Precision,
    Range,
    apply_rules,
    balance,
    float_paths,
    legalize,
    prepare,
    quantize,
    refine,
)
from tpuconvert.optimizer.quantize.annotate import activation_params
from tpuconvert.optimizer.quantize.channel_scales import OneMultiplier, scale_channels
from tpuconvert.optimizer.quantize.deciding import forget_annotations
from tpuconvert.optimizer.quantize.feature_maps import uncorrected_results
from tpuconvert.optimizer.quantize.first_samples import FirstMeans
from tpuconvert.optimizer.quantize.int16_nodes import Int16Nodes
from tpuconvert.optimizer.quantize.output_error import OutputError
from tpuconvert.optimizer.quantize.precision_checks import (
    check_asymmetric_tensors,
    check_float16_ranges,
    check_wide_results,
)
from tpuconvert.optimizer.quantize.precision_effects import describe_effects
from tpuconvert.optimizer.quantize.recorded_floats import RecordedFloats
from tpuconvert.optimizer.quantize.two_term_weights import choose_two_term_nodes
from tpuconvert.optimizer.quantize.wide_plan import plan_wide_values
from tpuconvert.options import INT16_NODES, REFINEMENTS, Options
from tpuconvert.progress import SILENT, Progress
from tpuconvert.quantize.auto_methods import calibrate_and_check
from tpuconvert.quantize.balancing import describe_balancing, find_balancing
from tpuconvert.quantize.gates import STRUCTURAL, effective, gate_algorithms, last_feeds
from tpuconvert.quantize.int16_nodes import Annotated, describe_int16_nodes, find_int16_nodes
from tpuconvert.quantize.integer_share import share_notes
from tpuconvert.quantize.partial_file import PartialFile
from tpuconvert.quantize.partial_file import open_partial as open_partial
from tpuconvert.quantize.refinement_shards import split_samples
from tpuconvert.samples.calibration_data import CalibrationSource, FeedSource, load_feeds
from tpuconvert.schema.errors import UsageError, without_operator
from tpuconvert.schema.file_model import Note
from tpuconvert.schema.graph import Graph
from tpuconvert.schema.types import Array, Chip
from tpuconvert.source_loading import is_quantized_source
from tpuconvert.text_format import several
from tpuconvert.workers.choice import open_workers
from tpuconvert.workers.workers import Workers

if TYPE_CHECKING:
    from tpuconvert.quantize.ranges_file import MeasuredRanges

FEW_SAMPLES = 10
"""Add a note if ranges come from fewer samples than this."""

_CALIBRATION_HINT = "--calibration with a folder of images, an .npz or .npy file; 50 to 200 samples are usual"


@dataclass
class CalibrationCache:
    """Calibration of a source that several quantizations with the same options for ranges use.

    Args:
        ranges: ranges of all tensors, by name; None before the first quantization.
        notes: warnings about samples that do not fit what the network expects.
        means: means per channel of the float tensors on the samples for refinement.
        floats: other tensors of the float graph.
        partial: file of an interrupted calibration.
        workers: open workers to use, in place of those that the options request.

    """

    ranges: Mapping[str, Range] | None = None
    notes: Sequence[Note] = ()
    means: Mapping[str, Array] = field(default_factory=dict)
    floats: RecordedFloats | None = None
    partial: PartialFile | None = None
    workers: Workers | None = None


def quantize_graph(
    optimized: OptimizedGraph,
    options: Options,
    calibration: CalibrationSource | None = None,
    *,
    ranges: MeasuredRanges | None = None,
    cache: CalibrationCache | None = None,
    progress: Progress = SILENT,
) -> QuantizedGraph:
    """Quantize a float graph if the options request it, and legalize quantized nodes for the chip.

    Args:
        optimized: the graph, which is changed in place.
        options: options of the conversion.
        calibration: calibration samples. They determine the ranges if none are given, and refine the weights.
        ranges: measured ranges. If they are given, samples only refine the weights.
        cache: calibration that several quantizations share; the first one fills it.
        progress: receives the stages.

    Raises:
        UsageError: the source is already quantized, or there are neither samples nor ranges.

    """
    cache = cache or CalibrationCache()
    with open_workers(cache.workers or options.workers, options.scheduler) as workers:
        return _quantize_on(workers, optimized, options, calibration, ranges, cache, progress)


def _quantize_on(
    workers: Workers,
    optimized: OptimizedGraph,
    options: Options,
    calibration: CalibrationSource | None,
    ranges: MeasuredRanges | None,
    cache: CalibrationCache,
    progress: Progress,
) -> QuantizedGraph:
    graph = optimized.graph
    is_quantized = is_quantized_source(graph)
    if is_quantized and (calibration is not None or ranges is not None):
        hint = "leave --calibration and --ranges out"
        raise UsageError("the source is quantized already and keeps its own scales", hint=hint)
    feeds: FeedSource | None = None
    found: Mapping[str, Range] = {}
    notes: list[Note] = []
    precision = NO_RULES
    shifts_only, is_bm1684 = options.exact_on == "bm1684", options.chip is Chip.BM1684
    balancing = Balancing()
    changed: list[str] = []
    kept: Mapping[str, str] = {}
    chosen: Int16Nodes | None = None
    int16_notes: list[Note] = []

    def annotate(
        kept: Mapping[str, str],
        int16: Collection[str],
        balanced: Collection[str] | None = None,
        left_out: Collection[str] = (),
    ) -> Annotated:
        channel_scales, split_weights = (
            options.has_algorithm(name) and name not in left_out for name in ("channel-scales", "two-term-weights")
        )
        wide = {*precision.wide, *int16}
        reasons = quantize(
            graph,
            found,
            options.chip,
            kept,
            shifts_only=shifts_only,
            channel_scales=channel_scales,
            asymmetric=precision.asymmetric,
            wide=wide,
        )
        two_terms: set[str] = set()
        if is_bm1684 and not shifts_only and split_weights:
            two_terms = choose_two_term_nodes(graph, found, reasons)
        if is_bm1684 and not shifts_only and channel_scales:
            scale_channels(graph, found, set(reasons), OneMultiplier(two_terms))
        changed[:] = balance(graph, found, reasons, options.chip, balancing.names if balanced is None else balanced)
        plan = plan_wide_values(graph, wide, reasons, options.chip)
        narrow = {
            value.name: activation_params(found[value.name], value.name in precision.asymmetric)
            for value in plan.values
        }
        return Annotated(reasons, two_terms, plan, narrow)

    def attempt(
        kept: Mapping[str, str],
        balanced: Collection[str] | None = None,
        left_out: Collection[str] = (),
        int16: Collection[str] | None = None,
    ) -> Legalized:
        if int16 is None:
            int16 = () if chosen is None or INT16_NODES in left_out else chosen.names
        annotated = annotate(kept, int16, balanced, left_out)
        return legalize(
            graph,
            options.chip,
            annotated.reasons,
            shifts_only=shifts_only,
            per_tensor=precision.per_tensor,
            two_terms=annotated.two_terms,
            float16=precision.float16,
            plan=annotated.plan,
            narrow=annotated.narrow,
        )

    if options.quantize is None or is_quantized:
        precision = _rules_of_quantized_source(optimized, options)
        progress.stage("legalize")
        legalized = legalize(graph, options.chip, precision.floats, shifts_only=shifts_only)
    else:
        if calibration is not None or ranges is None:
            feeds = calibration_feeds(graph, options, calibration)
        if feeds is not None:
            progress.report(f"calibration: {feeds.description}")
        constants = constant_arrays(graph)
        prepare(graph, options.disable_rules)
        check_finite(graph, known=constants)
        precision = apply_rules(graph, options.precision_rules, options.chip, optimized.tensors)
        found, notes = _find_ranges(workers, optimized, options, feeds, ranges, precision, cache, progress)
        check_float16_ranges(precision, graph, found)
        progress.stage("quantize")
        if feeds is not None and ranges is None and options.exact_on == "none" and options.has_algorithm("balancing"):
            balancing = find_balancing(graph, options, feeds, found, precision, attempt)
        if options.has_algorithm("decision-paths"):
            kept = float_paths(graph, lambda paths: attempt(precision.nodes_in_float(paths)), feeds)
        kept = precision.nodes_in_float(kept)
        if feeds is None and options.max_int16_share and options.has_algorithm(INT16_NODES):
            raise UsageError("max_int16_share needs samples to choose nodes with", hint=_CALIBRATION_HINT)
        if feeds is not None and options.has_algorithm(INT16_NODES):
            progress.stage("choose 16-bit nodes")
            chosen = find_int16_nodes(
                graph,
                options.int16_share,
                feeds,
                precision,
                lambda names: annotate(kept, names),
                lambda names: attempt(kept, int16=names),
            )
            int16_notes = [Note(INT16_NODES, "", describe_int16_nodes(chosen, options.int16_share))]
        progress.stage("legalize")
        if options.exact_on == "none":
            legalized = attempt(kept)
        else:
            # 30 ms: imports the exporter
            from tpuconvert.quantize.exact_forms import quantize_exactly

            legalized = quantize_exactly(graph, options, attempt, kept)
    refinements = effective([name for name in REFINEMENTS if options.has_algorithm(name)])

    def rebuild(left_out: Collection[str]) -> Legalized:
        forget_annotations(graph)
        return attempt(kept, left_out=left_out)

    def refine_graph(target: Legalized, left_out: Collection[str]) -> None:
        assert feeds is not None
        enabled = {name: name in refinements and name not in left_out for name in REFINEMENTS}
        progress.stage("refine", len(target.graph))
        refine(
            target,
            graph,
            feeds,
            options.chip,
            progress=progress.advance,
            means=cache.means,  # empty with ranges from a file
            most=options.refinement_samples,
            weight_rounding=enabled["weight-rounding"],
            bias_correction=enabled["bias-correction"],
            reconstruction=enabled["reconstruction"],
            uncorrected=uncorrected_results(graph, options.chip),
            recorded=cache.floats,
            statistics_of=split_samples(workers, options.chip, feeds, options.refinement_samples),
        )

    if feeds is not None and refinements and options.exact_on != "none":
        refine_graph(legalized, ())
    elif feeds is not None and refinements:
        others = [name for name in STRUCTURAL if options.has_algorithm(name)] if options.effort == "high" else []
        costly = [INT16_NODES] if chosen is not None else []
        known = cache.floats.outputs if cache.floats is not None else ()
        error = OutputError(graph, options.chip, last_feeds(feeds), known)
        gated = gate_algorithms(legalized, rebuild, refine_graph, error, refinements, others, costly)
        legalized = gated.legalized
        if INT16_NODES in gated.without_gain:
            int16_notes = []
        notes.append(Note("refinement", "", gated.describe()))
    check_wide_results(precision, graph, legalized)
    check_asymmetric_tensors(precision, graph, found, legalized)
    if changed:
        notes.append(Note("balancing", "", describe_balancing(replace(balancing, names=tuple(changed)))))
    notes += int16_notes
    notes += [Note("precision", "", text) for text in describe_effects(precision, graph, found, legalized)]
    in_float = [
        Note("float", item.node, f"{item.op}: {without_operator(item.reason, item.op)}")
        for item in legalized.float_nodes
    ]
    if options.chip is not Chip.BM1682:
        notes = [*share_notes(legalized.graph, in_float), *notes]
    legalized.graph.metadata, legalized.graph.notes = graph.metadata, graph.notes
    return QuantizedGraph(legalized.graph, (*notes, *in_float), is_quantized or options.quantize is not None, found)


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
    progress: Progress,
) -> tuple[Mapping[str, Range], list[Note]]:
    graph = optimized.graph
    if measured is not None:
        measured.check_methods(precision.methods)
        ranges = precision.with_thresholds(measured.of(graph))
        return ranges, [*few_samples(measured.samples), *constant_inputs(graph, ranges)]
    assert feeds is not None, "a quantization without samples was refused"
    if cache.ranges is None:
        means = FirstMeans(options.refinement_samples, _floats_to_record(graph, options, feeds))
        cache.ranges, cache.notes = calibrate_and_check(
            workers, graph, feeds, options, optimized.expected, progress, precision, means, cache.partial
        )
        cache.means, cache.floats = means.by_name, means.floats
    return precision.with_thresholds(cache.ranges), [*few_samples(feeds.samples), *cache.notes]


def _floats_to_record(graph: Graph, options: Options, feeds: FeedSource) -> RecordedFloats | None:
    """Return the record of the float tensors that the refinement needs; None if it does not change weights."""
    if not all(options.has_algorithm(name) for name in ("weight-rounding", "reconstruction")):
        return None
    count = len(feeds)
    refined = min(count, options.refinement_samples) if feeds.samples == count else 0
    outputs = range(count - len(last_feeds(feeds)), count)
    return RecordedFloats(graph, refined, uncorrected_results(graph, options.chip), outputs)


def calibration_feeds(graph: Graph, options: Options, calibration: CalibrationSource | None) -> FeedSource:
    """Return the samples for a graph's inputs, in an order that depends on their content only.

    Raises:
        UsageError: there are no samples, or they do not fit.

    """
    if calibration is None:
        raise UsageError("quantization needs samples to find ranges with", hint=_CALIBRATION_HINT)
    feeds = load_feeds(calibration, graph.input_ports, options.preprocess)
    feeds.check_numbers()
    return feeds.sorted_by_content()


def few_samples(count: int) -> list[Note]:
    """Return a note if ranges come from fewer samples than are usual."""
    if count >= FEW_SAMPLES:
        return []
    return [Note("calibration", "", f"ranges come from {several(count, 'sample')} only; 50 to 200 are usual")]


def constant_inputs(graph: Graph, ranges: Mapping[str, Range]) -> list[Note]:
    """Return notes about inputs that are constant in all samples, so that their ranges are meaningless."""
    found = [(port.name, ranges[port.name]) for port in graph.input_ports if port.name in ranges]
    text = "input '{}' is {:g} everywhere in all samples: are they the right ones?"
    return [Note("calibration", "", text.format(name, item.low)) for name, item in found if item.low == item.high]
