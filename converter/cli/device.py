"""``tpuconvert device``: comparing a compiled program on a device with its model."""

from __future__ import annotations

import click

from tpuconvert.cli.file_parameters import InputFile, OutputFolder
from tpuconvert.cli.json_output import json_option, print_json
from tpuconvert.cli.shared_options import plugin_option
from tpuconvert.cli.terminal import echo
from tpuconvert.device.compare import DumpComparison, compare_dumps, load_dumps
from tpuconvert.device.golden import KEY, changed_tensors, golden_feeds
from tpuconvert.device.plan import make_plan, plan_feeds
from tpuconvert.model import load
from tpuconvert.plugins import load_plugins
from tpuconvert.samples.calibration_data import load_feeds
from tpuconvert.schema.errors import ThresholdError, UsageError

LISTED = 10
"""Differing tensors that are listed as text."""


@click.group("device", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Compare a compiled program on a device with its model."""


@command.command("plan", short_help="Write inputs, expected integers and a program that dumps tensors.")
@click.argument("file", type=InputFile(), metavar="MODEL.tpum")
@click.argument("folder", type=OutputFolder())
@click.option(
    "--data",
    type=InputFile(),
    metavar="SAMPLES",
    help="Inputs. Default: the golden vectors of the model, else random numbers.",
)
@json_option
@plugin_option
def plan(file: str, folder: str, data: str | None, as_json: bool, plugins: tuple[str, ...]) -> None:
    """Write a folder for a test on a device: inputs, expected integers of every tensor, and run_device.py.

    \b
    tpuconvert device plan net.tpum net_plan
    python3 net_plan/run_device.py net.bmodel dumps.npz       # on the device
    tpuconvert device compare net.tpum dumps.npz --plan net_plan
    """
    load_plugins(plugins)
    written = make_plan(load(file), folder, data)
    if as_json:
        print_json({"folder": folder, **written})
        return
    echo(f"{written['samples']} samples, {len(written['tensors'])} integer tensors")
    echo(f"wrote {folder}")
    echo(f"next: on the device, python3 {folder}/run_device.py PROGRAM.bmodel dumps.npz")


@command.command("compare", short_help="Find and explain the first tensor that differs on a device.")
@click.argument("file", type=InputFile(), metavar="MODEL.tpum")
@click.argument("dumps", type=InputFile(), metavar="DUMPS.npz")
@click.option("--plan", "folder", type=InputFile(), metavar="FOLDER", help="Plan with the inputs of the dumps.")
@click.option("--data", type=InputFile(), metavar="SAMPLES", help="Inputs of the dumps, in their order.")
@json_option
@plugin_option
def compare(
    file: str, dumps: str, folder: str | None, data: str | None, as_json: bool, plugins: tuple[str, ...]
) -> None:
    """Compare tensors that were dumped on a device, or by any engine, with the integers of the model.

    Tensors are matched by name. The first that differs is explained: layout, scale, zero point, rounding, saturation,
    stale weights, resize or preprocessing. Exits with 5 if one differs.
    """
    load_plugins(plugins)
    model = load(file)
    if folder and data:
        raise UsageError("--plan and --data exclude each other", hint="give the one that the dumps were made with")
    if folder:
        feeds = plan_feeds(folder, model)
    elif data:
        feeds = list(load_feeds(data, model.graph.input_ports, model.preprocess))
    else:
        feeds = golden_feeds(model.metadata)
        if not feeds:
            raise UsageError(
                "the inputs of the dumps are not known",
                hint="add --plan FOLDER or --data SAMPLES, or convert the model with --golden",
            )
    result = compare_dumps(model, load_dumps(dumps), feeds)
    if as_json:
        print_json(result.to_dict())
    else:
        _print(result)
    if not result.is_equal:
        raise ThresholdError(f"{len(result.differing)} tensors differ, the first is '{result.differing[0].name}'")


def _print(result: DumpComparison) -> None:
    echo(f"{len(result.equal)} tensors are equal, {len(result.differing)} differ, {len(result.missing)} have no dump")
    if result.unknown:
        echo(f"no integer tensor of the model: {', '.join(result.unknown[:LISTED])}")
    for item in result.differing[:LISTED]:
        echo(
            f"  {item.name}  ({item.operator})  {item.differing} of {item.elements} elements differ, "
            f"by at most {item.largest}"
        )
    if result.fault is not None:
        echo(f"first difference: {result.fault.kind}: {result.fault.text}")
        echo(f"next: {result.fault.hint}")


@command.command("check", short_help="Check the golden vectors of a model file on this machine.")
@click.argument("file", type=InputFile(), metavar="MODEL.tpum")
@json_option
@plugin_option
def check(file: str, as_json: bool, plugins: tuple[str, ...]) -> None:
    """Run the golden inputs that the file stores, and compare every integer tensor with its stored digest.

    Exits with 5 if one differs.
    """
    load_plugins(plugins)
    model = load(file)
    if KEY not in model.metadata:
        raise UsageError("the model has no golden vectors", file=file, hint="convert it with --golden 2")
    changed, count = changed_tensors(model.graph, model.metadata), len(model.metadata[KEY]["digests"])
    if as_json:
        print_json({"tensors": count, "samples": len(golden_feeds(model.metadata)), "changed": changed})
    else:
        echo(f"{count - len(changed)} of {count} integer tensors have their stored digests")
    if changed:
        raise ThresholdError(f"{len(changed)} tensors have other integers, the first is '{changed[0]}'")
