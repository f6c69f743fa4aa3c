"""``tpuconvert convert``."""

from __future__ import annotations

from typing import Any

import click

from tpuconvert.cli.file_parameters import InputFile, OutputFile
from tpuconvert.cli.json_output import json_option
from tpuconvert.cli.source_options import (
    calibration_method_option,
    conversion_options,
    make_options,
    make_watch,
    min_int8_share_option,
    progress_option,
    said_again,
    strict_set_option,
)


@click.command("convert", short_help="Convert a source model to a .tpum file.")
@conversion_options
@click.option(
    "-o",
    "--output",
    type=OutputFile(),
    metavar="OUT.tpum",
    help="The file to write. Default: the model's name with .tpum.",
)
@click.option(
    "--quantize",
    type=click.Choice(["none", "int8"]),
    default="none",
    show_default=True,
    help="Arithmetic of the model; none is float, and leaves a quantized source as it is.",
)
@click.option(
    "--calibration",
    type=InputFile(),
    metavar="DATA",
    help="Samples for int8: a folder of pictures, an .npz or .npy file.",
)
@calibration_method_option
@click.option(
    "--max-transposes", type=click.IntRange(min=0), metavar="N", help="Fail (exit code 5) when more are left."
)
@min_int8_share_option
@strict_set_option
@click.option(
    "--grouping/--no-grouping",
    default=True,
    help="Plan which nodes share on-chip memory (the default), or not. Results do not depend on it.",
)
@click.option(
    "--local-memory",
    metavar="LANESxBYTES",
    help="On-chip memory to plan for, as 64x256K, or a chip's name. Default: that of the chip.",
)
@click.option("--trace", is_flag=True, help="Tell on stderr which rewrite rules fired, and why others did not.")
@click.option(
    "--disable-rule",
    "disable_rules",
    multiple=True,
    metavar="NAME",
    help="Leave a rule or pass of the optimizer out: tpuconvert passes lists them. Several: repeat it.",
)
@click.option(
    "--dump-after",
    "dumps",
    type=OutputFile(is_named=True),
    multiple=True,
    metavar="NAME[=FILE]",
    help="Tell on stderr what the graph is after a rule or pass, or write it as .tpum or text. Several: repeat it.",
)
@click.option("--validate", is_flag=True, help="Run the graph around every pass; name the rule that changed it.")
@click.option(
    "--validate-on",
    type=InputFile(),
    metavar="DATA",
    help="As --validate, on samples of yours besides random numbers: pictures, an .npz or .npy file.",
)
@click.option("--verify", "with_verification", is_flag=True, help="Compare with the source before writing.")
@click.option("--report", type=OutputFile(), metavar="FILE", help="Also write a report: .html, .json, or text.")
@progress_option
@json_option
def command(
    model: str,
    weights: str | None,
    output: str | None,
    calibration: str | None,
    plugins: tuple[str, ...],
    trace: bool,
    dumps: tuple[str, ...],
    validate: bool,
    validate_on: str | None,
    with_verification: bool,
    report: str | None,
    progress_mode: str,
    as_json: bool,
    **options: Any,
) -> None:
    """Convert MODEL (ONNX, TFLite, or a Caffe prototxt with its WEIGHTS) to a .tpum file.

    \b
    tpuconvert convert net.onnx -o net.tpum --chip bm1686
    tpuconvert convert net.tflite -o net.tpum --quantize int8 --calibration images/ \\
        --preprocess mean=127.5,scale=0.0078125,layout=NHWC
    tpuconvert convert deploy.prototxt net.caffemodel -o net.tpum
    """
    from tpuconvert.cli.conversion import Files, make, tell
    from tpuconvert.cli.progress_bar import drawn_progress
    from tpuconvert.plugins import load_plugins

    files = Files(model, weights, calibration, output, report)
    files.check()
    load_plugins(plugins)
    settings = make_options(**options)
    again = said_again()
    with drawn_progress(progress_mode) as progress:
        watch = None
        if trace or dumps or validate or validate_on is not None:
            watch = make_watch(trace, dumps, validate or validate_on is not None, validate_on or calibration)
        summary = make(files, settings, progress, watch=watch, with_verification=with_verification, said_again=again)
    tell(summary, as_json=as_json)
