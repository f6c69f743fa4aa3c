"""``tpuconvert reduce``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from tpuconvert.cli.config_file import config_options
from tpuconvert.cli.conversion_options import declared_options
from tpuconvert.cli.file_parameters import InputFile
from tpuconvert.cli.help_sections import SectionedCommand
from tpuconvert.cli.json_output import json_option, print_result
from tpuconvert.cli.option_fields import command_options
from tpuconvert.cli.problems import ensure_writable
from tpuconvert.cli.progress_bar import show_progress
from tpuconvert.cli.shared_options import LimitOptions, plugin_option, progress_option
from tpuconvert.conversion.options.options import OPTIONS, group_options
from tpuconvert.conversion.source import Source
from tpuconvert.option_declaration import option
from tpuconvert.reduction.reduce import reduce
from tpuconvert.reduction.source_files import SUFFIXES


@dataclass(frozen=True, kw_only=True)
class ReduceOptions(LimitOptions):
    """Options of the search."""

    until: str = option(
        "error|difference",
        "error, difference, or both; or a function or a command. module:function is called with the path of a model "
        "and returns True if it fails; a command has {} in place of the path, and exit code 0 if it fails. A "
        "caffemodel has the same name.",
        metavar="FAILURE",
    )
    output: str | None = option(
        None,
        "File with the smallest model so far, in the format of the source. A caffemodel is written beside a prototxt. "
        "Default: the name of the source with .reduced before its suffix.",
        flags="-o --output",
        metavar="OUT",
        is_output=True,
    )
    match: str | None = option(None, "Text in the message, to choose one of several failures.", metavar="REGEX")
    budget: str = option("10m", "No trial of the search begins after it: 90s, 10m or 2h.", metavar="TIME")
    seed: int = option(0, "Of random weights and inputs.", lower=0)
    resume: bool = option(False, "Continue from OUT, if it fails in the same way.")


@click.command("reduce", cls=SectionedCommand)
@click.argument("model", type=InputFile())
@click.argument("weights", type=InputFile(), required=False)
@declared_options(*(name for name in OPTIONS if name not in ("max_transposes", "golden")))
@config_options
@command_options(ReduceOptions, "search")
@progress_option
@json_option
@plugin_option
def command(
    model: str,
    weights: str | None,
    search: ReduceOptions,
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
    """
    target = search.output or str(Path(model).with_suffix(f".reduced{SUFFIXES[Source(model).format]}"))
    ensure_writable(target)
    with show_progress(progress_mode) as progress:
        arguments = {**vars(search), "output": target, **group_options(**options)}
        reduction = reduce(model, weights, plugins=plugins, progress=progress, **arguments)
    print_result(reduction, as_json=as_json)
