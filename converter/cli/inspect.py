"""``tpuconvert inspect``."""

from __future__ import annotations

from pathlib import Path

import click

from tpuconvert.api.inspect import inspect
from tpuconvert.cli.conversion_options import declared_option
from tpuconvert.cli.file_parameters import InputFile, OutputFile
from tpuconvert.cli.json_output import json_option, print_json
from tpuconvert.cli.problems import ensure, ensure_writable
from tpuconvert.cli.shared_options import plugin_option
from tpuconvert.cli.terminal import echo, echo_text
from tpuconvert.report.report_file import write_report


@click.command("inspect")
@click.argument("file", type=InputFile())
@click.argument("weights", type=InputFile(), required=False)
@json_option
@click.option("--html", "page", type=OutputFile(), metavar="OUT.html", help="Write one self-contained page instead.")
@click.option("--summary", is_flag=True, help="Leave the table of nodes out.")
@click.option("--cost", "with_cost", is_flag=True, help="Show work, traffic and least time on the chip (.tpum only).")
@declared_option("signature")
@plugin_option
def command(
    file: str,
    weights: str | None,
    signature: str | None,
    as_json: bool,
    page: str | None,
    summary: bool,
    with_cost: bool,
    plugins: tuple[str, ...],
) -> None:
    """Show what is in FILE: a .tpum file, or a source model as it looks before conversion."""
    ensure(not (as_json and page), "--json and --html exclude each other")
    ensure_writable(page)
    if page is not None:
        ensure(page.lower().endswith((".html", ".htm")), f"{page}: the page's name ends in .html")
    found = inspect(file, weights, signature=signature, plugins=plugins)
    tables = found.tables(with_nodes=not summary, with_cost=with_cost)
    if page is not None:
        write_report(Path(page), found.description)
        echo(f"wrote {page}")
    elif as_json:
        print_json(found.to_dict())
    else:
        echo_text("\n".join(found.summary()))
        if tables:
            echo("\n".join(tables))
