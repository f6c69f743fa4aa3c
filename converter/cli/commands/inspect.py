"""``tpuconvert inspect``."""

from __future__ import annotations

from pathlib import Path

import click

from tpuconvert.cli.conversion_options import declared_option
from tpuconvert.cli.file_parameters import InputFile
from tpuconvert.cli.help_sections import SectionedCommand
from tpuconvert.cli.json_output import json_option, print_json
from tpuconvert.cli.problems import ensure
from tpuconvert.cli.shared_options import plugin_option, report_option
from tpuconvert.cli.terminal import echo, echo_text
from tpuconvert.report.inspect import inspect
from tpuconvert.report.report_file import write_report
from tpuconvert.text.styled_text import concat, join_lines


@click.command("inspect", cls=SectionedCommand)
@click.argument("file", type=InputFile())
@click.argument("weights", type=InputFile(), required=False)
@json_option
@report_option
@click.option("--summary", is_flag=True, help="Leave the table of nodes out.")
@click.option("--cost", "with_cost", is_flag=True, help="Show work, traffic and least time on the chip (.tpum only).")
@click.option(
    "--groups", "with_groups", is_flag=True, help="Show layer groups in on-chip memory, and their savings (.tpum only)."
)
@declared_option("signature")
@click.option(
    "--proof",
    type=InputFile(),
    metavar="proof.json",
    help="Cycles of the nodes, from an export --compile of the model.",
)
@plugin_option
def command(
    file: str,
    weights: str | None,
    signature: str | None,
    proof: str | None,
    as_json: bool,
    report: str | None,
    summary: bool,
    with_cost: bool,
    with_groups: bool,
    plugins: tuple[str, ...],
) -> None:
    """Show what is in FILE: a .tpum file, or a source model as it looks before conversion.

    \b
    tpuconvert inspect net.tpum --html net.html
    """
    ensure(not (as_json and report), "--json prints the description, and --report or --html write a report instead")
    inspection = inspect(file, weights, signature=signature, proof=proof, plugins=plugins)
    tables = inspection.tables(with_nodes=not summary, with_cost=with_cost, with_groups=with_groups)
    if report is not None:
        write_report(Path(report), inspection.description)
        echo(f"wrote {report}")
    elif as_json:
        print_json(inspection.to_dict())
    else:
        echo_text(join_lines(inspection.summary()))
        if tables:
            echo(concat(tables, "\n"))
