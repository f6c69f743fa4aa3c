"""``tpuconvert reproduce``."""

from __future__ import annotations

from dataclasses import dataclass

import click

from tpuconvert.cli.conversion_options import declared_option
from tpuconvert.cli.file_parameters import InputFile
from tpuconvert.cli.help_sections import SectionedCommand
from tpuconvert.cli.json_output import json_option, print_result
from tpuconvert.cli.option_fields import command_options
from tpuconvert.cli.problems import ensure_model_name
from tpuconvert.cli.progress_bar import show_progress
from tpuconvert.cli.shared_options import plugin_option, progress_option
from tpuconvert.cli.source_and_model import source_and_model
from tpuconvert.conversion.reproduction import reproduce
from tpuconvert.option_declaration import option


@dataclass(frozen=True, kw_only=True)
class ReproduceOptions:
    """Options of ``reproduce``."""

    calibration: str | None = option(
        None, "The samples with which the file was quantized.", metavar="DATA", is_file=True
    )
    ranges: str | None = option(
        None, "The ranges that the file was quantized with.", metavar="RANGES.json", is_file=True
    )
    output: str | None = option(
        None, "Keep the file that is made.", flags="-o --output", metavar="OUT.tpum", is_output=True
    )
    statement: str | None = option(
        None, "Write an in-toto statement if it succeeds.", metavar="FILE.json", is_output=True
    )


@click.command("reproduce", cls=SectionedCommand)
@click.argument("files", type=InputFile(), nargs=-1, required=True, metavar="MODEL [WEIGHTS] FILE.tpum")
@command_options(ReproduceOptions)
@declared_option("allow_root")
@progress_option
@json_option
@plugin_option
def command(
    files: tuple[str, ...],
    options: ReproduceOptions,
    allow_root: str | None,
    progress_mode: str,
    as_json: bool,
    plugins: tuple[str, ...],
) -> None:
    """Convert MODEL [WEIGHTS] again with the options stored in FILE.tpum, and compare the bytes.

    The source and the samples must equal the files of the first conversion. Exit code 5 if the bytes differ.

    \b
    tpuconvert reproduce net.onnx net.tpum --calibration images/
    """
    model, weights, file = source_and_model("reproduce", files)
    if options.output is not None:
        ensure_model_name(options.output)
    with show_progress(progress_mode) as progress:
        reproduction = reproduce(
            file, model, weights, allow_root=allow_root, plugins=plugins, progress=progress, **vars(options)
        )
    if as_json or reproduction.is_same:
        print_result(reproduction, as_json=as_json)
    reproduction.check()
