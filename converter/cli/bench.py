"""``tpuconvert bench``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from tpuconvert.cli.problems import ensure
from tpuconvert.cli.source_options import plugin_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tpuconvert.benchmark import StepCost, Timing
    from tpuconvert.calibration_data import Feed
    from tpuconvert.model import Model

SECONDS = 2.0
"""That runs are timed for when neither their number nor a time is given."""

PROFILED_RUNS = 11

NAMES_SHOWN = 3
"""So many of the nodes of a step are named in the table."""


@click.command("bench", short_help="Measure how long a .tpum file runs.")
@click.argument("file")
@click.option("--input", "source", metavar="INPUT", help="Instead of random numbers: .npz, .npy, a picture.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the random numbers.")
@click.option("--backend", type=click.Choice(["auto", "native", "reference"]), default="auto", show_default=True)
@click.option("--threads", type=click.IntRange(min=1), help="Threads of the native engine.")
@click.option("--warmup", type=click.IntRange(min=0), default=3, show_default=True, help="Runs before the first timed.")
@click.option("--runs", type=click.IntRange(min=1), help="Number of timed runs.")
@click.option("--seconds", type=click.FloatRange(min=0), help=f"Instead: time runs for so long.  [default: {SECONDS}]")
@click.option("--profile", "with_profile", is_flag=True, help="Show every step of the plan.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
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
    from tpuconvert import benchmark
    from tpuconvert.model import load
    from tpuconvert.plugins import load_plugins
    from tpuconvert.runtime.session import Session

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
    macs = benchmark.total_macs(model.graph.nodes)
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
        click.echo(json.dumps({**facts, **timing.to_mapping(), **_profile_mapping(steps)}, indent=2))
        return
    engine = "NumPy executor" if ran_on == "reference" else "native engine"
    with_threads = f", {threads} threads" if threads and threads > 1 else ""
    kind = "float" if model.quantize == "none" else model.quantize.upper()
    click.echo(f"{file}: {kind} for {facts['chip']}, {engine}{with_threads}, on {facts['input']}")
    click.echo("\n".join(_timing_lines(timing, macs)))
    if steps is not None:
        click.echo("\n" + "\n".join(_profile_lines(steps, count)))


def _feed(model: Model, source: str | None, seed: int) -> Feed:
    """The one sample that every run takes."""
    from tpuconvert.calibration_data import load_feeds
    from tpuconvert.verification import random_feeds

    ports = model.graph.input_ports
    if source is not None:
        return next(iter(load_feeds(source, ports, model.preprocess)))
    for port in ports:
        free = [extent for extent in port.shape if isinstance(extent, str)]
        ensure(not free, f"input '{port.name}' has no fixed shape ({', '.join(free)})", hint="give --input FILE.npz")
    return random_feeds(ports, 1, seed)[0]


def _timing_lines(timing: Timing, macs: int | None) -> list[str]:
    from tpuconvert.benchmark import PERCENTILES

    spread = "  ".join(f"p{percent} {_milliseconds(timing.percentile(percent))}" for percent in PERCENTILES)
    speed = f", {macs / timing.median / 1e9:.1f} GMAC/s" if macs else ""
    return [
        f"  median {_milliseconds(timing.median)} ms of {len(timing.seconds)} runs; "
        f"{timing.runs_per_second:.1f} runs/s{speed}",
        f"  {spread}  min {_milliseconds(timing.shortest)}  mean {_milliseconds(timing.mean)} ms",
    ]


def _profile_lines(steps: Sequence[StepCost], runs: int) -> list[str]:
    from tpuconvert.benchmark import reference_operators
    from tpuconvert.report import bytes_text, table

    rows = [("kernel", "ms", "share", "MAC", "GMAC/s", "moved", "nodes")]
    for step in steps:
        speed = step.macs_per_second
        more = f" and {len(step.nodes) - NAMES_SHOWN} more" if len(step.nodes) > NAMES_SHOWN else ""
        rows.append(
            (
                f"reference {step.kernel}" if step.is_reference else step.kernel,
                _milliseconds(step.seconds),
                f"{step.share:.1%}",
                "-" if step.macs is None else f"{step.macs:,}",
                "-" if speed is None else f"{speed / 1e9:.1f}",
                "-" if step.bytes is None else bytes_text(step.bytes),
                ", ".join(step.nodes[:NAMES_SHOWN]) + more,
            )
        )
    slow = reference_operators(steps)
    time = sum(step.share for step in steps if step.is_reference)
    named = ", ".join(f"{name} ({count})" for name, count in slow.items())
    summary = (
        f"{sum(slow.values())} of {len(steps)} steps ran as NumPy references, {time:.1%} of the time: {named}"
        if slow
        else f"{len(steps)} steps, all with a native kernel"
    )
    return [*table(rows), "", f"{summary} (medians of {runs} runs)"]


def _profile_mapping(steps: Sequence[StepCost] | None) -> dict[str, Any]:
    import dataclasses

    from tpuconvert.benchmark import reference_operators

    if steps is None:
        return {}
    described = [{**dataclasses.asdict(step), "macs_per_second": step.macs_per_second} for step in steps]
    return {"steps": described, "reference_operators": reference_operators(steps)}


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.3f}"
