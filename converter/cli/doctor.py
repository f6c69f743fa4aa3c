"""``tpuconvert doctor``."""

from __future__ import annotations

from typing import Any

import click

from tpuconvert.cli.conversion_options import conversion_options
from tpuconvert.cli.file_parameters import InputFile
from tpuconvert.cli.json_output import json_option, print_json
from tpuconvert.cli.progress_bar import show_progress
from tpuconvert.cli.shared_options import engine_options, progress_option
from tpuconvert.cli.terminal import echo_text
from tpuconvert.diagnosis.doctor import doctor
from tpuconvert.options import SOURCE_OPTIONS


@click.command("doctor")
@conversion_options(*SOURCE_OPTIONS, "chip", "calibration_method")
@click.option(
    "--data",
    type=InputFile(),
    required=True,
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
    model: str,
    weights: str | None,
    data: str,
    labels: str | None,
    scores: str | None,
    strict: bool,
    backend: Any,
    threads: int | None,
    plugins: tuple[str, ...],
    progress_mode: str,
    as_json: bool,
    **options: Any,
) -> None:
    """Check SAMPLES and --preprocess against what MODEL (a source or a .tpum file) expects, and name what to change.

    \b
    tpuconvert doctor net.onnx --data validation/ --preprocess mean=127.5,scale=0.0078125
    tpuconvert doctor net.onnx --data images.npz --labels labels.npy
    """
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
            **options,
        )
    if as_json:
        print_json(found.to_dict())
    else:
        echo_text(str(found))
    if strict:
        found.check()
