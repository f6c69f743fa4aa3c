"""``tpuconvert export``."""

from __future__ import annotations

import click

from tpuconvert.cli.choice import Choice
from tpuconvert.cli.file_parameters import InputFile, OutputFolder
from tpuconvert.cli.json_output import json_option, print_json
from tpuconvert.cli.shared_options import plugin_option
from tpuconvert.cli.terminal import echo
from tpuconvert.exporters.export import export
from tpuconvert.exporters.form_names import FORM_NAMES
from tpuconvert.exporters.tpu_mlir.chips import TARGETS


@click.command("export")
@click.argument("file", type=InputFile())
@click.argument("path", type=OutputFolder())
@click.option("--to", type=Choice(FORM_NAMES), default=FORM_NAMES[0], show_default=True, help="Form of the export.")
@click.option("--chip", type=Choice(tuple(TARGETS)), help="Chip of the vendor's compiler. Default: bm1684x.")
@click.option(
    "--data",
    type=InputFile(),
    metavar="SAMPLES",
    help="Samples to store with their results (tpu-mlir, tpulang). Default: random numbers.",
)
@click.option("--with-checks", is_flag=True, help="Return every integer tensor from the program.")
@click.option(
    "--decoder-context",
    type=click.IntRange(min=2),
    metavar="TOKENS",
    help="Split a decoder into parts with static shapes, for prompts and caches of this number of tokens.",
)
@json_option
@plugin_option
def command(
    file: str,
    path: str,
    to: str,
    chip: str | None,
    data: str | None,
    with_checks: bool,
    decoder_context: int | None,
    as_json: bool,
    plugins: tuple[str, ...],
) -> None:
    """Write the model FILE for another toolchain, with the same integers.

    PATH is a folder for the vendor's compiler (tpu-mlir: its text form; tpulang: a Python program), or an ONNX file.

    \b
    tpuconvert export net.tpum net_bm1684x --chip bm1684x --data images/
    net_bm1684x/compile.sh
    tpuconvert export net.tpum net_tpulang --to tpulang
    tpuconvert export net.tpum net_int8.onnx --to onnx
    tpuconvert export decoder.tpum parts --to onnx --decoder-context 512
    """
    found = export(
        file,
        path,
        to=to,
        chip=chip,
        data=data,
        with_checks=with_checks,
        decoder_context=decoder_context,
        plugins=plugins,
    )
    if as_json:
        print_json(found.to_dict())
    else:
        echo(str(found))
