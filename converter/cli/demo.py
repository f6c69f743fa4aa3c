"""``tpuconvert demo``."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("demo", short_help="Go the whole way on the bundled example.")
@click.option(
    "-o", "--output", metavar="FOLDER", default="tpuconvert-demo", show_default=True, help="For models and report."
)
@click.option("--chip", default="bm1686", show_default=True, metavar="CHIP", help="The target: bm1684 or bm1686.")
def command(output: str, chip: str) -> None:
    """Convert, quantize and evaluate the bundled example, a small network for handwritten digits, in all formats."""
    from tpuconvert.demo import HEADING, cells, run_demo
    from tpuconvert.report import table

    rows, report = run_demo(Path(output), chip, lambda line: click.echo(line, err=True))
    click.echo("\n".join(table([HEADING, *map(cells, rows)])))
    click.echo(f"models: {output}\nreport: {report.resolve()}")
