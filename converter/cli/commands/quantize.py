"""``tpuconvert quantize``."""

from __future__ import annotations

from typing import Any

import click

from tpuconvert.cli.conversion_options import conversion_options, source_option_args
from tpuconvert.cli.convert_files import Files, convert_files, print_summary
from tpuconvert.cli.file_parameters import InputFile
from tpuconvert.cli.help_sections import SectionedCommand
from tpuconvert.cli.json_output import json_option
from tpuconvert.cli.problems import ensure
from tpuconvert.cli.progress_bar import show_progress
from tpuconvert.cli.shared_options import (
    calibration_option,
    model_output_option,
    progress_option,
    report_option,
    verify_option,
)
from tpuconvert.conversion.options.options import READING_OPTIONS, Options, names_of
from tpuconvert.conversion.options.quantization import Quantization
from tpuconvert.conversion.quantize import check_data
from tpuconvert.frontends.sniffing import SourceFile
from tpuconvert.plugins import load_plugins
from tpuconvert.schema.definition.chip_names import device_of


@click.command("quantize", cls=SectionedCommand)
@conversion_options(
    *READING_OPTIONS,
    "chip",
    *names_of(Quantization),
    "strict_accuracy",
    "strict_set",
)
@model_output_option
@click.option("--ranges", type=InputFile(), metavar="RANGES.json", help="Ranges that tpuconvert calibrate has written.")
@calibration_option(
    help="Calibration samples: a folder of images, an .npz or .npy file. With --ranges they only refine the weights."
)
@verify_option
@report_option
@progress_option
@json_option
def command(
    model: str,
    weights: str | None,
    output: str | None,
    ranges: str | None,
    calibration: str | None,
    plugins: tuple[str, ...],
    with_verification: bool,
    report: str | None,
    progress_mode: str,
    as_json: bool,
    **options: Any,
) -> None:
    """Convert MODEL to INT8 with ranges from a file, or with samples as convert --quantize int8 does.

    The source is needed because the graph of a float .tpum file is optimized for float. With ranges alone weights are
    rounded to nearest and biases stay; samples add bias correction and adaptive rounding.

    \b
    tpuconvert quantize net.onnx --ranges ranges.json -o net.tpum
    tpuconvert quantize net.onnx --ranges ranges.json --calibration images/ -o net.tpum
    """
    check_data(ranges is not None, calibration is not None)
    ensure(
        calibration is not None or not with_verification,
        "--verify needs samples: ranges are not made for random numbers",
        hint="add the samples with --calibration, or verify the model with --data afterwards",
    )
    kind = SourceFile(model).kind
    ensure(
        kind is None or kind.id != "tpum",
        f"{model}: is converted already",
        hint="give the source that it was converted from",
    )
    files = Files(model, weights, calibration, output, report, ranges)
    files.check()
    load_plugins(plugins)
    checked = Options.of(quantize="int8", **options)
    with show_progress(progress_mode) as progress:
        summary = convert_files(
            files,
            checked,
            progress,
            with_verification=with_verification,
            source_args=source_option_args,
            device=device_of(options["chip"]),
        )
    print_summary(summary, as_json=as_json)
