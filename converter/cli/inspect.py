"""``tpuconvert inspect``."""

from __future__ import annotations

from pathlib import Path

import click

from tpuconvert.cli.conversion_options import declared_option
from tpuconvert.cli.file_parameters import InputFile
from tpuconvert.cli.json_output import json_option, print_json
from tpuconvert.cli.output_files import write_report
from tpuconvert.cli.problems import ensure
from tpuconvert.cli.shared_options import plugin_option, report_option
from tpuconvert.cli.terminal import echo, echo_text
from tpuconvert.frontends.sniffing import identify_file
from tpuconvert.model import load
from tpuconvert.options import Options
from tpuconvert.plugins import load_plugins
from tpuconvert.report.cost import cost_lines, cost_node_lines, describe_cost, group_lines
from tpuconvert.report.memory import describe_memory
from tpuconvert.report.model_description import describe_graph, describe_model
from tpuconvert.report.report_description import describe_for_report, describe_source_for_report
from tpuconvert.report.text import node_lines, summary_text
from tpuconvert.source_loading import load_source


@click.command("inspect")
@click.argument("file", type=InputFile())
@click.argument("weights", type=InputFile(), required=False)
@json_option
@report_option
@click.option("--summary", is_flag=True, help="Leave the table of nodes out.")
@click.option("--cost", "with_cost", is_flag=True, help="Show work, traffic and least time on the chip (.tpum only).")
@declared_option("signature")
@plugin_option
def command(
    file: str,
    weights: str | None,
    signature: str | None,
    as_json: bool,
    report: str | None,
    summary: bool,
    with_cost: bool,
    plugins: tuple[str, ...],
) -> None:
    """Show what is in FILE: a .tpum file, or a source model as it looks before conversion.

    \b
    tpuconvert inspect net.tpum --html net.html
    """
    ensure(not (as_json and report), "--json prints the description, and --report or --html write a report instead")
    load_plugins(plugins)
    kind = identify_file(file)
    if kind is not None and kind.id == "tpum":
        ensure(weights is None, f"{weights}: a .tpum file holds its weights itself")
        ensure(signature is None, f"{file}: signatures are those of a source file")
        model = load(file)
        if report:
            description = describe_for_report(model)
        else:
            memory = describe_memory(model.graph) if as_json else None
            description = {**describe_model(model), "cost": describe_cost(model), "memory": memory}
    else:
        ensure(not with_cost, f"{file}: the cost is that on a chip; convert it first")
        options = Options.of(signature=signature, allow_non_finite=True)  # non-finite weights can be inspected
        graph = load_source(file, weights, options, require_weights=False)
        description = describe_source_for_report(graph) if report else describe_graph(graph)
    if report is not None:
        write_report(Path(report), description)
        echo(f"wrote {report}")
    elif as_json:
        print_json(description)
    else:
        echo_text(summary_text(description))
        cost = description.get("cost")
        if cost is not None:
            echo("\n" + "\n".join([*(cost_lines(cost) if with_cost else ()), *group_lines(cost)]))
        if not summary:
            lines = cost_node_lines(description, cost) if with_cost and cost is not None else node_lines(description)
            echo("\n" + "\n".join(lines))
