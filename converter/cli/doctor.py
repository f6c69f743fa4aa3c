"""``tpuconvert doctor``."""

from __future__ import annotations

from typing import Any

import click
from click.core import ParameterSource

from tpuconvert.cli.conversion_options import SectionedCommand, conversion_options
from tpuconvert.cli.file_parameters import InputFile
from tpuconvert.cli.json_output import json_option, print_json
from tpuconvert.cli.progress_bar import show_progress
from tpuconvert.cli.shared_options import engine_options, progress_option
from tpuconvert.cli.terminal import echo_text
from tpuconvert.conversion.options.options import READING_OPTIONS, group_options
from tpuconvert.doctor.doctor import doctor
from tpuconvert.doctor.installation import installation
from tpuconvert.schema.errors import UsageError

OF_BOTH = ("as_json", "progress_mode")
"""Options that also the check of the installation has."""


@click.command("doctor", cls=SectionedCommand)
@conversion_options(*READING_OPTIONS, "chip", "calibration_method", needs_model=False)
@click.option(
    "--data",
    type=InputFile(),
    metavar="SAMPLES",
    help="A folder of images, an .npz or .npy file; with labels: an array 'labels', or a folder per class.",
)
@click.option(
    "--labels",
    type=InputFile(),
    metavar="FILE",
    help="Labels beside the samples: .npy, .npz, or text with one per line.",
)
@click.option("--scores", metavar="OUTPUT", help="The output that holds the scores. Default: the first.")
@click.option("--strict", is_flag=True, help="Fail (exit code 5) with a warning.")
@engine_options
@progress_option
@json_option
def command(
    model: str | None,
    weights: str | None,
    data: str | None,
    labels: str | None,
    scores: str | None,
    strict: bool,
    backend: Any,
    threads: int | None,
    calibration_method: str,
    plugins: tuple[str, ...],
    progress_mode: str,
    as_json: bool,
    **options: Any,
) -> None:
    """Check SAMPLES and --preprocess against what MODEL (a source or a .tpum file) expects, and name what to change.

    Without arguments, check the installation. A bug report contains the output.

    \b
    tpuconvert doctor
    tpuconvert doctor net.onnx --data validation/ --preprocess mean=127.5,scale=0.0078125
    tpuconvert doctor net.onnx --data images.npz --labels labels.npy
    """
    if model is None:
        check_installation(as_json)
        return
    if data is None:
        raise UsageError("MODEL without --data", hint="add the samples: tpuconvert doctor MODEL --data SAMPLES")
    with show_progress(progress_mode) as progress:
        found = doctor(
            model,
            data,
            weights,
            labels=labels,
            scores=scores,
            backend=backend,
            threads=threads,
            plugins=plugins,
            progress=progress,
            calibration_method=calibration_method,
            **group_options(**options),
        )
    if as_json:
        print_json(found.to_dict())
    else:
        echo_text(str(found))
    if strict:
        found.check()


def check_installation(as_json: bool) -> None:
    """Print the state of the installation.

    Raises:
        UsageError: there are options that belong to a model.
        TpuConvertError: the installation has a problem.

    """
    context = click.get_current_context()
    for item in context.command.params:
        is_given = context.get_parameter_source(item.name or "") is ParameterSource.COMMANDLINE
        if is_given and item.name not in OF_BOTH:
            hint = "name the model: tpuconvert doctor MODEL --data SAMPLES; without options the installation is checked"
            raise UsageError(f"{max(item.opts, key=len)} without MODEL", hint=hint)
    found = installation()
    if as_json:
        print_json(found.to_dict())
    else:
        echo_text(str(found))
    found.check()
