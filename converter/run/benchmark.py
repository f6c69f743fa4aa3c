"""Run time of a model: wall times of whole runs, and time, multiply-accumulates and bytes of each plan step."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

from tpuconvert.schema.graph.cost import bytes_moved, macs, sum_known
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.text.plain_values import Plain
from tpuconvert.schema.types import Array

if TYPE_CHECKING:
    from tpuconvert.runtime.reference.profile import StepProfile
    from tpuconvert.runtime.session.session import Session

PERCENTILES = (50, 90, 99)

Clock = Callable[[], float]


class TimingValues(TypedDict):
    """Statistics of wall times; times in seconds."""

    runs: int
    median_s: float
    min_s: float
    mean_s: float
    p50_s: float
    p90_s: float
    p99_s: float
    runs_per_second: float


@dataclass(frozen=True)
class Timing:
    """Wall times of runs, in seconds, in execution order."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """Median wall time of the runs, in seconds."""
        return statistics.median(self.seconds)

    @property
    def mean(self) -> float:
        """Mean wall time of the runs, in seconds."""
        return statistics.fmean(self.seconds)

    @property
    def shortest(self) -> float:
        """Shortest wall time of the runs, in seconds."""
        return min(self.seconds)

    def percentile(self, percent: int) -> float:
        """Percentile by the nearest-rank method: always a measured time, never an interpolated one."""
        rank = math.ceil(len(self.seconds) * percent / 100)
        return sorted(self.seconds)[max(rank, 1) - 1]

    @property
    def runs_per_second(self) -> float:
        """Throughput: number of runs divided by their total time."""
        return len(self.seconds) / sum(self.seconds)

    def to_dict(self) -> TimingValues:
        """Return the statistics as plain values."""
        return {
            "runs": len(self.seconds),
            "median_s": self.median,
            "min_s": self.shortest,
            "mean_s": self.mean,
            "p50_s": self.percentile(50),
            "p90_s": self.percentile(90),
            "p99_s": self.percentile(99),
            "runs_per_second": self.runs_per_second,
        }


@dataclass(frozen=True)
class StepCost(Plain, added=("macs_per_second",)):
    """Time and work of one step of the plan.

    Args:
        kernel: name of the kernel; a step without one is named after its operator.
        nodes: names of the nodes that the step computes.
        macs: multiply-accumulate steps; None if an extent is known only at run time. If several steps compute the same
            nodes, all are counted for the slowest step.
        bytes: lower bound of the bytes read and written; None if an extent is known only at run time.
        seconds: median over the profiled runs.
        share: share of the total time of all steps.
        is_reference: whether the NumPy definition of the operator ran.
    """

    kernel: str
    nodes: tuple[str, ...]
    macs: int | None
    bytes: int | None
    seconds: float
    share: float
    is_reference: bool

    @property
    def macs_per_second(self) -> float | None:
        """Speed, where there is something to multiply."""
        return self.macs / self.seconds if self.macs and self.seconds else None


@dataclass(frozen=True)
class KernelCost(Plain, added=("macs_per_second",)):
    """Totals of all steps of a plan that run the same kernel. Fields as in :class:`StepCost`; ``steps`` counts them."""

    kernel: str
    steps: int
    macs: int | None
    seconds: float
    share: float
    is_reference: bool

    @property
    def macs_per_second(self) -> float | None:
        """Speed, where there is something to multiply."""
        return self.macs / self.seconds if self.macs and self.seconds else None


def time_runs(
    session: Session,
    feeds: Mapping[str, Array],
    *,
    warmup: int,
    runs: int | None = None,
    seconds: float | None = None,
    clock: Clock = time.perf_counter,
) -> Timing:
    """Run a model repeatedly and time each run.

    Args:
        session: the model.
        feeds: one array per input name.
        warmup: runs before the first one that is timed.
        runs: number of timed runs; None if ``seconds`` is given.
        seconds: start runs until this time has passed, at least one; None if ``runs`` is given.
        clock: returns the current time in seconds.
    """
    assert (runs is None) != (seconds is None), "either a number of runs or a time"
    for _ in range(warmup):
        session.run(feeds)
    taken: list[float] = []
    start = now = clock()
    while len(taken) < runs if runs is not None else not taken or now - start < (seconds or 0.0):
        before = clock()
        session.run(feeds)
        now = clock()
        taken.append(now - before)
    return Timing(tuple(taken))


def profile_steps(session: Session, graph: Graph, feeds: Mapping[str, Array], runs: int) -> list[StepCost]:
    """Time every step of the plan, as the median over several runs.

    Args:
        session: session created from ``graph``.
        graph: graph whose nodes the steps compute.
        feeds: one array per input name.
        runs: number of profiled runs.
    """
    return step_costs([session.profile(feeds) for _ in range(runs)], graph)


def step_costs(profiles: Sequence[Sequence[StepProfile]], graph: Graph) -> list[StepCost]:
    """Median time of each step over several profiles of one plan, with the work of the step."""
    seconds = [statistics.median(step.seconds for step in same) for same in zip(*profiles, strict=True)]
    total = sum(seconds) or 1.0
    costs = []
    longest: dict[tuple[str, ...], float] = {}  # by nodes: a conv and the copy before it have the same nodes
    for step, taken in zip(profiles[0], seconds, strict=True):
        longest[step.nodes] = max(taken, longest.get(step.nodes, 0.0))
    for step, taken in zip(profiles[0], seconds, strict=True):
        values = [graph.find(name) for name in step.nodes]
        nodes = [value.producer for value in values if value is not None and value.producer is not None]
        kernel = " + ".join(node.op.name for node in nodes) if step.is_reference and nodes else step.kind
        leaving = [value for value in graph.outputs if value.producer in nodes]
        costs.append(
            StepCost(
                kernel,
                step.nodes,
                sum_known(macs(node) for node in nodes) if taken == longest[step.nodes] else 0,
                bytes_moved(*nodes, leaving=leaving),
                taken,
                taken / total,
                step.is_reference,
            )
        )
    return costs


def by_kernel(steps: Sequence[StepCost]) -> list[KernelCost]:
    """Sum up the steps of each kernel; the kernel that takes longest is first."""
    groups: dict[tuple[str, bool], list[StepCost]] = {}
    for step in steps:
        groups.setdefault((step.kernel, step.is_reference), []).append(step)
    kernels = [
        KernelCost(
            kernel,
            len(same),
            sum_known(step.macs for step in same),
            sum(step.seconds for step in same),
            sum(step.share for step in same),
            is_reference,
        )
        for (kernel, is_reference), same in groups.items()
    ]
    return sorted(kernels, key=lambda each: -each.seconds)
