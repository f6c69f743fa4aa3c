"""``tpuconvert check``."""

from __future__ import annotations

from typing import Any

import click

from tpuconvert.cli.conversion_options import conversion_options
from tpuconvert.cli.json_output import json_option, print_json
from tpuconvert.cli.progress_bar import show_progress
from tpuconvert.cli.shared_options import progress_option
from tpuconvert.cli.terminal import echo, echo_text
from tpuconvert.exporters.form_names import FORM_NAMES
from tpuconvert.options import SOURCE_OPTIONS, Options
from tpuconvert.pipeline import convert_graph
from tpuconvert.plugins import load_plugins
from tpuconvert.report.model_description import describe_model
from tpuconvert.report.notes import group_notes, note_lines, operators_of
from tpuconvert.source_loading import load_source
from tpuconvert.text_format import several


@click.command("check")
@conversion_options(*SOURCE_OPTIONS, "chip", "strict_set")
@click.option(
    "--for",
    "target",
    type=click.Choice(FORM_NAMES),
    help="Also check whether the INT8 model can be exported in this form.",
)
@progress_option
@json_option
def command(
    model: str,
    weights: str | None,
    plugins: tuple[str, ...],
    target: str | None,
    progress_mode: str,
    as_json: bool,
    **options: Any,
) -> None:
    """Check whether MODEL can be converted. List every problem, write nothing.

    Exit code 0 if it can, 3 if it has operators or attributes that the chip does not support, 4 if the file is damaged.
    With --for the model is quantized with the ranges of random inputs, and its export is checked too.
    """
    load_plugins(plugins)
    settings = Options.of(**options)
    with show_progress(progress_mode) as progress:
        progress.stage("load")
        graph = load_source(model, weights, settings, require_weights=False)
        if target is None:
            converted = convert_graph(graph, settings, progress=progress)
        else:
            # 150 ms: imports the quantizer and the exporters
            from tpuconvert.exporters.readiness import check_export

            converted = check_export(graph, settings, progress, target)
    description = describe_model(converted)
    if as_json:
        notes = group_notes(description["notes"], operators_of(description))
        print_json(
            {
                "file": model,
                "chip": description["chip"],
                "quantize": description["quantize"],
                "nodes": description["nodes"],
                "operators": description["operators"],
                "notes": [group.to_dict() for group in notes],
            }
        )
        return
    ability = "converted" if target is None else f"quantized and exported to {target}"
    echo(f"{model}: can be {ability} for {converted.chip.value}: {several(description['nodes'], 'node')}")
    for line in note_lines(description["notes"], operators_of(description)):
        echo_text(line)
