"""``tpuconvert bench``."""

from __future__ import annotations

from dataclasses import dataclass

import click

from tpuconvert.cli.file_parameters import InputFile
from tpuconvert.cli.help_sections import SectionedCommand
from tpuconvert.cli.json_output import json_option, print_result
from tpuconvert.cli.option_fields import command_options
from tpuconvert.cli.shared_options import SessionOptions, plugin_option
from tpuconvert.option_declaration import option
from tpuconvert.run.bench import SECONDS, bench


@dataclass(frozen=True, kw_only=True)
class BenchOptions(SessionOptions):
    """Options of ``bench``."""

    data: str | None = option(
        None, "Instead of random numbers: .npz, .npy, an image.", flags="--input", metavar="INPUT", is_file=True
    )
    seed: int = option(0, "Of the random numbers.", lower=0)
    warmup: int = option(3, "Runs before the first timed.", lower=0)
    runs: int | None = option(None, "Number of timed runs.", lower=1)
    seconds: float | None = option(None, f"Instead: time runs for so long.  [default: {SECONDS}]", lower=0.0)
    profile: bool = option(False, "Show every step of the plan.")


@click.command("bench", cls=SectionedCommand)
@click.argument("file", type=InputFile())
@command_options(BenchOptions)
@json_option
@plugin_option
def command(file: str, options: BenchOptions, as_json: bool, plugins: tuple[str, ...]) -> None:
    """Measure how long the .tpum FILE runs, and with --profile which steps take the time.

    \b
    tpuconvert bench net.tpum --threads 2
    tpuconvert bench net.tpum --profile --json > profile.json
    """
    print_result(bench(file, plugins=plugins, **vars(options)), as_json=as_json)
