"""Choice of the tensors with a scale and a zero point per channel, by the error at the outputs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from tpuconvert.conversion.options.options import Options
from tpuconvert.optimizer.quantize import (
    Balancing,
    Legalized,
    Precision,
    Range,
    balance,
    choose_balancing,
    forget_annotations,
    quantize,
)
from tpuconvert.optimizer.quantize.search.output_error import OutputError, count_held_out
from tpuconvert.samples.calibration_data import FeedSource
from tpuconvert.schema.graph.graph import Graph


def find_balancing(
    graph: Graph,
    options: Options,
    feeds: FeedSource,
    ranges: Mapping[str, Range],
    precision: Precision,
    attempt: Callable[[Mapping[str, str], Collection[str]], Legalized],
) -> Balancing:
    """Choose the tensors with scales per channel.

    Args:
        graph: calibrated float graph.
        options: options of the conversion.
        feeds: calibration samples; the last ones measure the error.
        ranges: calibrated ranges of the graph.
        precision: precision rules. Tensors whose range or method a rule states keep one scale.
        attempt: annotates and legalizes the graph for reasons of float nodes and names of tensors to balance.

    """
    # Scales per channel of convolutions have no effect on the candidates; their choice takes 1.2 s for ResNet50.
    floats = quantize(graph, ranges, options.chip, precision.floats, channel_scales=False)
    free = {value.name for value in graph.values} - {*precision.thresholds, *precision.methods}
    candidates = balance(graph, ranges, floats, options.chip, free)
    forget_annotations(graph)
    if not candidates:
        return Balancing()

    def quantize_with(names: Collection[str]) -> Legalized:
        legalized = attempt(precision.floats, names)
        forget_annotations(graph)
        return legalized

    count = len(feeds)
    error = OutputError(graph, options.chip, feeds.part(count - count_held_out(count), count))
    return choose_balancing(candidates, quantize_with, error)
