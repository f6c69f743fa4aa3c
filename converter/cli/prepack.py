"""``tpuconvert prepack``."""

from __future__ import annotations

import click

from tpuconvert.api.prepack import prepack
from tpuconvert.cli.file_parameters import InputFile, OutputFile
from tpuconvert.cli.json_output import json_option, print_json
from tpuconvert.cli.terminal import echo


@click.command("prepack")
@click.argument("model", type=InputFile(), metavar="FILE")
@click.option(
    "-o",
    "--output",
    type=OutputFile(),
    metavar="OUT.packed",
    help="File to write.  [default: FILE with .packed appended]",
)
@json_option
def command(model: str, output: str | None, as_json: bool) -> None:
    """Write the packed weights of the .tpum FILE, for sessions on this processor that open in a few milliseconds.

    In Python: Session("net.tpum", packed="net.tpum.packed").

    \b
    tpuconvert prepack net.tpum
    TPUCONVERT_ISA=avx2 tpuconvert prepack net.tpum -o net.avx2.packed
    """
    found = prepack(model, output)
    if as_json:
        print_json(found.to_dict())
    else:
        echo(str(found))
