"""``tpuconvert check``."""

from __future__ import annotations

from typing import Any

import click

from tpuconvert.cli.choice import Choice
from tpuconvert.cli.conversion_options import conversion_options
from tpuconvert.cli.help_sections import SectionedCommand
from tpuconvert.cli.json_output import json_option, print_result
from tpuconvert.cli.progress_bar import show_progress
from tpuconvert.cli.shared_options import progress_option
from tpuconvert.conversion.check import check
from tpuconvert.conversion.options.options import READING_OPTIONS, group_options
from tpuconvert.exporters.form_names import FORM_NAMES


@click.command("check", cls=SectionedCommand)
@conversion_options(*READING_OPTIONS, "chip", "strict_set")
@click.option(
    "--for",
    "target",
    type=Choice(FORM_NAMES),
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

    \b
    tpuconvert check net.onnx --chip bm1684
    tpuconvert check net.onnx --input-shapes image=1,3,224,224 --for tpulang
    """
    with show_progress(progress_mode) as progress:
        verdict = check(model, weights, target=target, plugins=plugins, progress=progress, **group_options(**options))
    print_result(verdict, as_json=as_json, wraps=True)
