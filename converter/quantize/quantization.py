"""Integers for a graph: samples become ranges, ranges become scales, and what the chip has of them stays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tpuconvert.final_checks import check_finite, constant_arrays
from tpuconvert.options import Options
from tpuconvert.progress import Progress
from tpuconvert.quantize.integer_share import share_notes
from tpuconvert.schema.errors import UsageError, without_operator
from tpuconvert.schema.file_model import Note
from tpuconvert.schema.graph import Graph
from tpuconvert.schema.types import Chip
from tpuconvert.source_loading import is_quantized_source
from tpuconvert.text_format import several

if TYPE_CHECKING:
    from tpuconvert.diagnosis.network import Expected
    from tpuconvert.optimizer.quantize import Range
    from tpuconvert.quantize.ranges_file import MeasuredRanges
    from tpuconvert.samples.calibration_data import CalibrationSource, FeedSource

FEW_SAMPLES = 10
"""Ranges of fewer samples than this are told to be uncertain."""

_CALIBRATION_HINT = "--calibration with a folder of pictures, an .npz or .npy file; 50 to 200 samples are usual"


def in_integers(
    graph: Graph,
    options: Options,
    calibration: CalibrationSource | None,
    measured: MeasuredRanges | None,
    progress: Progress,
    expected: Mapping[str, Expected] | None = None,
) -> tuple[Graph, list[Note]]:
    """An annotated graph with the chip's integers, or a float graph that is to get them; and notes about it.

    ``expected`` are the distributions that batch norm stated before the optimizer folded it.
    """
    from tpuconvert.optimizer.quantize import float_paths, legalize, prepare, quantize, refine

    notes: list[Note] = []
    reasons: Mapping[str, str] = {}
    feeds: FeedSource | None = None
    ranges: Mapping[str, Range] = {}
    if options.quantize is not None and not is_quantized_source(graph):
        if calibration is not None or measured is None:
            feeds = calibration_feeds(graph, options, calibration)
            progress.tell(f"calibration: {feeds.description}")
        arrays = constant_arrays(graph)
        prepare(graph, options.disabled)
        check_finite(graph, known=arrays)
        if measured is not None:
            notes += few_samples(measured.samples)
            ranges = measured.of(graph)
        elif feeds is not None:
            notes += few_samples(feeds.samples)
            progress.stage("calibrate", len(feeds))
            ranges, warnings = calibrate_and_check(graph, feeds, options.calibration_method, expected or {}, progress)
            notes += warnings
        if feeds is None or measured is not None:
            notes += constant_inputs(graph, ranges)
        progress.stage("quantize")
        kept = float_paths(graph, ranges, options.chip, feeds)
        reasons = quantize(graph, ranges, options.chip, kept)
    progress.stage("legalize")
    legalized = legalize(graph, options.chip, reasons)
    if feeds is not None:
        progress.stage("refine", len(legalized.graph))
        known = None if measured is not None else ranges  # ranges from a file may be those of other samples
        refine(legalized, graph, feeds, options.chip, progress=progress.advance, ranges=known)
    stays = [
        Note("float", item.node, f"{item.op}: {without_operator(item.reason, item.op)}")
        for item in legalized.float_nodes
    ]
    if options.chip is not Chip.BM1682:
        notes = [*share_notes(legalized.graph, stays), *notes]
    return legalized.graph, notes + stays


def calibrate_and_check(
    graph: Graph, feeds: FeedSource, method: str, expected: Mapping[str, Expected], progress: Progress
) -> tuple[dict[str, Range], list[Note]]:
    """Ranges of all tensors, and warnings about samples that do not fit what the network expects."""
    from tpuconvert.diagnosis.network import check_activations
    from tpuconvert.diagnosis.samples import SampleStatistics
    from tpuconvert.optimizer.quantize import calibrate

    statistics = SampleStatistics(graph.input_ports, feeds.pictures)
    ranges = calibrate(graph, statistics.watch(feeds), method, progress=progress.advance)
    findings = [*statistics.findings(), *check_activations(graph, ranges, expected)]
    return ranges, [Note("preprocessing", "", str(finding)) for finding in findings]


def calibration_feeds(graph: Graph, options: Options, calibration: CalibrationSource | None) -> FeedSource:
    """The samples for a graph's inputs, in an order that depends on their content only.

    Raises:
        UsageError: there are none, or they do not fit.

    """
    if calibration is None:
        raise UsageError("quantization needs samples to find ranges with", hint=_CALIBRATION_HINT)
    from tpuconvert.samples.calibration_data import load_feeds

    feeds = load_feeds(calibration, graph.input_ports, options.preprocess)
    feeds.check_numbers()
    return feeds.sorted_by_content()


def few_samples(count: int) -> list[Note]:
    """A note where ranges come from so few samples that others will leave them."""
    if count >= FEW_SAMPLES:
        return []
    return [Note("calibration", "", f"ranges come from {several(count, 'sample')} only; 50 to 200 are usual")]


def constant_inputs(graph: Graph, ranges: Mapping[str, Range]) -> list[Note]:
    """Notes on inputs that never change in the samples: nothing is learnt from them."""
    found = [(port.name, ranges[port.name]) for port in graph.input_ports if port.name in ranges]
    text = "input '{}' is {:g} everywhere in all samples: are they the right ones?"
    return [Note("calibration", "", text.format(name, item.low)) for name, item in found if item.low == item.high]
