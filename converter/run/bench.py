"""``tpuconvert.bench``: the run time of a model, and of every step of its plan."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tpuconvert.model.model import Model, load
from tpuconvert.plugins import load_plugins
from tpuconvert.run.benchmark import PERCENTILES, KernelCost, StepCost, Timing, by_kernel, profile_steps, time_runs
from tpuconvert.runtime.session.session import Session
from tpuconvert.samples.calibration_data import load_feeds
from tpuconvert.samples.random_samples import random_feeds, unknown_extents
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.graph.cost import total_macs
from tpuconvert.schema.types import Chip
from tpuconvert.text.result import Result
from tpuconvert.text.styled_text import style
from tpuconvert.text.table import table
from tpuconvert.text.text_format import LONGEST, bytes_text, shorten

if TYPE_CHECKING:
    from tpuconvert.samples.calibration_data import CalibrationSource, Feed

SECONDS = 2.0
"""Time for which runs are repeated if the user gives neither a number of runs nor a time."""

PROFILED_RUNS = 11

NAMES_SHOWN = 3
"""Largest number of nodes per step that the table lists by name."""


@dataclass(frozen=True, repr=False)
class Benchmark(Result, hidden=("profiled_runs",), keys={"timing": "*", "steps": "steps?", "kernels": "kernels?"}):
    """Run time of a model.

    Args:
        file: name of the model.
        chip: chip whose arithmetic ran.
        quantize: ``int8``, or ``none`` for float.
        backend: ``native`` or ``reference``.
        threads: requested number of threads; None for the number of available CPUs.
        input: the input as text.
        warmup_runs: number of runs before the first timed one.
        macs: multiply-accumulates of one run; None if an extent is known only at run time.
        timing: wall times of the runs.
        steps: cost of every step of the plan, as medians; None without a profile.
        profiled_runs: number of profiled runs.

    """

    file: str
    chip: Chip
    quantize: str
    backend: str
    threads: int | None
    input: str
    warmup_runs: int
    macs: int | None
    timing: Timing
    steps: tuple[StepCost, ...] | None = None
    profiled_runs: int = 0

    @property
    def median(self) -> float:
        """Median wall time of the runs, in seconds."""
        return self.timing.median

    @property
    def kernels(self) -> list[KernelCost]:
        """Total of all steps per kernel, the slowest first; empty without a profile."""
        return by_kernel(self.steps or ())

    def lines(self) -> list[str]:
        """Return the setting and the times, and with a profile the tables of steps and kernels."""
        engine = "NumPy executor" if self.backend == "reference" else "native engine"
        with_threads = f", {self.threads} threads" if self.threads and self.threads > 1 else ""
        kind = "float" if self.quantize == "none" else self.quantize.upper()
        lines = [f"{self.file}: {kind} for {self.chip.value}, {engine}{with_threads}, on {self.input}"]
        lines += _timing_lines(self.timing, self.macs)
        if self.steps is not None:
            lines += ["", *table(_step_rows(self.steps)), "", *table(_kernel_rows(self.kernels)), "", self._summary()]
        return lines

    def _notebook(self) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
        return self.lines()[:3], () if self.steps is None else _step_rows(self.steps)

    def _summary(self) -> str:
        """Return the line about steps without a native kernel."""
        steps = self.steps or ()
        slow = [kernel for kernel in self.kernels if kernel.is_reference]
        text = f"{len(steps)} steps, all with a native kernel"
        if slow:
            count, share = sum(kernel.steps for kernel in slow), sum(kernel.share for kernel in slow)
            text = f"{count} of {len(steps)} steps ran as NumPy references, {share:.1%} of the time"
        return f"{text} (medians of {self.profiled_runs} runs)"


def bench(
    model: Model | str | os.PathLike[str],
    *,
    data: CalibrationSource | None = None,
    seed: int = 0,
    backend: Literal["auto", "native", "reference"] = "auto",
    threads: int | None = None,
    memory_limit: int | None = None,
    warmup: int = 3,
    runs: int | None = None,
    seconds: float | None = None,
    profile: bool = False,
    plugins: Iterable[str | Path] = (),
) -> Benchmark:
    """Measure the run time of a model.

    Args:
        model: The model, or its file.
        data: Samples, of which the first is the input of every run; None uses random numbers.
        seed: Seed of the random numbers.
        backend: ``auto``, ``native`` or ``reference``.
        threads: Number of threads of the native engine; None for the number of available CPUs.
        memory_limit: Largest size of the plan in bytes, as for a session.
        warmup: Number of runs before the first timed one.
        runs: Number of timed runs.
        seconds: Time for which runs are repeated, instead of ``runs``. Default: 2 seconds.
        profile: Also measure every step of the plan.
        plugins: Python files with custom operators.

    Raises:
        UsageError: ``runs`` and ``seconds`` are both given, or random numbers are requested for dynamic dimensions.

    Example:
        >>> benchmark = tc.bench(tc.convert("digits.onnx"), runs=5, profile=True)
        >>> len(benchmark.timing.seconds), benchmark.macs
        (5, 336896)
        >>> benchmark.kernels[0].seconds >= benchmark.kernels[-1].seconds  # the slowest first
        True

    """
    if runs is not None and seconds is not None:
        raise UsageError("runs and seconds exclude each other", hint="give one of them: --runs or --seconds")
    load_plugins(plugins)
    converted = model if isinstance(model, Model) else load(model)
    feed = _feed(converted, data, seed)
    limit = SECONDS if runs is None and seconds is None else seconds
    with Session(converted, backend=backend, threads=threads, memory_limit=memory_limit) as session:
        timing = time_runs(session, feed, warmup=warmup, runs=runs, seconds=limit)
        count = min(PROFILED_RUNS, len(timing.seconds))
        steps = tuple(profile_steps(session, converted.graph, feed, count)) if profile else None
        ran_on = session.backend
    return Benchmark(
        converted.graph.name if isinstance(model, Model) else os.fspath(model),
        converted.chip,
        converted.quantize,
        ran_on,
        threads,
        f"random numbers, seed {seed}" if data is None else str(data) if isinstance(data, (str, Path)) else "samples",
        warmup,
        total_macs(converted.graph.nodes),
        timing,
        steps,
        count if profile else 0,
    )


def _feed(model: Model, data: CalibrationSource | None, seed: int) -> Feed:
    """Return the sample that is used in every run."""
    ports = model.graph.input_ports
    if data is not None:
        return next(iter(load_feeds(data, ports, model.preprocess, limit=1)))
    for name, extents in unknown_extents(ports).items():
        raise UsageError(
            f"input '{name}' has no fixed shape ({', '.join(extents)})",
            hint="give a sample: --input FILE.npz",
        )
    return random_feeds(ports, 1, seed)[0]


def _timing_lines(timing: Timing, macs: int | None) -> list[str]:
    spread = "  ".join(f"p{percent} {_milliseconds(timing.percentile(percent))}" for percent in PERCENTILES)
    speed = f", {macs / timing.median / 1e9:.1f} GMAC/s" if macs else ""
    return [
        f"  median {_milliseconds(timing.median)} ms of {len(timing.seconds)} runs; "
        f"{timing.runs_per_second:.1f} runs/s{speed}",
        f"  {spread}  min {_milliseconds(timing.shortest)}  mean {_milliseconds(timing.mean)} ms",
    ]


def _step_rows(steps: Sequence[StepCost]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("kernel", "ms", "share", "MAC", "GMAC/s", "moved", "nodes")]
    for step in steps:
        moved = "-" if step.bytes is None else bytes_text(step.bytes)
        rows.append((*_work(step), moved, _node_names(step.nodes)))
    return rows


def _kernel_rows(kernels: Sequence[KernelCost]) -> list[tuple[str, ...]]:
    heading = ("kernel", "ms", "share", "MAC", "GMAC/s", "steps")
    return [heading, *((*_work(kernel), str(kernel.steps)) for kernel in kernels)]


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
        style(f"reference {cost.kernel}", "warning") if cost.is_reference else cost.kernel,
        _milliseconds(cost.seconds),
        f"{cost.share:.1%}",
        "-" if cost.macs is None else f"{cost.macs:,}",
        "-" if speed is None else f"{speed / 1e9:.1f}",
    )


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.3f}"
