"""``tpuconvert check``."""

from __future__ import annotations

from typing import Any

import click

from tpuconvert.cli.json_output import json_option, print_json
from tpuconvert.cli.source_options import conversion_options, make_options, progress_option, strict_set_option
from tpuconvert.cli.terminal import echo


@click.command("check", short_help="Say whether a source model can be converted.")
@conversion_options
@strict_set_option
@progress_option
@json_option
def command(
    model: str,
    weights: str | None,
    plugins: tuple[str, ...],
    progress_mode: str,
    as_json: bool,
    **options: Any,
) -> None:
    """Say whether MODEL can be converted: every problem in one pass, nothing written.

    Exit code 0 when it can, 3 when it uses what cannot be represented on the chip, 4 when the file is damaged.
    """
    from tpuconvert.cli.progress_bar import drawn_progress
    from tpuconvert.cli.terminal import echo_text
    from tpuconvert.pipeline import finish
    from tpuconvert.plugins import load_plugins
    from tpuconvert.report.model_description import describe_model
    from tpuconvert.report.notes import grouped, note_lines, operators_of
    from tpuconvert.source_loading import load_source
    from tpuconvert.text_format import several

    load_plugins(plugins)
    settings = make_options(**options)
    with drawn_progress(progress_mode) as progress:
        progress.stage("load")
        graph = load_source(model, weights, settings, require_weights=False)
        converted = finish(graph, settings, progress=progress)
    description = describe_model(converted)
    if as_json:
        notes = grouped(description["notes"], operators_of(description))
        print_json(
            {
                "file": model,
                "chip": description["chip"],
                "quantize": description["quantize"],
                "nodes": description["nodes"],
                "operators": description["operators"],
                "notes": [group.to_mapping() for group in notes],
            }
        )
        return
    echo(f"{model}: can be converted for {converted.chip.value}: {several(description['nodes'], 'node')}")
    for line in note_lines(description["notes"], operators_of(description)):
        echo_text(line)
