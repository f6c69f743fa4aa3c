"""``tpuconvert verify-signature``."""

from __future__ import annotations

import click

from tpuconvert.api.sign import verify_signature
from tpuconvert.cli.file_parameters import InputFile
from tpuconvert.cli.json_output import json_option, print_json
from tpuconvert.cli.terminal import echo


@click.command("verify-signature")
@click.argument("model", type=InputFile())
@click.option("--key", type=InputFile(), required=True, metavar="KEY.pub", help="Public key of the signer.")
@click.option("--signature", type=InputFile(), metavar="FILE.sig", help="The signature. [default: MODEL.sig]")
@click.option("--ignore-unsigned", is_flag=True, help="Allow files in a folder that are not signed.")
@json_option
def command(model: str, key: str, signature: str | None, ignore_unsigned: bool, as_json: bool) -> None:
    """Verify that MODEL, a file or a folder, is what was signed with the key. Exit code 4 if it is not.

    \b
    tpuconvert verify-signature net.tpum --key key.pub
    """
    found = verify_signature(model, key=key, signature=signature, ignore_unsigned=ignore_unsigned)
    if as_json:
        print_json(found.to_dict())
    else:
        echo(str(found))
