"""``tpuconvert sign``."""

from __future__ import annotations

import click

from tpuconvert.api.sign import sign
from tpuconvert.cli.file_parameters import InputFile, OutputFile
from tpuconvert.cli.json_output import json_option, print_json
from tpuconvert.cli.terminal import echo
from tpuconvert.schema.bounded_files import read_bounded


@click.command("sign")
@click.argument("model", type=InputFile())
@click.option("--key", type=InputFile(), required=True, metavar="KEY.pem", help="Private elliptic-curve key.")
@click.option("--password-file", type=InputFile(), metavar="FILE", help="File with the password of the key.")
@click.option("-o", "--output", type=OutputFile(), metavar="FILE.sig", help="The signature. [default: MODEL.sig]")
@click.option("--ignore", multiple=True, metavar="PATH", help="Path in a folder that is not signed. May be repeated.")
@click.option("--allow-symlinks", is_flag=True, help="Follow links to files in a folder.")
@json_option
def command(
    model: str,
    key: str,
    password_file: str | None,
    output: str | None,
    ignore: tuple[str, ...],
    allow_symlinks: bool,
    as_json: bool,
) -> None:
    """Sign MODEL, a file or a folder, in the format of OpenSSF Model Signing.

    \b
    openssl ecparam -genkey -name prime256v1 -noout -out key.pem
    tpuconvert sign net.tpum --key key.pem
    """
    password = None if password_file is None else read_bounded(password_file).rstrip(b"\r\n")
    found = sign(model, key=key, password=password, output=output, ignore=ignore, allow_symlinks=allow_symlinks)
    if as_json:
        print_json(found.to_dict())
    else:
        echo(str(found))
