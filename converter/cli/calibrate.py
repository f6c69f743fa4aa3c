"""``tpuconvert calibrate``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tpuconvert.cli.conversion_options import conversion_options
from tpuconvert.cli.file_parameters import OutputFile
from tpuconvert.cli.json_output import json_option, print_json
from tpuconvert.cli.problems import ensure, ensure_writable
from tpuconvert.cli.progress_bar import show_progress
from tpuconvert.cli.shared_options import PARTIAL_SUFFIX, calibration_option, progress_option, resume_option
from tpuconvert.cli.terminal import echo
from tpuconvert.options import SOURCE_OPTIONS, Options
from tpuconvert.plugins import load_plugins
from tpuconvert.quantize.ranges_file import measure_ranges
from tpuconvert.text_format import several

SUFFIX = ".json"


@click.command("calibrate")
@conversion_options(*SOURCE_OPTIONS, "chip", "calibration_method", "precision", "workers", "scheduler")
@calibration_option(required=True)
@click.option("-o", "--output", type=OutputFile(), required=True, metavar="RANGES.json", help="The file to write.")
@resume_option
@progress_option
@json_option
def command(
    model: str,
    weights: str | None,
    calibration: str,
    output: str,
    plugins: tuple[str, ...],
    resume: bool,
    progress_mode: str,
    as_json: bool,
    **options: Any,
) -> None:
    """Run MODEL on samples and write the range of every tensor to a file that quantize can use repeatedly.

    \b
    tpuconvert calibrate net.onnx --calibration images/ -o ranges.json --preprocess mean=127.5,scale=0.0078125
    tpuconvert quantize net.onnx --ranges ranges.json -o net.tpum
    """
    ensure(output.lower().endswith(SUFFIX), f"{output}: the name of the ranges ends in {SUFFIX}")
    ensure_writable(output)
    load_plugins(plugins)
    partial = Path(f"{output}{PARTIAL_SUFFIX}")
    settings = Options.of(quantize="int8", **options)
    with show_progress(progress_mode) as progress:
        measured = measure_ranges(
            model, weights, settings, calibration, progress=progress, resume=partial if resume else None
        )
    measured.save(output)
    if resume:
        partial.unlink(missing_ok=True)
    if as_json:
        print_json(
            {
                "source": model,
                "output": output,
                "method": measured.method,
                "samples": measured.samples,
                "tensors": len(measured.ranges),
            }
        )
        return
    echo(f"{model}: ranges of {several(len(measured.ranges), 'tensor')} by {measured.method}\nwrote {output}")
