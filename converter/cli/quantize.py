"""``tpuconvert quantize``."""

from __future__ import annotations

from typing import Any

import click

from tpuconvert.cli.file_parameters import InputFile, OutputFile
from tpuconvert.cli.json_output import json_option
from tpuconvert.cli.problems import ensure
from tpuconvert.cli.source_options import (
    calibration_method_option,
    conversion_options,
    make_options,
    min_int8_share_option,
    progress_option,
    said_again,
    strict_set_option,
)


@click.command("quantize", short_help="Convert a source model to INT8, with ranges or samples.")
@conversion_options
@click.option(
    "-o",
    "--output",
    type=OutputFile(),
    metavar="OUT.tpum",
    help="The file to write. Default: the model's name with .tpum.",
)
@click.option("--ranges", type=InputFile(), metavar="RANGES.json", help="Ranges that tpuconvert calibrate has written.")
@click.option(
    "--calibration",
    type=InputFile(),
    metavar="DATA",
    help="Samples: a folder of pictures, an .npz or .npy file. Beside --ranges they only refine the weights.",
)
@calibration_method_option
@min_int8_share_option
@strict_set_option
@click.option("--verify", "with_verification", is_flag=True, help="Compare with the source before writing.")
@click.option("--report", type=OutputFile(), metavar="FILE", help="Also write a report: .html, .json, or text.")
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
    """Convert MODEL to INT8 with measured ranges, or with samples as convert --quantize int8 does.

    The weights come from the source: a float .tpum file has lost nothing, but its graph is made for float already. With
    ranges alone weights are rounded to nearest and biases stay; samples let both make up for each other's errors.

    \b
    tpuconvert quantize net.onnx --ranges ranges.json -o net.tpum
    tpuconvert quantize net.onnx --ranges ranges.json --calibration images/ -o net.tpum
    """
    from tpuconvert.cli.conversion import Files, make, tell
    from tpuconvert.cli.progress_bar import drawn_progress
    from tpuconvert.frontends.sniffing import identify_file
    from tpuconvert.plugins import load_plugins

    ensure(
        ranges is not None or calibration is not None,
        "quantization needs ranges or samples",
        hint="--ranges FILE from tpuconvert calibrate, or --calibration DATA",
    )
    ensure(
        calibration is not None or not with_verification,
        "--verify needs samples: ranges are not made for random numbers",
        hint="--calibration DATA, or tpuconvert verify MODEL FILE.tpum --data DATA afterwards",
    )
    kind = identify_file(model)
    ensure(
        kind is None or kind.id != "tpum",
        f"{model}: is converted already",
        hint="give the source that it was made from",
    )
    files = Files(model, weights, calibration, output, report, ranges)
    files.check()
    load_plugins(plugins)
    settings = make_options(quantize="int8", **options)
    again = said_again()
    with drawn_progress(progress_mode) as progress:
        summary = make(files, settings, progress, with_verification=with_verification, said_again=again)
    tell(summary, as_json=as_json)
