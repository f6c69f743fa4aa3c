"""``tpuconvert verify``."""

from __future__ import annotations

from typing import Any

import click

from tpuconvert.cli.choice import Choice
from tpuconvert.cli.config_file import config_options
from tpuconvert.cli.conversion_options import SectionedCommand, declared_options
from tpuconvert.cli.file_parameters import InputFile
from tpuconvert.cli.json_output import json_option, print_json
from tpuconvert.cli.progress_bar import show_progress
from tpuconvert.cli.shared_options import limit_options, plugin_option, progress_option, report_option
from tpuconvert.cli.source_and_model import source_and_model
from tpuconvert.cli.terminal import echo
from tpuconvert.conversion.options.options import READING_OPTIONS, group_options
from tpuconvert.model.model import load
from tpuconvert.plugins import load_plugins
from tpuconvert.report.report import report as write_model_report
from tpuconvert.verify.metrics import MetricLimit
from tpuconvert.verify.oracle import ENGINES
from tpuconvert.verify.source_comparison import VERIFICATION_SAMPLES
from tpuconvert.verify.verification import NamedLimit
from tpuconvert.verify.verify import verify


@click.command("verify", cls=SectionedCommand)
@click.argument("files", type=InputFile(), nargs=-1, required=True, metavar="MODEL [WEIGHTS] FILE.tpum")
@declared_options(*READING_OPTIONS)
@config_options
@click.option(
    "--data",
    type=InputFile(),
    metavar="DATA",
    help="Samples: a folder of images, an .npz or .npy file. Default: random numbers.",
)
@click.option(
    "--samples",
    type=click.IntRange(min=1),
    default=VERIFICATION_SAMPLES,
    show_default=True,
    help="How many to compare at most.",
)
@limit_options
@click.option(
    "--max-different",
    type=click.IntRange(min=0),
    metavar="N",
    help="Of a quantized source: how many integers may differ from its own; 0: bit-exact.",
)
@click.option(
    "--threshold",
    "limits",
    multiple=True,
    metavar="PATTERN:KEY=NUMBER",
    help="A limit for tensors by name, such as 'conv*:sqnr=25'; keys: difference, cosine, sqnr. Several: repeat it.",
)
@click.option(
    "--oracle",
    type=Choice(["auto", "none", *ENGINES]),
    default="auto",
    show_default=True,
    help="Another engine that runs the source in a separate process; auto: the first installed one that runs it.",
)
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    metavar="NAME[<=NUMBER]",
    help="A metric of a plugin, printed per output; a value above NUMBER is an error. Several: repeat it.",
)
@progress_option
@json_option
@report_option
@plugin_option
def command(
    files: tuple[str, ...],
    data: str | None,
    samples: int,
    max_difference: float | None,
    min_cosine: float | None,
    min_sqnr: float | None,
    max_different: int | None,
    limits: tuple[str, ...],
    oracle: str,
    metrics: tuple[str, ...],
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
    named = [NamedLimit.parse(text) for text in limits]
    load_plugins(plugins)
    for text in metrics:
        MetricLimit.parse(text)  # an unknown metric is an error before the files are read
    converted = load(file)
    with show_progress(progress_mode) as progress:
        found = verify(
            converted,
            model,
            weights,
            data=data,
            samples=samples,
            oracle=oracle,
            metrics=metrics,
            progress=progress,
            **group_options(**options),
        )
    if report is not None:
        write_model_report(converted, report, verification=found)
    if as_json:
        print_json(found.to_dict())
    else:
        echo(str(found))
    found.check(
        max_difference=max_difference,
        min_cosine=min_cosine,
        min_sqnr=min_sqnr,
        max_different=max_different,
        limits=named,
    )
    echo("within the thresholds", err=True)
