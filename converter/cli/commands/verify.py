"""``tpuconvert verify``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click

from tpuconvert.cli.config_file import config_options
from tpuconvert.cli.conversion_options import declared_options
from tpuconvert.cli.file_parameters import InputFile
from tpuconvert.cli.help_sections import SectionedCommand
from tpuconvert.cli.json_output import json_option, print_result
from tpuconvert.cli.option_fields import command_options
from tpuconvert.cli.progress_bar import show_progress
from tpuconvert.cli.shared_options import LimitOptions, plugin_option, progress_option, report_option
from tpuconvert.cli.source_and_model import source_and_model
from tpuconvert.cli.terminal import echo
from tpuconvert.conversion.options.options import READING_OPTIONS, group_options
from tpuconvert.model.model import load
from tpuconvert.option_declaration import option
from tpuconvert.plugins import load_plugins
from tpuconvert.report.report import report as write_model_report
from tpuconvert.verify.metrics import MetricLimit
from tpuconvert.verify.oracle import ENGINES
from tpuconvert.verify.source_comparison import VERIFICATION_SAMPLES
from tpuconvert.verify.verification import NamedLimit
from tpuconvert.verify.verify import verify


@dataclass(frozen=True, kw_only=True)
class VerifyOptions:
    """Options of ``verify`` that are arguments of ``tpuconvert.verify``."""

    data: str | None = option(
        None,
        "Samples: a folder of images, an .npz or .npy file. Default: random numbers.",
        metavar="DATA",
        is_file=True,
    )
    samples: int = option(VERIFICATION_SAMPLES, "How many to compare at most.", lower=1)
    oracle: str = option(
        "auto",
        "Another engine that runs the source in a separate process; auto: the first installed one that runs it.",
        choices=("auto", "none", *ENGINES),
    )
    metrics: tuple[str, ...] = option(
        (),
        "A metric of a plugin, printed per output; a value above NUMBER is an error.",
        flags="--metric",
        metavar="NAME[<=NUMBER]",
        is_repeated=True,
    )


@dataclass(frozen=True, kw_only=True)
class VerifyLimits(LimitOptions):
    """Limits of a verification."""

    max_different: int | None = option(
        None,
        "Of a quantized source: how many integers may differ from its own; 0: bit-exact.",
        metavar="N",
        lower=0,
    )
    limits: tuple[str, ...] = option(
        (),
        "A limit for tensors by name, such as 'conv*:sqnr=25'; keys: difference, cosine, sqnr.",
        flags="--threshold",
        metavar="PATTERN:KEY=NUMBER",
        is_repeated=True,
    )


@click.command("verify", cls=SectionedCommand)
@click.argument("files", type=InputFile(), nargs=-1, required=True, metavar="MODEL [WEIGHTS] FILE.tpum")
@declared_options(*READING_OPTIONS)
@config_options
@command_options(VerifyOptions, "settings")
@command_options(VerifyLimits, "limits")
@progress_option
@json_option
@report_option
@plugin_option
def command(
    files: tuple[str, ...],
    settings: VerifyOptions,
    limits: VerifyLimits,
    progress_mode: str,
    as_json: bool,
    report: str | None,
    plugins: tuple[str, ...],
    **options: Any,
) -> None:
    """Compare FILE.tpum with its source MODEL [WEIGHTS], tensor by tensor.

    Four stages are compared: import (with another engine, if one is installed), optimize, quantize and legalize. The
    first tensor that differs is printed with its stage. A quantized source is compared integer by integer. Exit code 5
    when an output is NaN or has one value everywhere, or is further from the source than the thresholds allow. Without
    thresholds: 1e-4 of an output's range for float models, cosine 0.95 for INT8, and for BM1686 every integer of a
    quantized source, where only integers take part.

    \b
    tpuconvert verify net.onnx net.tpum --data images/
    tpuconvert verify deploy.prototxt net.caffemodel net.tpum --min-cosine 0.99 --html verified.html
    """
    model, weights, file = source_and_model("verify", files)
    named = [NamedLimit.parse(text) for text in limits.limits]
    load_plugins(plugins)
    for text in settings.metrics:
        MetricLimit.parse(text)  # an unknown metric is an error before the files are read
    converted = load(file)
    with show_progress(progress_mode) as progress:
        comparison = verify(converted, model, weights, progress=progress, **vars(settings), **group_options(**options))
    if report is not None:
        write_model_report(converted, report, verification=comparison)
    print_result(comparison, as_json=as_json)
    comparison.check(**{**vars(limits), "limits": named})
    echo("within the thresholds", err=True)
