"""``tpuconvert export``."""

from __future__ import annotations

import click

from tpuconvert.cli.file_parameters import InputFile, OutputFolder
from tpuconvert.cli.json_output import json_option, print_json
from tpuconvert.cli.shared_options import plugin_option
from tpuconvert.cli.terminal import echo
from tpuconvert.exporters.export import FORMS, export
from tpuconvert.exporters.tpu_mlir.chips import TARGETS
from tpuconvert.plugins import load_plugins


@click.command("export")
@click.argument("file", type=InputFile())
@click.argument("folder", type=OutputFolder())
@click.option("--to", type=click.Choice(FORMS), default=FORMS[0], show_default=True, help="Form of the export.")
@click.option(
    "--chip", type=click.Choice(tuple(TARGETS)), default="bm1684x", show_default=True, help="Chip of the compiler."
)
@click.option(
    "--data", type=InputFile(), metavar="SAMPLES", help="Samples to store with their results. Default: random numbers."
)
@click.option("--with-checks", is_flag=True, help="Return every integer tensor from the program.")
@json_option
@plugin_option
def command(
    file: str,
    folder: str,
    to: str,
    chip: str,
    data: str | None,
    with_checks: bool,
    as_json: bool,
    plugins: tuple[str, ...],
) -> None:
    """Write the quantized model FILE for the vendor's compiler, with the same integers.

    \b
    tpuconvert export net.tpum net_bm1684x --chip bm1684x --data images/
    net_bm1684x/compile.sh
    """
    load_plugins(plugins)
    result = export(file, folder, to=to, chip=chip, samples=data, with_checks=with_checks)
    if as_json:
        print_json({"folder": folder, **result.manifest})
        return
    manifest = result.manifest
    echo(f"{manifest['name']} for {manifest['chip']}, {manifest['compiler']}")
    for output in manifest["outputs"]:
        echo(f"  output  {output['name']}  {output['dtype']}{output['shape']}")
    for node in manifest["host_nodes"]:
        echo(f"  host    {node['operator']} '{node['name']}': the program ends before it")
    echo(f"wrote {folder}")
    echo(f"next: {folder}/compile.sh, with TPU_MLIR_HOME set; see {folder}/README.md")
