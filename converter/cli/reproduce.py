"""``tpuconvert reproduce``."""

from __future__ import annotations

import click

from tpuconvert.cli.conversion_options import declared_option
from tpuconvert.cli.file_parameters import InputFile, OutputFile
from tpuconvert.cli.json_output import json_option, print_json
from tpuconvert.cli.problems import ensure_model_name
from tpuconvert.cli.progress_bar import show_progress
from tpuconvert.cli.shared_options import calibration_option, plugin_option, progress_option
from tpuconvert.cli.source_and_model import source_and_model
from tpuconvert.cli.terminal import echo
from tpuconvert.conversion.reproduction import reproduce


@click.command("reproduce")
@click.argument("files", type=InputFile(), nargs=-1, required=True, metavar="MODEL [WEIGHTS] FILE.tpum")
@calibration_option(help="The samples with which the file was quantized.")
@click.option("--ranges", type=InputFile(), metavar="RANGES.json", help="The ranges that the file was quantized with.")
@click.option("-o", "--output", type=OutputFile(), metavar="OUT.tpum", help="Keep the file that is made.")
@click.option("--statement", type=OutputFile(), metavar="FILE.json", help="Write an in-toto statement if it succeeds.")
@declared_option("allow_root")
@progress_option
@json_option
@plugin_option
def command(
    files: tuple[str, ...],
    calibration: str | None,
    ranges: str | None,
    output: str | None,
    statement: str | None,
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
    if output is not None:
        ensure_model_name(output)
    with show_progress(progress_mode) as progress:
        found = reproduce(
            file,
            model,
            weights,
            calibration=calibration,
            ranges=ranges,
            output=output,
            statement=statement,
            allow_root=allow_root,
            plugins=plugins,
            progress=progress,
        )
    if as_json:
        print_json(found.to_dict())
    elif found.is_same:
        echo(str(found))
    found.check()
