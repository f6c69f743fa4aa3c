"""``tpuconvert ops``."""

from __future__ import annotations

import click

from tpuconvert.cli.source_options import CHIPS, plugin_option


@click.command("ops", short_help="List the supported operators.")
@click.option("--chip", metavar="CHIP", help=f"Only operators of one chip: {CHIPS}.")
@click.option(
    "--format",
    "source_format",
    type=click.Choice(["onnx", "tflite", "caffe"]),
    help="The operators of a source format.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
@plugin_option
def command(chip: str | None, source_format: str | None, as_json: bool, plugins: tuple[str, ...]) -> None:
    """List the TPU operators with the data types of each chip, or the operators of a source format."""
    import json

    from tpuconvert.cli.problems import ensure
    from tpuconvert.operator_tables import source_operators, tpu_operators
    from tpuconvert.plugins import load_plugins
    from tpuconvert.report import table

    ensure(not (chip and source_format), "--chip and --format exclude each other")
    load_plugins(plugins)
    rows = source_operators(source_format) if source_format is not None else tpu_operators(chip)
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    heading = tuple(rows[0]) if rows else ("operator",)
    cells = [
        tuple((", ".join(cell) if isinstance(cell, list) else cell) or "-" for cell in row.values()) for row in rows
    ]
    click.echo("\n".join(table([heading, *cells])))
    legend = "" if source_format else "; * marked unfinished by the vendor: legal, with a warning"
    click.echo(f"{len(rows)} operators{legend}", err=True)
