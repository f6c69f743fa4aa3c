"""``tpuconvert sbom``."""

from __future__ import annotations

import click

from tpuconvert.api.sbom import sbom
from tpuconvert.cli.file_parameters import OutputFile
from tpuconvert.cli.json_output import json_option, print_json
from tpuconvert.cli.terminal import echo, echo_text


@click.command("sbom")
@click.option("-o", "--output", type=OutputFile(), metavar="FILE.json", help="Write the document to a file.")
@json_option
def command(output: str | None, as_json: bool) -> None:
    """List the installed packages of the software bill of materials, in the format CycloneDX 1.6.

    \b
    tpuconvert sbom -o tpuconvert.cdx.json
    """
    found = sbom()
    if output is not None:
        found.save(output)
        echo(f"wrote {output}", err=True)
    if as_json:
        print_json(found.to_dict())
    elif output is None:
        echo_text(str(found))
