"""Measurements of the parts of the benchmark, which are written as tables and JSON."""

from __future__ import annotations

from dataclasses import dataclass, field

from tools.bench.rounds import Measured
from tpuconvert.run.benchmark import KernelCost


@dataclass(frozen=True)
class Result:
    """Measurements of one network: tpuconvert first, then other engines, then missing engines with reasons.

    Args:
        network: name of the network.
        arithmetic: INT8, float32, or the type in the source.
        macs: multiply-accumulates of one run.
        engines: measurements per engine.
        peak: peak rate of the processor in MAC per second, measured in the same rounds; None if it was not measured.
        peak_share: share of the peak rate that tpuconvert reaches.
        missing: engines that are not measured, with reasons.
    """

    network: str
    arithmetic: str
    macs: int
    engines: tuple[Measured, ...]
    peak: float | None = None
    peak_share: float | None = None
    missing: tuple[tuple[str, str], ...] = ()

    def of(self, label: str) -> Measured | None:
        """Result of one engine, or None if it has no row."""
        return next((each for each in self.engines if each.label == label), None)

    @property
    def ours(self) -> Measured:
        """Result of tpuconvert; it has no numbers if tpuconvert cannot run the network."""
        return self.engines[0] if self.engines else Measured("", error="missing")

    @property
    def failures(self) -> list[tuple[str, str]]:
        """Engines without measurements, with reasons."""
        failed = [(each.label, each.error.removeprefix(f"{each.label}: ")) for each in self.engines if each.error]
        return [*failed, *self.missing]


@dataclass(frozen=True)
class Memory:
    """Memory of a tpuconvert process, in bytes.

    Args:
        network: name of the network.
        before: resident memory after the import of the engine, before a model is loaded.
        peak: peak resident memory after some runs.
        file: size of the model file.
        plan: sizes reported by the session: arena, its lower bound, packed weights. Empty without native engine.
    """

    network: str
    before: int
    peak: int
    file: int
    plan: dict[str, int]


@dataclass(frozen=True)
class Kernels:
    """Time per kernel of one network, the longest first."""

    network: str
    kernels: tuple[KernelCost, ...]


@dataclass(frozen=True)
class Part:
    """One table of the report."""

    key: str
    title: str
    about: str
    results: tuple[Result, ...] = ()
    memory: tuple[Memory, ...] = ()
    kernels: tuple[Kernels, ...] = ()


@dataclass(frozen=True)
class Report:
    """Machine, settings and tables."""

    machine: dict[str, str]
    command: str
    parts: list[Part] = field(default_factory=list)
    title: str = "Benchmarks"
