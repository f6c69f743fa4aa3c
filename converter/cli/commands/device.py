"""``tpuconvert device``: comparing a compiled program on a device with its model."""

from __future__ import annotations

import click

from tpuconvert.cli.file_parameters import InputFile, OutputFolder
from tpuconvert.cli.json_output import json_option, print_result
from tpuconvert.cli.shared_options import plugin_option
from tpuconvert.device.device import device_check, device_compare, device_plan


@click.group("device", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Compare a compiled program on a device with its model.

    \b
    tpuconvert device plan net.tpum net_plan
    tpuconvert device compare net.tpum dumps.npz --plan net_plan
    """


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
    print_result(device_plan(file, folder, data=data, plugins=plugins), as_json=as_json)


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

    Tensors are matched by name. The cause of the first difference is inferred: layout, scale, zero point, rounding,
    saturation, stale weights, resize or preprocessing. Exits with 5 if one differs.

    \b
    tpuconvert device compare net.tpum dumps.npz --plan net_plan
    """
    comparison = device_compare(file, dumps, plan=folder, data=data, plugins=plugins)
    print_result(comparison, as_json=as_json)
    comparison.check()


@command.command("check", short_help="Check the golden vectors of a model file on this machine.")
@click.argument("file", type=InputFile(), metavar="MODEL.tpum")
@json_option
@plugin_option
def check(file: str, as_json: bool, plugins: tuple[str, ...]) -> None:
    """Run the golden inputs that the file stores, and compare every integer tensor with its stored digest.

    Exits with 5 if one differs.

    \b
    tpuconvert device check net.tpum
    """
    golden_check = device_check(file, plugins=plugins)
    print_result(golden_check, as_json=as_json)
    golden_check.check()
