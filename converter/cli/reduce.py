"""``tpuconvert reduce``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tpuconvert.cli.config_file import config_options
from tpuconvert.cli.conversion_options import declared_options
from tpuconvert.cli.file_parameters import InputFile, OutputFile
from tpuconvert.cli.json_output import json_option, print_json
from tpuconvert.cli.problems import ensure_writable
from tpuconvert.cli.progress_bar import show_progress
from tpuconvert.cli.shared_options import limit_options, plugin_option, progress_option
from tpuconvert.cli.terminal import echo
from tpuconvert.conversion.options.options import OPTIONS
from tpuconvert.conversion.options.types import ReduceOptions
from tpuconvert.conversion.source import Source
from tpuconvert.reduction.reduce import reduce
from tpuconvert.reduction.source_files import SUFFIXES


@click.command("reduce")
@click.argument("model", type=InputFile())
@click.argument("weights", type=InputFile(), required=False)
@declared_options(*(name for name in OPTIONS if name in ReduceOptions.__annotations__))
@config_options
@click.option(
    "--until",
    default="error|difference",
    show_default=True,
    metavar="FAILURE",
    help="error, difference, or both; module:function, which is called with the path of a model and returns True if it "
    "fails; or a command with {} in place of the path, with exit code 0 if it fails. A caffemodel has the same name.",
)
@click.option(
    "-o",
    "--output",
    type=OutputFile(),
    metavar="OUT",
    help="File to write, in the format of the source; the smallest model so far at any time. A caffemodel is written "
    "beside a prototxt. Default: the name of the source with .reduced before its suffix.",
)
@click.option("--match", metavar="REGEX", help="Text in the message, to choose one of several failures.")
@click.option(
    "--budget",
    default="10m",
    show_default=True,
    metavar="TIME",
    help="No trial of the search begins after it: 90s, 10m or 2h.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of random weights and inputs.")
@click.option("--resume", is_flag=True, help="Continue from OUT, if it fails in the same way.")
@limit_options
@progress_option
@json_option
@plugin_option
def command(
    model: str,
    weights: str | None,
    until: str,
    output: str | None,
    match: str | None,
    budget: str,
    seed: int,
    resume: bool,
    max_difference: float | None,
    min_cosine: float | None,
    min_sqnr: float | None,
    progress_mode: str,
    as_json: bool,
    plugins: tuple[str, ...],
    **options: Any,
) -> None:
    """Cut MODEL to a small one that fails in the same way, with random weights and generic names.

    MODEL is an ONNX file, a TFLite file, or the prototxt of a Caffe network with its caffemodel as WEIGHTS.

    Every trial converts and runs a part of the model in a separate process. A part is kept if its failure has the same
    kind, and a message that is equal except for names and numbers.

    \b
    tpuconvert reduce net.onnx --until error
    tpuconvert reduce net.onnx --until difference --quantize int8 --min-cosine 0.99 -o small.onnx
    tpuconvert reduce net.tflite --until "python check.py {}" --budget 1h
    tpuconvert reduce net.prototxt net.caffemodel -o small.prototxt
    """
    target = output or str(Path(model).with_suffix(f".reduced{SUFFIXES[Source(model).format]}"))
    ensure_writable(target)
    with show_progress(progress_mode) as progress:
        found = reduce(
            model,
            weights,
            until=until,
            output=target,
            match=match,
            budget=budget,
            seed=seed,
            resume=resume,
            max_difference=max_difference,
            min_cosine=min_cosine,
            min_sqnr=min_sqnr,
            plugins=plugins,
            progress=progress,
            **options,
        )
    if as_json:
        print_json(found.to_dict())
    else:
        echo(str(found))
