"""``tpuconvert bench``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tpuconvert import benchmark
from tpuconvert.benchmark import PERCENTILES, by_kernel
from tpuconvert.cli.file_parameters import InputFile
from tpuconvert.cli.json_output import json_option, print_json
from tpuconvert.cli.problems import ensure
from tpuconvert.cli.shared_options import engine_options, plugin_option
from tpuconvert.cli.terminal import echo
from tpuconvert.model import load
from tpuconvert.plugins import load_plugins
from tpuconvert.report.text import table
from tpuconvert.runtime.session import Session
from tpuconvert.samples.calibration_data import load_feeds
from tpuconvert.samples.random_samples import random_feeds, unknown_extents
from tpuconvert.schema.cost import total_macs
from tpuconvert.schema.errors import UsageError
from tpuconvert.text_format import LONGEST, bytes_text, shorten

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tpuconvert.benchmark import KernelCost, StepCost, Timing
    from tpuconvert.model import Model
    from tpuconvert.samples.calibration_data import Feed

SECONDS = 2.0
"""Time for which runs are repeated if the user gives neither a number of runs nor a time."""

PROFILED_RUNS = 11

NAMES_SHOWN = 3
"""Largest number of nodes per step that the table lists by name."""


@click.command("bench")
@click.argument("file", type=InputFile())
@click.option(
    "--input", "source", type=InputFile(), metavar="INPUT", help="Instead of random numbers: .npz, .npy, an image."
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the random numbers.")
@engine_options
@click.option("--warmup", type=click.IntRange(min=0), default=3, show_default=True, help="Runs before the first timed.")
@click.option("--runs", type=click.IntRange(min=1), help="Number of timed runs.")
@click.option("--seconds", type=click.FloatRange(min=0), help=f"Instead: time runs for so long.  [default: {SECONDS}]")
@click.option("--profile", "with_profile", is_flag=True, help="Show every step of the plan.")
@json_option
@plugin_option
def command(
    file: str,
    source: str | None,
    seed: int,
    backend: Any,
    threads: int | None,
    warmup: int,
    runs: int | None,
    seconds: float | None,
    with_profile: bool,
    as_json: bool,
    plugins: tuple[str, ...],
) -> None:
    """Measure how long the .tpum FILE runs, and with --profile which steps take the time.

    \b
    tpuconvert bench net.tpum --threads 2
    tpuconvert bench net.tpum --profile --json > profile.json
    """
    ensure(runs is None or seconds is None, "--runs and --seconds exclude each other")
    load_plugins(plugins)
    model = load(file)
    feed = _feed(model, source, seed)
    limit = SECONDS if runs is None and seconds is None else seconds
    with Session(model, backend=backend, threads=threads) as session:
        timing = benchmark.time_runs(session, feed, warmup=warmup, runs=runs, seconds=limit)
        count = min(PROFILED_RUNS, len(timing.seconds))
        steps = benchmark.profile(session, model.graph, feed, count) if with_profile else None
        ran_on = session.backend
    macs = total_macs(model.graph.nodes)
    facts = {
        "file": file,
        "chip": model.chip.value,
        "quantize": model.quantize,
        "backend": ran_on,
        "threads": threads,
        "input": source or f"random numbers, seed {seed}",
        "warmup_runs": warmup,
        "macs": macs,
    }
    if as_json:
        print_json({**facts, **timing.to_dict(), **_profile_mapping(steps)})
        return
    engine = "NumPy executor" if ran_on == "reference" else "native engine"
    with_threads = f", {threads} threads" if threads and threads > 1 else ""
    kind = "float" if model.quantize == "none" else model.quantize.upper()
    echo(f"{file}: {kind} for {facts['chip']}, {engine}{with_threads}, on {facts['input']}")
    echo("\n".join(_timing_lines(timing, macs)))
    if steps is not None:
        echo("\n" + "\n".join(_profile_lines(steps, count)))


def _feed(model: Model, source: str | None, seed: int) -> Feed:
    """Return the sample that is used in every run."""
    ports = model.graph.input_ports
    if source is not None:
        return next(iter(load_feeds(source, ports, model.preprocess)))
    for name, extents in unknown_extents(ports).items():
        raise UsageError(f"input '{name}' has no fixed shape ({', '.join(extents)})", hint="give --input FILE.npz")
    return random_feeds(ports, 1, seed)[0]


def _timing_lines(timing: Timing, macs: int | None) -> list[str]:
    spread = "  ".join(f"p{percent} {_milliseconds(timing.percentile(percent))}" for percent in PERCENTILES)
    speed = f", {macs / timing.median / 1e9:.1f} GMAC/s" if macs else ""
    return [
        f"  median {_milliseconds(timing.median)} ms of {len(timing.seconds)} runs; "
        f"{timing.runs_per_second:.1f} runs/s{speed}",
        f"  {spread}  min {_milliseconds(timing.shortest)}  mean {_milliseconds(timing.mean)} ms",
    ]


def _profile_lines(steps: Sequence[StepCost], runs: int) -> list[str]:
    rows = [("kernel", "ms", "share", "MAC", "GMAC/s", "moved", "nodes")]
    for step in steps:
        moved = "-" if step.bytes is None else bytes_text(step.bytes)
        rows.append((*_work(step), moved, _node_names(step.nodes)))
    kernels = by_kernel(steps)
    groups = [("kernel", "ms", "share", "MAC", "GMAC/s", "steps")]
    groups += [(*_work(kernel), str(kernel.steps)) for kernel in kernels]
    slow = [kernel for kernel in kernels if kernel.is_reference]
    if slow:
        count, share = sum(kernel.steps for kernel in slow), sum(kernel.share for kernel in slow)
        summary = f"{count} of {len(steps)} steps ran as NumPy references, {share:.1%} of the time"
    else:
        summary = f"{len(steps)} steps, all with a native kernel"
    return [*table(rows), "", *table(groups), "", f"{summary} (medians of {runs} runs)"]


def _node_names(nodes: Sequence[str]) -> str:
    """Names of the nodes of a step, shortened to one line: the first few, or only the last one."""
    more = f" and {len(nodes) - NAMES_SHOWN} more" if len(nodes) > NAMES_SHOWN else ""
    named = ", ".join(nodes[:NAMES_SHOWN]) + more
    if len(named) <= LONGEST:
        return named
    before = f" and {len(nodes) - 1} before" if len(nodes) > 1 else ""
    return shorten(nodes[-1]) + before


def _work(cost: StepCost | KernelCost) -> tuple[str, str, str, str, str]:
    """Table cells that the rows of steps and of kernels have in common."""
    speed = cost.macs_per_second
    return (
        f"reference {cost.kernel}" if cost.is_reference else cost.kernel,
        _milliseconds(cost.seconds),
        f"{cost.share:.1%}",
        "-" if cost.macs is None else f"{cost.macs:,}",
        "-" if speed is None else f"{speed / 1e9:.1f}",
    )


def _profile_mapping(steps: Sequence[StepCost] | None) -> dict[str, Any]:
    if steps is None:
        return {}
    return {"steps": [_plain(step) for step in steps], "kernels": [_plain(kernel) for kernel in by_kernel(steps)]}


def _plain(cost: StepCost | KernelCost) -> dict[str, Any]:
    import dataclasses

    return {**dataclasses.asdict(cost), "macs_per_second": cost.macs_per_second}


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.3f}"
