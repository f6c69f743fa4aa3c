"""``tpuconvert calibrate``."""

from __future__ import annotations

from typing import Any

import click

from tpuconvert.cli.file_parameters import InputFile, OutputFile
from tpuconvert.cli.json_output import json_option, print_json
from tpuconvert.cli.problems import ensure, ensure_writable
from tpuconvert.cli.source_options import (
    calibration_method_option,
    conversion_options,
    make_options,
    progress_option,
)
from tpuconvert.cli.terminal import echo

SUFFIX = ".json"


@click.command("calibrate", short_help="Measure the range of every tensor.")
@conversion_options
@click.option(
    "--calibration",
    type=InputFile(),
    required=True,
    metavar="DATA",
    help="Samples: a folder of pictures, an .npz or .npy file.",
)
@calibration_method_option
@click.option("-o", "--output", type=OutputFile(), required=True, metavar="RANGES.json", help="The file to write.")
@progress_option
@json_option
def command(
    model: str,
    weights: str | None,
    calibration: str,
    output: str,
    plugins: tuple[str, ...],
    progress_mode: str,
    as_json: bool,
    **options: Any,
) -> None:
    """Run MODEL on samples and write the range of every tensor, for any number of calls of quantize.

    \b
    tpuconvert calibrate net.onnx --calibration images/ -o ranges.json --preprocess mean=127.5,scale=0.0078125
    tpuconvert quantize net.onnx --ranges ranges.json -o net.tpum
    """
    from tpuconvert.cli.progress_bar import drawn_progress
    from tpuconvert.plugins import load_plugins
    from tpuconvert.quantize.ranges_file import measure_ranges
    from tpuconvert.text_format import several

    ensure(output.lower().endswith(SUFFIX), f"{output}: the name of the ranges ends in {SUFFIX}")
    ensure_writable(output)
    load_plugins(plugins)
    settings = make_options(quantize="int8", **options)
    with drawn_progress(progress_mode) as progress:
        measured = measure_ranges(model, weights, settings, calibration, progress=progress)
    measured.save(output)
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
