"""``tpuconvert attribute``."""

from __future__ import annotations

from dataclasses import dataclass

import click

from tpuconvert.cli.conversion_options import declared_option
from tpuconvert.cli.file_parameters import InputFile
from tpuconvert.cli.help_sections import SectionedCommand
from tpuconvert.cli.json_output import json_option, print_result
from tpuconvert.cli.option_fields import command_options
from tpuconvert.cli.progress_bar import show_progress
from tpuconvert.cli.shared_options import plugin_option, progress_option, report_option
from tpuconvert.cli.source_and_model import source_and_model
from tpuconvert.model.model import load
from tpuconvert.option_declaration import option
from tpuconvert.plugins import load_plugins
from tpuconvert.precision.attribution import MEASURED_RULES, NODES, SAMPLES, attribute
from tpuconvert.report.report import report as write_model_report


@dataclass(frozen=True, kw_only=True)
class AttributeOptions:
    """Options of ``attribute``."""

    data: str | None = option(
        None,
        "Samples: a folder of images, an .npz or .npy file. Default: random numbers.",
        metavar="DATA",
        is_file=True,
    )
    samples: int = option(SAMPLES, "Largest number of samples.", lower=1)
    nodes: int = option(
        NODES,
        "Largest number of nodes to measure on all samples: those with the largest error on the first one.",
        lower=1,
    )
    measured_rules: int = option(
        MEASURED_RULES,
        "Number of nodes for whose rules the source is quantized again, to find the cheapest rule that helps.",
        lower=0,
    )


@click.command("attribute", cls=SectionedCommand)
@click.argument("files", type=InputFile(), nargs=-1, required=True, metavar="MODEL [WEIGHTS] FILE.tpum")
@command_options(AttributeOptions)
@declared_option("allow_root")
@progress_option
@json_option
@report_option
@plugin_option
def command(
    files: tuple[str, ...],
    options: AttributeOptions,
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
        attribution = attribute(model, source, weights, allow_root=allow_root, progress=progress, **vars(options))
    if report is not None:
        write_model_report(model, report, attribution=attribution)
    print_result(attribution, as_json=as_json)
