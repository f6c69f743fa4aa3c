"""``tpuconvert export``."""

from __future__ import annotations

from dataclasses import dataclass

import click

from tpuconvert.cli.file_parameters import InputFile, OutputFolder
from tpuconvert.cli.help_sections import SectionedCommand
from tpuconvert.cli.json_output import json_option, print_result
from tpuconvert.cli.option_fields import command_options
from tpuconvert.cli.progress_bar import show_progress
from tpuconvert.cli.shared_options import plugin_option, progress_option
from tpuconvert.exporters.compilation.compiled_export import TIME_LIMIT
from tpuconvert.exporters.export import export
from tpuconvert.exporters.form_names import FORM_NAMES
from tpuconvert.exporters.request import FLOATS
from tpuconvert.exporters.tpu_mlir.chips import TARGETS
from tpuconvert.option_declaration import option


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """Options of ``export``."""

    to: str = option(FORM_NAMES[0], "Form of the export.", choices=FORM_NAMES)
    chip: str | None = option(
        None, "Chip of the vendor's compiler. Default: the model's, bm1684x or bm1684.", choices=tuple(TARGETS)
    )
    data: str | None = option(
        None,
        "Samples to store with their results (tpu-mlir, tpulang). Default: random numbers.",
        metavar="SAMPLES",
        is_file=True,
    )
    with_checks: bool = option(False, "Return every integer tensor from the program.")
    floats: str = option(FLOATS[0], "Type of floating-point operators (tpu-mlir).", choices=FLOATS)
    integer_io: bool = option(False, "Integers at the inputs and outputs of the program (tpu-mlir).")
    decoder_context: int | None = option(
        None,
        "Split a decoder into parts with static shapes, for prompts and caches of this number of tokens.",
        metavar="TOKENS",
        lower=2,
    )
    compile: bool = option(False, "Compile, run in the simulator and compare (tpu-mlir); see device setup.")
    time_limit: float = option(
        TIME_LIMIT,
        "With --compile: limit of each compiler pass, and of the simulator.",
        metavar="SECONDS",
        lower=1.0,
    )
    layer_groups: int | None = option(
        None,
        "With --compile: level of layer grouping, 0 to 3. Default: 2, then the others if it fails or differs.",
        metavar="LEVEL",
        lower=0,
    )


@click.command("export", cls=SectionedCommand)
@click.argument("file", type=InputFile())
@click.argument("path", type=OutputFolder())
@command_options(ExportOptions)
@progress_option
@json_option
@plugin_option
def command(
    file: str, path: str, options: ExportOptions, progress_mode: str, as_json: bool, plugins: tuple[str, ...]
) -> None:
    """Write the model FILE for another toolchain, with the same integers.

    PATH is a folder for the vendor's compiler (tpu-mlir: its text form; tpulang: a Python program), or an ONNX file.
    With --compile, the folder has the compiled program and its comparison with the model; exits with 5 if it differs.

    \b
    tpuconvert export net.tpum net_bm1684x --chip bm1684x --data images/
    tpuconvert export net.tpum net_bm1684x --chip bm1684x --data images/ --compile
    tpuconvert export net.tpum net_tpulang --to tpulang
    tpuconvert export net.tpum net_int8.onnx --to onnx
    tpuconvert export decoder.tpum parts --to onnx --decoder-context 512
    """
    with show_progress(progress_mode) as progress:
        result = export(file, path, plugins=plugins, progress=progress, **vars(options))
    print_result(result, as_json=as_json)
    result.check()
