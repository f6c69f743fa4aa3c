"""``tpuconvert passes``."""

from __future__ import annotations

import click

from tpuconvert.cli.help_sections import SectionedCommand
from tpuconvert.cli.json_output import json_option, print_json
from tpuconvert.cli.shared_options import plugin_option
from tpuconvert.cli.terminal import echo
from tpuconvert.conversion.passes import passes


@click.command("passes", cls=SectionedCommand)
@json_option
@plugin_option
def command(as_json: bool, plugins: tuple[str, ...]) -> None:
    """List the optimizer's passes and rules in execution order.

    A pass is one walk over the graph; most of them are stages of rules, all of which run until none fires. Every name
    can be given to convert --disable-rule and --dump-after.

    \b
    tpuconvert passes --json
    """
    pass_list = passes(plugins=plugins)
    if as_json:
        print_json(pass_list.to_dict()["passes"])
        return
    echo(str(pass_list))
    echo(pass_list.summary, err=True)
