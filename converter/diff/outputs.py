"""Comparison of the outputs of two models on the same samples."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tpuconvert.conversion.source_loading import is_quantized_source
from tpuconvert.diff.side import Side
from tpuconvert.model.model import Model
from tpuconvert.optimizer.quantize import as_float, legalize
from tpuconvert.precision.output_noise import has_classes
from tpuconvert.progress import Progress
from tpuconvert.runtime.session.session import Session
from tpuconvert.samples.calibration_data import load_feeds
from tpuconvert.samples.random_samples import random_feeds, unknown_extents
from tpuconvert.schema.graph.graph import Graph, Port
from tpuconvert.schema.types import Array, Chip, format_shape
from tpuconvert.verify.difference import Difference
from tpuconvert.verify.tensor_comparison import add_output

if TYPE_CHECKING:
    from tpuconvert.samples.calibration_data import CalibrationSource

RANDOM = "of random numbers"
"""Origin of samples if the user gives none."""

BEYOND_RANGES = "random numbers are not what the ranges of an INT8 model are made for: give samples (--data)"


@dataclass
class OutputDifference(
    Difference,
    hidden=("op", "stage", "reads", "integers", "different", "steps", "added", "clipped_share"),
    added=("is_equal",),
):
    """Difference of one output over all samples, with the first model as the reference.

    Args:
        changed_classes: share of the samples whose highest score has another class; None for other outputs.

    """

    changed_classes: float | None = None

    @property
    def is_equal(self) -> bool:
        """Return True if all elements are equal."""
        return self.max_absolute == 0.0 and self.different == 0


@dataclass(frozen=True)
class OutputComparison:
    """Outputs of both models on the same samples.

    Args:
        samples: number of samples; 0 if the models were not run.
        origin: origin of random samples; empty for samples of the user.
        outputs: one entry per output that both models have.
        problem: reason for which the outputs were not compared; empty if they were.
        advice: how to get a more meaningful comparison, or an empty string.

    """

    samples: int = 0
    origin: str = ""
    outputs: tuple[OutputDifference, ...] = ()
    problem: str = ""
    advice: str = ""

    @property
    def is_equal(self) -> bool:
        """Return True if every compared output is equal."""
        return all(output.is_equal for output in self.outputs)


@np.errstate(all="ignore")  # Difference counts non-finite elements
def compare_outputs(
    before: Side,
    after: Side,
    inputs: list[tuple[int, int]],
    outputs: list[tuple[int, int]],
    data: CalibrationSource | None,
    samples: int,
    progress: Progress,
) -> OutputComparison:
    """Run both models on the same samples and compare their outputs.

    Args:
        before: the first model.
        after: the second model.
        inputs: pairs of positions of inputs.
        outputs: pairs of positions of outputs.
        data: samples; None uses random numbers from a fixed seed.
        samples: largest number of samples; 0 runs nothing.
        progress: receives the number of samples.

    """
    if samples == 0:
        return OutputComparison(problem="not requested")
    origin = RANDOM if data is None else ""
    problem = _why_not(before.graph, after.graph, inputs, is_random=data is None)
    if problem:
        return OutputComparison(origin=origin, problem=problem)
    first, second = _program(before), _program(after)
    ports = [(before.graph.output_ports[a], after.graph.output_ports[b]) for a, b in outputs]
    scores = [has_classes(before.graph.outputs[a]) and has_classes(after.graph.outputs[b]) for a, b in outputs]
    differences = [OutputDifference(port.name, "output") for _, port in ports]
    flips, counted, done = [0] * len(ports), [0] * len(ports), 0
    progress.stage("compare the outputs", samples)
    with Session(first) as mine, Session(second) as theirs:
        for old_feed, new_feed in _feeds(before, after, inputs, data, samples):
            old_results, new_results = mine.run(old_feed), theirs.run(new_feed)
            for position, (old, new) in enumerate(ports):
                a, b = old_results[old.name], new_results[new.name]
                if a.shape != b.shape:
                    problem = f"output '{new.name}' is {format_shape(a.shape)} before and {format_shape(b.shape)} after"
                    return OutputComparison(origin=origin, problem=problem)
                add_output(differences[position], old, a, new, b)
                if scores[position] and len(a):
                    classes = (array.reshape(len(array), -1).argmax(axis=1) for array in (a, b))
                    flips[position] += int(np.count_nonzero(np.not_equal(*classes)))
                    counted[position] += len(a)
            done += 1
            progress.advance(done)
    if not done:
        return OutputComparison(origin=origin, problem="there are no samples")
    for difference, flip, count in zip(differences, flips, counted, strict=True):
        difference.changed_classes = flip / count if count else None
    result = OutputComparison(done, origin, tuple(differences))
    is_beyond = data is None and not result.is_equal and (_has_ranges(before) or _has_ranges(after))
    return replace(result, advice=BEYOND_RANGES if is_beyond else "")


def _has_ranges(side: Side) -> bool:
    """Return True if a model has float inputs and integers inside."""
    is_int8 = is_quantized_source(side.graph) if side.model is None else side.model.quantize != "none"
    return is_int8 and any(port.dtype.startswith("float") for port in side.graph.input_ports)


def _why_not(before: Graph, after: Graph, inputs: list[tuple[int, int]], *, is_random: bool) -> str:
    """Return the reason for which both models cannot run on the same samples, or an empty string."""
    counts = len(before.input_ports), len(after.input_ports)
    if len(inputs) != counts[0] or len(inputs) != counts[1]:
        return f"{counts[0]} inputs before and {counts[1]} after"
    for a, b in inputs:
        old, new = before.input_ports[a], after.input_ports[b]
        if old.dtype != new.dtype and is_random:
            return f"input '{new.name}' is {old.dtype} before and {new.dtype} after: give samples (--data)"
        if not _fits(old, new) and is_random:
            return f"input '{new.name}' is {format_shape(old.shape)} before and {format_shape(new.shape)} after"
    if is_random:
        for name, extents in unknown_extents(before.input_ports).items():
            return f"input '{name}' has no fixed shape ({', '.join(extents)}): give samples (--data)"
    return ""


def _fits(old: Port, new: Port) -> bool:
    """Return True if a random sample of one port has a shape that the other accepts."""
    sizes = [1 if position == 0 and isinstance(extent, str) else extent for position, extent in enumerate(old.shape)]
    return len(sizes) == len(new.shape) and all(
        isinstance(extent, str) or extent == size for size, extent in zip(sizes, new.shape, strict=True)
    )


def _program(side: Side) -> Model | Graph:
    """Return what runs: the model, or a graph that was not converted in float, or with the integers of its source."""
    if side.model is not None:
        return side.model
    return legalize(side.graph, Chip.BM1686).graph if is_quantized_source(side.graph) else as_float(side.graph)


def _feeds(
    before: Side, after: Side, inputs: list[tuple[int, int]], data: CalibrationSource | None, samples: int
) -> Iterable[tuple[dict[str, Array], dict[str, Array]]]:
    """Return the feeds of both models for each sample. Each model has its own preprocessing."""
    old, new = before.graph.input_ports, after.graph.input_ports
    names = {old[a].name: new[b].name for a, b in inputs}
    if data is None:
        for feed in random_feeds(old, samples):
            yield feed, {names[name]: array for name, array in feed.items()}
        return
    rules = before.preprocess or after.preprocess, after.preprocess or before.preprocess
    first = load_feeds(data, old, rules[0], limit=samples)
    if rules[0] == rules[1] and _same_types(before.graph, after.graph, inputs):
        for feed in itertools.islice(first, samples):
            yield feed, {names[name]: array for name, array in feed.items()}
        return
    second: Iterator[dict[str, Array]] = iter(load_feeds(data, new, rules[1], limit=samples))
    yield from itertools.islice(zip(first, second, strict=False), samples)


def _same_types(before: Graph, after: Graph, inputs: list[tuple[int, int]]) -> bool:
    return all(
        (before.input_ports[a].dtype, before.input_ports[a].shape)
        == (after.input_ports[b].dtype, after.input_ports[b].shape)
        for a, b in inputs
    )
