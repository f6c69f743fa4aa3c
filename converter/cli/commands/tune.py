"""``tpuconvert tune``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from tpuconvert.cli.conversion_options import conversion_options
from tpuconvert.cli.help_sections import SectionedCommand
from tpuconvert.cli.json_output import json_option, print_result
from tpuconvert.cli.option_fields import command_options
from tpuconvert.cli.problems import ensure_model_name, ensure_writable
from tpuconvert.cli.progress_bar import show_progress
from tpuconvert.cli.shared_options import calibration_option, model_output_option, progress_option, report_option
from tpuconvert.conversion.options.options import READING_OPTIONS, group_options, names_of
from tpuconvert.conversion.options.quantization import Quantization
from tpuconvert.option_declaration import REQUIRED, option
from tpuconvert.precision.metrics import NAMES
from tpuconvert.precision.tune import NOT_TUNED, files_beside, tune
from tpuconvert.report.report import report as write_model_report


@dataclass(frozen=True, kw_only=True)
class TuneOptions:
    """Options of the search."""

    data: str = option(
        REQUIRED,
        "Other samples, on which the metric is measured; labeled as for evaluate for top1.",
        metavar="DATA",
        is_file=True,
    )
    metric: str = option(
        "agreement",
        f"{', '.join(NAMES)}, or module:function, which is called with a model and DATA and returns a number.",
        metavar="METRIC",
    )
    max_drop: float = option(
        0.5, "Largest drop against the float model in points of a hundredth; for sqnr the smallest value in dB."
    )
    max_cost: float | None = option(
        None, "Largest share of the multiply-accumulates in float, as 0.05.", lower=0.0, upper=1.0
    )
    budget: str = option("10m", "No trial begins after it: 90s, 10m or 2h.", metavar="TIME")


@click.command("tune", cls=SectionedCommand)
@conversion_options(
    *READING_OPTIONS, "chip", *(name for name in names_of(Quantization) if name not in NOT_TUNED), "strict_set"
)
@model_output_option
@calibration_option(required=True)
@command_options(TuneOptions, "search")
@report_option
@progress_option
@json_option
def command(
    model: str,
    weights: str | None,
    output: str | None,
    calibration: str,
    search: TuneOptions,
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
    tpuconvert tune net.onnx --calibration images/ --data validation/ --max-drop 0.5 -o net.tpum
    """
    target = Path(output) if output is not None else Path(model).with_suffix(".tpum")
    ensure_model_name(str(target))
    for file in files_beside(target):
        ensure_writable(str(file))
    with show_progress(progress_mode) as progress:
        tuning = tune(
            model,
            weights,
            calibration=calibration,
            output=target,
            plugins=plugins,
            progress=progress,
            **vars(search),
            **group_options(**options),
        )
    if report is not None:
        write_model_report(target, report, tuning=tuning)
    print_result(tuning, as_json=as_json)
