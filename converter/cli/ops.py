"""``tpuconvert ops``."""

from __future__ import annotations

import click

from tpuconvert.cli.conversion_options import declared_option
from tpuconvert.cli.json_output import json_option, print_json
from tpuconvert.cli.problems import ensure
from tpuconvert.cli.shared_options import plugin_option
from tpuconvert.cli.terminal import echo, echo_text
from tpuconvert.plugins import load_plugins
from tpuconvert.report.operator_description import describe
from tpuconvert.report.operator_tables import (
    chips_named,
    operator_named,
    refused_operators,
    source_operators,
    tpu_operators,
)
from tpuconvert.report.operator_text import description_lines
from tpuconvert.report.text import table


@click.command("ops")
@click.argument("name", required=False)
@declared_option("chip", default=None, show_default=False, help="List only the operators of this chip.")
@click.option(
    "--format",
    "source_format",
    type=click.Choice(["onnx", "tflite", "caffe"]),
    help="The operators of a source format.",
)
@json_option
@plugin_option
def command(
    name: str | None, chip: str | None, source_format: str | None, as_json: bool, plugins: tuple[str, ...]
) -> None:
    """List the TPU operators with the data types of each chip, or the operators of a source format.

    With NAME, explain one TPU operator: its formula, parameters, data types per chip, locality, and an example.
    """
    ensure(not (chip and source_format), "--chip and --format exclude each other")
    ensure(not (name and source_format), "NAME is a TPU operator: it cannot be had with --format")
    load_plugins(plugins)
    if name is not None:
        _explain(name, chip, as_json)
    else:
        _list(chip, source_format, as_json)


def _explain(name: str, chip: str | None, as_json: bool) -> None:
    import dataclasses

    about = describe(operator_named(name), chips_named(chip))
    if as_json:
        print_json(dataclasses.asdict(about))
    else:
        echo_text("\n".join(description_lines(about)))


def _list(chip: str | None, source_format: str | None, as_json: bool) -> None:
    refused = refused_operators(source_format) if source_format is not None else []
    rows = [*source_operators(source_format), *refused] if source_format is not None else tpu_operators(chip)
    if as_json:
        print_json(rows)
        return
    heading = tuple(rows[0]) if rows else ("operator",)
    cells = [
        tuple((", ".join(cell) if isinstance(cell, list) else cell) or "-" for cell in row.values()) for row in rows
    ]
    echo("\n".join(table([heading, *cells])))
    legend = "; * marked unfinished by the vendor: legal, with a warning"
    if source_format is not None:
        legend = f", {len(refused)} of them refused" if refused else ""
    echo(f"{len(rows)} operators{legend}", err=True)
