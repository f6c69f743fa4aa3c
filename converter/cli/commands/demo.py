"""``tpuconvert demo``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from tpuconvert.cli.conversion_options import declared_option
from tpuconvert.cli.file_parameters import OutputFolder
from tpuconvert.cli.help_sections import SectionedCommand
from tpuconvert.cli.json_output import json_option, print_json
from tpuconvert.cli.progress_bar import show_progress
from tpuconvert.cli.shared_options import no_plugins_option, progress_option
from tpuconvert.cli.terminal import echo
from tpuconvert.report.demo import HEADING, Row, cells, run_demo
from tpuconvert.text.styled_text import concat
from tpuconvert.text.table import table


@dataclass(frozen=True)
class DemoDocument:
    """The bundled example in each format."""

    models: str
    report: Path
    formats: list[Row]


@click.command("demo", cls=SectionedCommand)
@click.option(
    "-o",
    "--output",
    type=OutputFolder(),
    metavar="FOLDER",
    default="tpuconvert-demo",
    show_default=True,
    help="For models and report.",
)
@declared_option("chip", help="Target chip: bm1684 or bm1686.")
@progress_option
@no_plugins_option
@json_option
def command(output: str, chip: str, progress_mode: str, as_json: bool) -> None:
    """Convert, quantize and evaluate the bundled example, a small network for handwritten digits, in all formats.

    \b
    tpuconvert demo -o demo/ --chip bm1684
    """
    with show_progress(progress_mode) as progress:
        rows, report = run_demo(Path(output), chip, progress)
    if as_json:
        print_json(DemoDocument(output, report.resolve(), rows))
        return
    echo(concat(table([HEADING, *map(cells, rows)]), "\n"))
    echo(f"models: {output}\nreport: {report.resolve()}")
