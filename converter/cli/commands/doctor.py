"""``tpuconvert doctor``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click
from click.core import ParameterSource

from tpuconvert.cli.conversion_options import conversion_options
from tpuconvert.cli.help_sections import SectionedCommand
from tpuconvert.cli.json_output import json_option, print_result
from tpuconvert.cli.option_fields import command_options
from tpuconvert.cli.progress_bar import show_progress
from tpuconvert.cli.shared_options import EngineOptions, progress_option
from tpuconvert.conversion.options.options import READING_OPTIONS, group_options
from tpuconvert.doctor.doctor import doctor
from tpuconvert.doctor.installation import installation
from tpuconvert.option_declaration import option
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.text.visible_text import shell_word

OF_BOTH = ("as_json", "progress_mode")
"""Options that also the check of the installation has."""


@dataclass(frozen=True, kw_only=True)
class DoctorOptions(EngineOptions):
    """Options of ``doctor`` that are arguments of ``tpuconvert.doctor``."""

    data: str | None = option(
        None,
        "A folder of images, an .npz or .npy file; with labels: an array 'labels', or a folder per class.",
        metavar="SAMPLES",
        is_file=True,
    )
    labels: str | None = option(
        None,
        "Labels beside the samples: .npy, .npz, or text with one per line.",
        metavar="FILE",
        is_file=True,
    )
    scores: str | None = option(None, "The output that holds the scores. Default: the first.", metavar="OUTPUT")


@click.command("doctor", cls=SectionedCommand)
@conversion_options(*READING_OPTIONS, "chip", "calibration_method", needs_model=False)
@command_options(DoctorOptions, "settings")
@click.option("--strict", is_flag=True, help="Fail (exit code 5) with a warning.")
@progress_option
@json_option
def command(
    model: str | None,
    weights: str | None,
    settings: DoctorOptions,
    strict: bool,
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
    if settings.data is None:
        call = f"tpuconvert doctor {shell_word(model)} --data SAMPLES"
        raise UsageError("a model without --data", file=model, hint=f"add the samples: {call}")
    arguments = {**vars(settings), "calibration_method": calibration_method, **group_options(**options)}
    with show_progress(progress_mode) as progress:
        diagnosis = doctor(model, weights=weights, plugins=plugins, progress=progress, **arguments)
    print_result(diagnosis, as_json=as_json, wraps=True)
    if strict:
        diagnosis.check()


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
    state = installation()
    print_result(state, as_json=as_json, wraps=True)
    state.check()
