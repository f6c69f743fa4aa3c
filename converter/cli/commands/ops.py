"""``tpuconvert ops``."""

from __future__ import annotations

import click

from tpuconvert.cli.choice import Choice
from tpuconvert.cli.conversion_options import declared_option
from tpuconvert.cli.help_sections import SectionedCommand
from tpuconvert.cli.json_output import json_option, print_json
from tpuconvert.cli.problems import ensure
from tpuconvert.cli.shared_options import plugin_option
from tpuconvert.cli.terminal import echo, echo_text
from tpuconvert.cli.value_completion import complete_operator
from tpuconvert.operators.ops import SOURCE_FORMATS, describe_op, ops


@click.command("ops", cls=SectionedCommand)
@click.argument("name", required=False, shell_complete=complete_operator)
@declared_option("chip", default=None, show_default=False, help="List only the operators of this chip.")
@click.option(
    "--format",
    "source_format",
    type=Choice(SOURCE_FORMATS),
    help="The operators of a source format.",
)
@json_option
@plugin_option
def command(
    name: str | None, chip: str | None, source_format: str | None, as_json: bool, plugins: tuple[str, ...]
) -> None:
    """List the TPU operators with the data types of each chip, or the operators of a source format.

    With NAME, explain one TPU operator: its formula, parameters, data types per chip, locality, and an example.

    \b
    tpuconvert ops --chip bm1684
    tpuconvert ops conv
    tpuconvert ops --format onnx
    """
    ensure(
        not (name and source_format),
        "NAME is a TPU operator: it cannot be had with --format",
        hint="leave one of them out",
    )
    if name is not None:
        about = describe_op(name, chip=chip, plugins=plugins)
        if as_json:
            print_json(about.to_dict())
        else:
            echo_text(str(about))
        return
    operators = ops(chip=chip, format=source_format, plugins=plugins)
    if as_json:
        print_json(operators.to_dict()["operators"])
        return
    echo(str(operators))
    echo(operators.summary, err=True)
