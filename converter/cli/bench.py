"""``tpuconvert bench``."""

from __future__ import annotations

from typing import Any

import click

from tpuconvert.cli.file_parameters import InputFile
from tpuconvert.cli.json_output import json_option, print_json
from tpuconvert.cli.shared_options import engine_options, memory_limit_option, plugin_option
from tpuconvert.cli.terminal import echo
from tpuconvert.run.bench import SECONDS, bench


@click.command("bench")
@click.argument("file", type=InputFile())
@click.option(
    "--input", "data", type=InputFile(), metavar="INPUT", help="Instead of random numbers: .npz, .npy, an image."
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the random numbers.")
@engine_options
@memory_limit_option
@click.option("--warmup", type=click.IntRange(min=0), default=3, show_default=True, help="Runs before the first timed.")
@click.option("--runs", type=click.IntRange(min=1), help="Number of timed runs.")
@click.option("--seconds", type=click.FloatRange(min=0), help=f"Instead: time runs for so long.  [default: {SECONDS}]")
@click.option("--profile", is_flag=True, help="Show every step of the plan.")
@json_option
@plugin_option
def command(
    file: str,
    data: str | None,
    seed: int,
    backend: Any,
    threads: int | None,
    memory_limit: int | None,
    warmup: int,
    runs: int | None,
    seconds: float | None,
    profile: bool,
    as_json: bool,
    plugins: tuple[str, ...],
) -> None:
    """Measure how long the .tpum FILE runs, and with --profile which steps take the time.

    \b
    tpuconvert bench net.tpum --threads 2
    tpuconvert bench net.tpum --profile --json > profile.json
    """
    found = bench(
        file,
        data=data,
        seed=seed,
        backend=backend,
        threads=threads,
        memory_limit=memory_limit,
        warmup=warmup,
        runs=runs,
        seconds=seconds,
        profile=profile,
        plugins=plugins,
    )
    if as_json:
        print_json(found.to_dict())
    else:
        echo(str(found))
