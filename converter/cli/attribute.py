"""``tpuconvert attribute``."""

from __future__ import annotations

import click

from tpuconvert.cli.conversion_options import declared_option
from tpuconvert.cli.file_parameters import InputFile
from tpuconvert.cli.json_output import json_option, print_json
from tpuconvert.cli.progress_bar import show_progress
from tpuconvert.cli.shared_options import plugin_option, progress_option, report_option
from tpuconvert.cli.source_and_model import source_and_model
from tpuconvert.cli.terminal import echo
from tpuconvert.model.model import load
from tpuconvert.plugins import load_plugins
from tpuconvert.precision.attribution import MEASURED_RULES, NODES, SAMPLES, attribute
from tpuconvert.report.report import report as write_model_report


@click.command("attribute")
@click.argument("files", type=InputFile(), nargs=-1, required=True, metavar="MODEL [WEIGHTS] FILE.tpum")
@click.option(
    "--data",
    type=InputFile(),
    metavar="DATA",
    help="Samples: a folder of images, an .npz or .npy file. Default: random numbers.",
)
@click.option(
    "--samples", type=click.IntRange(min=1), default=SAMPLES, show_default=True, help="Largest number of samples."
)
@click.option(
    "--nodes",
    type=click.IntRange(min=1),
    default=NODES,
    show_default=True,
    help="Largest number of nodes to measure on all samples: those with the largest error on the first one.",
)
@click.option(
    "--measured-rules",
    type=click.IntRange(min=0),
    default=MEASURED_RULES,
    show_default=True,
    help="Number of nodes for whose rules the source is quantized again, to find the cheapest rule that helps.",
)
@declared_option("allow_root")
@progress_option
@json_option
@report_option
@plugin_option
def command(
    files: tuple[str, ...],
    data: str | None,
    samples: int,
    nodes: int,
    measured_rules: int,
    allow_root: str | None,
    progress_mode: str,
    as_json: bool,
    report: str | None,
    plugins: tuple[str, ...],
) -> None:
    """Rank the integer nodes of FILE.tpum by the error that each of them causes at the outputs.

    MODEL [WEIGHTS] is its source. For each node, the network runs with only this node in integers. The error has two
    parts, from the weights and from the quantization of the operands. The first nodes are printed with the options of
    convert that remove their error.

    \b
    tpuconvert attribute net.onnx net.tpum --data images/
    """
    source, weights, file = source_and_model("attribute", files)
    load_plugins(plugins)
    model = load(file)
    with show_progress(progress_mode) as progress:
        found = attribute(
            model,
            source,
            weights,
            data=data,
            samples=samples,
            nodes=nodes,
            measured_rules=measured_rules,
            allow_root=allow_root,
            progress=progress,
        )
    if report is not None:
        write_model_report(model, report, attribution=found)
    if as_json:
        print_json(found.to_dict())
    else:
        echo(str(found))
