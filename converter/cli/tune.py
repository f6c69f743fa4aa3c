"""``tpuconvert tune``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tpuconvert.cli.conversion_options import SectionedCommand, conversion_options
from tpuconvert.cli.file_parameters import InputFile
from tpuconvert.cli.json_output import json_option, print_json
from tpuconvert.cli.problems import ensure_model_name, ensure_writable
from tpuconvert.cli.progress_bar import show_progress
from tpuconvert.cli.shared_options import calibration_option, model_output_option, progress_option, report_option
from tpuconvert.cli.terminal import echo
from tpuconvert.conversion.options.options import READING_OPTIONS, group_options, names_of
from tpuconvert.conversion.options.quantization import Quantization
from tpuconvert.precision.metrics import NAMES
from tpuconvert.precision.tune import files_beside, tune
from tpuconvert.report.report import report as write_model_report


@click.command("tune", cls=SectionedCommand)
@conversion_options(
    *READING_OPTIONS, "chip", *(name for name in names_of(Quantization) if name != "min_int8_share"), "strict_set"
)
@model_output_option
@calibration_option(required=True)
@click.option(
    "--data",
    type=InputFile(),
    required=True,
    metavar="DATA",
    help="Other samples, on which the metric is measured; labelled as for evaluate for top1.",
)
@click.option(
    "--metric",
    default="agreement",
    show_default=True,
    metavar="METRIC",
    help=f"{', '.join(NAMES)}, or module:function, which is called with a model and DATA and returns a number.",
)
@click.option(
    "--max-drop",
    type=float,
    default=0.5,
    show_default=True,
    help="Largest drop against the float model in points of a hundredth; for sqnr the smallest value in dB.",
)
@click.option(
    "--max-cost", type=click.FloatRange(0, 1), help="Largest share of the multiply-accumulates in float, as 0.05."
)
@click.option(
    "--budget", default="10m", show_default=True, metavar="TIME", help="No trial begins after it: 90s, 10m or 2h."
)
@report_option
@progress_option
@json_option
def command(
    model: str,
    weights: str | None,
    output: str | None,
    calibration: str,
    data: str,
    metric: str,
    max_drop: float,
    max_cost: float | None,
    budget: str,
    plugins: tuple[str, ...],
    report: str | None,
    progress_mode: str,
    as_json: bool,
    **options: Any,
) -> None:
    """Find the nodes of MODEL to keep in float so that its INT8 model is as accurate as wanted, at the smallest cost.

    The best model so far is in OUT.tpum at any time, its precision rules in OUT.rules.yaml, and all trials in
    OUT.tuning.json. The same command continues a search that was interrupted.

    \b
    tpuconvert tune net.onnx --calibration images/ --data validation/ --metric top1 --max-drop 0.5 -o net.tpum
    """
    target = Path(output) if output is not None else Path(model).with_suffix(".tpum")
    ensure_model_name(str(target))
    for file in files_beside(target):
        ensure_writable(str(file))
    with show_progress(progress_mode) as progress:
        found = tune(
            model,
            weights,
            calibration=calibration,
            data=data,
            output=target,
            metric=metric,
            max_drop=max_drop,
            max_cost=max_cost,
            budget=budget,
            plugins=plugins,
            progress=progress,
            **group_options(**options),
        )
    if report is not None:
        write_model_report(target, report, tuning=found)
    if as_json:
        print_json(found.to_dict())
    else:
        echo(str(found))
