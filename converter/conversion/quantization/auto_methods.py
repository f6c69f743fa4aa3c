"""Ranges of all tensors from samples; the calibration method ``auto`` is chosen by the error at the outputs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

import numpy as np

from tpuconvert.conversion.input_expectations import Expected, check_activations
from tpuconvert.conversion.model_building import Decision
from tpuconvert.conversion.options.quantization import METHOD_SEARCH
from tpuconvert.conversion.quantization.calibration_shards import calibrate_on
from tpuconvert.conversion.quantization.decisions import ChosenMethods, SampleFindings
from tpuconvert.optimizer.quantize import Precision, Range, quantize
from tpuconvert.optimizer.quantize.calibration.calibration import AutoTensors, choose_methods
from tpuconvert.optimizer.quantize.calibration.first_samples import FirstMeans
from tpuconvert.optimizer.quantize.search.method_search import (
    HIGH_SHARE,
    SHARE,
    MethodChoice,
    SearchStart,
    search_methods,
)
from tpuconvert.optimizer.quantize.search.output_error import count_held_out
from tpuconvert.schema.types import Chip

if TYPE_CHECKING:
    from tpuconvert.conversion.options.options import Options
    from tpuconvert.progress import Progress
    from tpuconvert.samples.calibration_data import FeedSource
    from tpuconvert.schema.graph.graph import Graph
    from tpuconvert.workers.workers import Workers


def calibrate_and_check(
    workers: Workers,
    graph: Graph,
    feeds: FeedSource,
    options: Options,
    expected: Mapping[str, Expected],
    progress: Progress,
    precision: Precision,
    means: FirstMeans | None = None,
) -> tuple[Mapping[str, Range], list[Decision]]:
    """Return the ranges of all tensors, samples that do not fit, and the chosen methods.

    Args:
        workers: run the float graph on the samples.
        graph: float graph.
        feeds: calibration samples.
        options: options of the quantization.
        expected: what the network expects of its inputs.
        progress: receives the stages.
        precision: settings of single tensors.
        means: receives the means on the first samples.

    """
    method, methods = options.calibration_method, precision.methods
    auto = None
    if options.has_algorithm(METHOD_SEARCH) and options.chip is not Chip.BM1682:
        auto = AutoTensors(graph, method, methods)
        auto.names -= precision.asymmetric.keys()  # the search compares thresholds of symmetric integers
    progress.stage("calibrate", len(feeds))
    ranges: Mapping[str, Range]
    ranges, statistics = calibrate_on(workers, graph, feeds, method, methods, progress.advance, means, auto)
    findings = [*statistics.findings(), *check_activations(graph, ranges, expected)]
    decisions: list[Decision] = [SampleFindings(findings)]
    if auto is not None and auto.collectors:
        progress.stage("choose methods")
        choice = _choose(auto, graph, feeds, options, ranges, precision)
        if choice is not None:
            ranges = choice.ranges
            decisions.append(ChosenMethods(choice))
    return ranges, decisions


def _choose(
    auto: AutoTensors,
    graph: Graph,
    feeds: FeedSource,
    options: Options,
    ranges: Mapping[str, Range],
    precision: Precision,
) -> MethodChoice | None:
    """Choose the methods of the tensors with ``auto``. Return None if no choice was measured."""
    shifts_only = options.exact_on == "bm1684"
    channel_scales = options.has_algorithm("channel-scales")

    def annotate(measured: Mapping[str, Range]) -> Collection[str]:
        # Without the data types of rules: conversions that differ in these rules only share the ranges.
        fixed = precision.with_thresholds(measured)
        reasons = quantize(
            graph,
            fixed,
            options.chip,
            shifts_only=shifts_only,
            channel_scales=channel_scales,
            asymmetric=precision.asymmetric,
        )
        return reasons.keys()

    method_of = choose_methods(graph, options.calibration_method, precision.methods)
    held_out = feeds.part(len(feeds) - count_held_out(len(feeds)), len(feeds))
    with np.errstate(all="ignore"):
        methods = {name: method_of(name) for name in auto.collectors}
        start = SearchStart(
            graph, options.chip, annotate, auto.collectors, ranges, methods, list(held_out), precision.symmetric
        )
        return search_methods(start, len(feeds), share=HIGH_SHARE if options.effort == "high" else SHARE)
