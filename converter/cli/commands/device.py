"""``tpuconvert device``: the vendor's compiler, and comparing a compiled program on a device with its model."""

from __future__ import annotations

import click

from tpuconvert.cli.file_parameters import InputFile, OutputFolder
from tpuconvert.cli.help_sections import SectionedCommand
from tpuconvert.cli.json_output import json_option, print_result
from tpuconvert.cli.progress_bar import show_progress
from tpuconvert.cli.shared_options import plugin_option, progress_option
from tpuconvert.device.device import device_check, device_compare, device_plan
from tpuconvert.device.setup import device_setup


@click.group("device", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Install the vendor's compiler; compare a compiled program on a device with its model.

    \b
    tpuconvert device setup
    tpuconvert device plan net.tpum net_plan
    tpuconvert device compare net.tpum dumps.npz --plan net_plan
    """


@command.command(
    "plan", cls=SectionedCommand, short_help="Write inputs, expected integers and a program that dumps tensors."
)
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


@command.command(
    "compare", cls=SectionedCommand, short_help="Find and explain the first tensor that differs on a device."
)
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


@command.command("check", cls=SectionedCommand, short_help="Check the golden vectors of a model file on this machine.")
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


@command.command("setup", cls=SectionedCommand, short_help="Install the vendor's compiler and simulator.")
@click.argument("folder", type=OutputFolder(), required=False)
@click.option("--python", type=InputFile(), metavar="FILE", help="A Python 3.10. Default: of the PATH, pyenv or uv.")
@progress_option
@json_option
def setup(folder: str | None, python: str | None, progress_mode: str, as_json: bool) -> None:
    """Install the vendor's compiler and simulator from PyPI into a virtual environment, and check them.

    FOLDER is by default in the cache folder of the user, where export --compile finds it. Needs Linux on x86-64, Python
    3.10 and 1.5 GB. A complete installation is only checked.

    \b
    tpuconvert device setup
    """
    with show_progress(progress_mode) as progress:
        result = device_setup(folder, python=python, progress=progress)
    print_result(result, as_json=as_json)
