"""Measurements of the parts of the benchmark, before they become a table or JSON."""

from __future__ import annotations

from dataclasses import dataclass, field

from bench.rounds import Measured
from tpuconvert.benchmark import KernelCost


@dataclass(frozen=True)
class Result:
    """One network: tpuconvert first, then the other engines, then the missing ones with reasons.

    Args:
        network: its name.
        arithmetic: INT8, float32, or as the source computes.
        macs: multiply-accumulate steps of one run.
        engines: what was measured.
        peak: the processor's peak in MAC per second, where it was measured in the same rounds.
        peak_share: the part of it that ours reaches.
        missing: engines and why they are missing.
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
        """Result of tpuconvert; without numbers if it cannot run the network."""
        return self.engines[0] if self.engines else Measured("", error="missing")

    @property
    def failures(self) -> list[tuple[str, str]]:
        """Engines without numbers, with the reason."""
        failed = [(each.label, each.error.removeprefix(f"{each.label}: ")) for each in self.engines if each.error]
        return [*failed, *self.missing]


@dataclass(frozen=True)
class Memory:
    """Memory of a tpuconvert process, in bytes.

    Args:
        network: its name.
        before: resident when the engine is imported and no model is loaded.
        peak: resident at most, after some runs.
        file: size of the model.
        plan: what the session says of its plan: arena, its lower bound, packed weights. Empty without native engine.
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
