"""``tpuconvert calibrate``."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from tpuconvert.cli.conversion_options import conversion_options, source_option_args
from tpuconvert.cli.convert_files import command_text
from tpuconvert.cli.file_parameters import OutputFile
from tpuconvert.cli.help_sections import SectionedCommand
from tpuconvert.cli.json_output import json_option, print_json
from tpuconvert.cli.problems import ensure, ensure_writable
from tpuconvert.cli.progress_bar import show_progress
from tpuconvert.cli.shared_options import calibration_option, progress_option
from tpuconvert.cli.terminal import echo
from tpuconvert.conversion.calibrate import RANGE_OPTIONS, calibrate
from tpuconvert.conversion.options.options import READING_OPTIONS, group_options
from tpuconvert.schema.text.plain_values import MERGED, Plain

if TYPE_CHECKING:
    from tpuconvert.conversion.quantization.ranges_file import MeasuredRanges

SUFFIX = ".json"


@dataclass(frozen=True)
class CalibrationDocument(Plain, keys={"ranges": MERGED}):
    """Result of a calibration.

    Args:
        source: the source.
        output: the ranges file.

    """

    source: str
    output: str
    ranges: MeasuredRanges


@click.command("calibrate", cls=SectionedCommand)
@conversion_options(*READING_OPTIONS, "chip", *RANGE_OPTIONS)
@calibration_option(required=True)
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
    """Run MODEL on samples and write the range of every tensor to a file that quantize can use repeatedly.

    \b
    tpuconvert calibrate net.onnx --calibration images/ -o ranges.json --preprocess scale=0.0039
    tpuconvert quantize net.onnx --ranges ranges.json -o net.tpum
    """
    ensure(output.lower().endswith(SUFFIX), f"{output}: the name of the ranges ends in {SUFFIX}")
    ensure_writable(output)
    with show_progress(progress_mode) as progress:
        ranges = calibrate(
            model,
            weights,
            calibration=calibration,
            output=output,
            plugins=plugins,
            progress=progress,
            **group_options(**options),
        )
    if as_json:
        print_json(CalibrationDocument(model, output, ranges))
    else:
        target = ["-o", f"{os.path.splitext(os.path.basename(model))[0]}.tpum"]
        words = ["--ranges", output, *source_option_args("quantize"), *target]
        following = command_text("quantize", words, [model, *([weights] if weights else [])])
        echo(f"{model}: {ranges}\nwrote {output}")
        if following.isprintable():  # escapes of a file name would be part of the command
            echo(f"next: {following}")
