"""Check before quantization with real samples whether the INT8 form of a model can be exported."""

from __future__ import annotations

from dataclasses import replace

from tpuconvert.conversion.conversion import Conversion
from tpuconvert.conversion.options.options import Options
from tpuconvert.conversion.quantization.calibration_feeds import calibration_feeds
from tpuconvert.conversion.source_loading import is_quantized_source
from tpuconvert.exporters.export import FORMS
from tpuconvert.model.model import Model
from tpuconvert.progress import Progress
from tpuconvert.samples.random_samples import random_feeds, unknown_extents
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.graph.graph import Graph

SAMPLES = 2
"""Random samples. The operators of a quantized graph hardly depend on its ranges."""


def check_export(graph: Graph, options: Options, progress: Progress, to: str) -> Model:
    """Quantize a graph with the ranges of random inputs, and check that every node has an exact form.

    Args:
        graph: the graph of a frontend, which is changed in place.
        options: options of the conversion.
        progress: receives the stages.
        to: name of the export target.

    Returns:
        The quantized model, which is good for its operators only.

    Raises:
        UnsupportedError: nodes without an exact form; all of them are in the message.
        UsageError: the chip has no export, or the graph has dynamic dimensions.
    """
    form = FORMS[to]
    if options.chip not in form.chips:
        chips = ", ".join(chip.value.lower() for chip in form.chips)
        raise UsageError(f"no export for chip {options.chip.value}", file=graph.file, hint=f"name one of {chips}")
    for name, extents in unknown_extents(graph.input_ports).items():
        raise UsageError(
            f"input '{name}' has the dynamic dimensions {', '.join(extents)}, an export needs numbers",
            file=graph.file,
            hint="state them with --input-shapes",
        )
    if is_quantized_source(graph):
        model = Conversion(options, progress=progress).of_graph(graph)
    else:
        exact_on = form.exact_on.get(options.chip, options.exact_on)
        settings = replace(options, quantize="int8", calibration_method="minmax", exact_on=exact_on)
        feeds = calibration_feeds(graph, settings, random_feeds(graph.input_ports, SAMPLES))
        model = Conversion(settings, feeds, progress=progress).of_graph(graph)
        # The ranges come from random numbers: notes about them mean nothing.
        notes = tuple(note for note in model.notes if note.kind != "calibration")
        model = Model(replace(model.content, notes=notes))
    form.check(model)
    return model
