"""``tpuconvert passes``."""

from __future__ import annotations

import click

from tpuconvert.cli.json_output import json_option, print_json
from tpuconvert.cli.shared_options import plugin_option
from tpuconvert.cli.terminal import echo
from tpuconvert.optimizer.pipeline import describe_passes
from tpuconvert.plugins import load_plugins
from tpuconvert.report.text import table


@click.command("passes")
@json_option
@plugin_option
def command(as_json: bool, plugins: tuple[str, ...]) -> None:
    """List the optimizer's passes and rules in execution order.

    A pass is one walk over the graph; most of them are stages of rules, all of which run until none fires. Every name
    can be given to convert --disable-rule and --dump-after.
    """
    load_plugins(plugins)
    rows = describe_passes()
    if as_json:
        print_json(rows)
        return
    cells = [(str(row["order"]), row["name"], row["rule"] or "-", row["about"]) for row in rows]
    echo("\n".join(table([("#", "pass", "rule", "what it does"), *cells])))
    echo(f"{sum(bool(row['rule']) for row in rows)} rules", err=True)
