"""Check that calibration samples suffice, and find samples that alone determine the threshold of a tensor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from tpuconvert.optimizer.quantize.calibration.calibration import choose_methods
from tpuconvert.optimizer.quantize.ranges.calibrators import Collector, collector
from tpuconvert.optimizer.quantize.ranges.ranges import Range
from tpuconvert.runtime.session.session import Session
from tpuconvert.samples.finding import Finding
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.text.plain_values import Plain
from tpuconvert.schema.types import Array

SETTLED = 0.01
"""A threshold has settled if more samples change it by at most this share."""

SETTLED_TENSORS = 0.95
"""Samples suffice if the thresholds of this share of the tensors have settled."""

LONE = 2.0
"""A sample alone sets the range of a tensor if its largest magnitude is this many times the second largest."""

LONE_TENSORS = 0.25
"""Warn if one sample alone sets the ranges of more than this share of the tensors, or of an input."""

FEWEST = 8
"""Smallest number of samples for which thresholds are compared."""


@dataclass(frozen=True)
class Sufficiency(Plain, keys={"lone": "lone_samples"}):
    """Dependence of the calibration thresholds on the number of samples and on single samples.

    Args:
        samples: number of samples.
        enough: the smallest tried number of samples for which the thresholds of 95 % of the tensors are within 1 % of
            the final ones; None if about half of the samples are not enough.
        moved: number of samples -> share of the tensors whose threshold differs from the final one by more than 1 %.
        lone: index of a sample -> tensors whose largest magnitude in it is at least twice that in any other sample.

    """

    samples: int
    enough: int | None
    moved: dict[int, float]
    lone: dict[int, list[str]]


def measure(
    graph: Graph, feeds: Iterable[Mapping[str, Array]], method: str, *, threads: int | None = None
) -> tuple[dict[str, Range], Sufficiency]:
    """Calibrate a graph, and compare the thresholds of the first samples with the thresholds of all samples.

    Args:
        graph: the float graph.
        feeds: the samples; a batch counts as one.
        method: calibration method.
        threads: number of threads of the native engine.

    """
    collectors: dict[str, Collector] = {}
    largest: dict[str, list[float]] = {}
    snapshots: dict[int, dict[str, float]] = {}
    method_of = choose_methods(graph, method)

    def observe(value: Value, array: Array) -> None:
        if value.dtype.is_float:
            if value.name not in collectors:
                collectors[value.name] = collector(method_of(value.name))
            collectors[value.name].add(array)
            finite = np.abs(array[np.isfinite(array)])
            largest.setdefault(value.name, []).append(float(finite.max(initial=0.0)))

    done = 0
    with Session(graph, threads=threads, observed=True) as session:
        for feed in feeds:
            session.run(feed, observe=observe)
            done += 1
            if done >= FEWEST and done & (done - 1) == 0:
                snapshots[done] = {name: item.result().threshold for name, item in collectors.items()}
    ranges = {name: item.result() for name, item in collectors.items()}
    return ranges, _sufficiency(done, ranges, snapshots, largest)


def _sufficiency(
    samples: int, ranges: Mapping[str, Range], snapshots: dict[int, dict[str, float]], largest: dict[str, list[float]]
) -> Sufficiency:
    final = {name: item.threshold for name, item in ranges.items() if item.threshold > 0}
    moved: dict[int, float] = {}
    for count, thresholds in snapshots.items():
        apart = [abs(thresholds.get(name, 0.0) - value) > SETTLED * value for name, value in final.items()]
        if count < samples and apart:
            moved[count] = float(np.mean(apart))
    enough = None
    for count in sorted(moved, reverse=True):
        if moved[count] > 1 - SETTLED_TENSORS:
            break
        enough = count
    return Sufficiency(samples, enough, moved, _lone_samples(largest) if samples >= FEWEST else {})


def _lone_samples(largest: dict[str, list[float]]) -> dict[int, list[str]]:
    lone: dict[int, list[str]] = {}
    for name, magnitudes in largest.items():
        order = np.argsort(magnitudes)
        first, second = magnitudes[order[-1]], magnitudes[order[-2]]
        if second > 0 and first >= LONE * second:
            lone.setdefault(int(order[-1]), []).append(name)
    return lone


def lone_findings(sufficiency: Sufficiency, tensors: int, inputs: list[str], names: list[str]) -> list[Finding]:
    """Warnings about samples that set the threshold of an input, or of many tensors.

    Args:
        sufficiency: result of :func:`measure`.
        tensors: number of measured tensors.
        inputs: names of the model's inputs.
        names: names of the samples; a sample without a name is called by its index.

    """
    findings = []
    for index, where in sorted(sufficiency.lone.items()):
        entries = [name for name in where if name in inputs]
        if not entries and len(where) <= LONE_TENSORS * tensors:
            continue
        sample = names[index] if index < len(names) else f"sample {index}"
        shown = ", ".join(f"'{name}'" for name in (entries or where)[:3])
        seen = f"{sample} alone sets the range of {len(where)} of {tensors} tensors ({shown}), twice the others"
        expected = "ranges that several samples agree on"
        advice = "look at this sample; leave it out, or add more like it"
        findings.append(Finding("lone-sample", seen, expected, advice))
    return findings
