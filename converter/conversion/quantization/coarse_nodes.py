"""Choice of the nodes that stay in float because 8 bits are too coarse for them, by the error at the outputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tpuconvert.optimizer.quantize import Legalized, forget_annotations
from tpuconvert.optimizer.quantize.search.coarse_nodes import COARSE, Coarse
from tpuconvert.optimizer.quantize.search.output_accuracy import measure_outputs
from tpuconvert.optimizer.quantize.search.output_error import Errors, OutputError
from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.graph.cost import macs
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.types import Array, Chip

ACCURATE = 0.01
"""Largest error of a branch of the outputs that needs no node in float: 20 dB, or a cosine similarity of 0.995."""

_WORTHWHILE = 0.5
"""Largest ratio of the error with further nodes in float to that without them."""

_LIMITS = (COARSE, COARSE / 4, COARSE / 16)
"""Noise of a node above which it is a candidate, one after the other: the noise of many nodes adds up."""

_MOST_ROUNDS = 6
"""Largest number of times that further nodes are found beside those in float."""


_CHEAP = 1_000_000
"""Number of multiply-accumulates that may be in float beyond the limit, less than 0.1 ms of one core, but at most half
of all: most of an INT8 network is in integers."""


@dataclass(frozen=True)
class CoarseChoice:
    """Result of the choice.

    Args:
        floats: reasons for nodes that stay in float, by name.
        balanced: names of the tensors with a scale per channel; None for those that were chosen before.
        before: error at the outputs without these nodes in float.
        after: the error with them.
    """

    floats: Mapping[str, str] = field(default_factory=dict)
    balanced: Collection[str] | None = None
    before: float = 0.0
    after: float = 0.0

    def describe(self) -> str:
        """Text for the summary."""
        count = len(self.floats)
        text = f"{count} node{'s' * (count != 1)} in float, because 8 bits are too coarse for them"
        return f"{text}; error at the outputs {_decibel(self.before)} -> {_decibel(self.after)}, before refinement"


def _decibel(error: float) -> str:
    return f"{-10 * math.log10(error):.1f} dB" if error > 0 else "exact"


@dataclass(frozen=True)
class Attempts:
    """Quantizations of one graph.

    Args:
        find: returns the coarse nodes and the names of the tensors with a scale per channel. Arguments: reasons for
            nodes in float; names of the tensors that may have a scale per channel, None for those that were chosen
            before, else all; and the smallest noise of a node.
        legalize: returns the integer graph, for such reasons and names of the tensors with a scale per channel.
    """

    find: Callable[[Mapping[str, str], Collection[str] | None, float], tuple[list[Coarse], Collection[str]]]
    legalize: Callable[[Mapping[str, str], Collection[str] | None], Legalized]


def choose_coarse_nodes(
    graph: Graph,
    measure: WorstError,
    float_reasons: Mapping[str, str],
    fixed: Collection[str],
    attempts: Attempts,
    max_share: float,
    refine: Callable[[Legalized], None] | None = None,
) -> CoarseChoice:
    """Choose the nodes that stay in float.

    Nodes in float make others coarse, or no longer: a scale per channel may replace one of a tensor. The search
    therefore has rounds. It ends when the outputs are accurate.

    Args:
        graph: the float graph.
        measure: measures errors.
        float_reasons: reasons for nodes that stay in float anyway.
        fixed: names of the nodes that do not stay in float.
        attempts: quantizations.
        max_share: largest share of the multiply-accumulates in float.
        refine: refines an integer graph. If the outputs are accurate then, no node stays in float.
    """
    candidates = _candidates(_Budget(graph, max_share), float_reasons, fixed, attempts)
    first = next(candidates, None)
    if first is None:
        return CoarseChoice()
    before, errors = measure.loss(attempts.legalize(float_reasons, None).graph)
    best = before
    forget_annotations(graph)
    chosen = CoarseChoice()
    if before <= ACCURATE:
        return chosen
    if refine is not None:
        refined = attempts.legalize(float_reasons, None)
        refine(refined)
        is_accurate = measure.loss(refined.graph)[0] <= ACCURATE
        forget_annotations(graph)
        if is_accurate:
            return chosen
    for floats, balanced in (first, *candidates):
        loss, new_errors = measure.loss(attempts.legalize({**float_reasons, **floats}, balanced).graph)
        forget_annotations(graph)
        if loss < _WORTHWHILE * best and not new_errors.loses(errors):
            best, errors, chosen = loss, new_errors, CoarseChoice(floats, balanced, before, loss)
        if best <= ACCURATE:
            break
    return chosen


class _Budget:
    """Limit for the multiply-accumulates in float.

    Args:
        graph: the graph.
        max_share: largest share of its multiply-accumulates; small networks may exceed it up to one half.
    """

    def __init__(self, graph: Graph, max_share: float) -> None:
        self._costs = {node.name: macs(node, open_extent=1) or 0 for node in graph.nodes}
        total = sum(self._costs.values())
        self._max_macs = max(int(max_share * total), min(_CHEAP, total // 2))

    def allows(self, names: Iterable[str]) -> bool:
        """Return True if the nodes may be in float together."""
        return sum(self._costs.get(name, 0) for name in set(names)) <= self._max_macs


def _candidates(
    budget: _Budget, float_reasons: Mapping[str, str], fixed: Collection[str], attempts: Attempts
) -> Iterator[tuple[dict[str, str], Collection[str]]]:
    """Yield growing sets of nodes in float, with their reasons, and the tensors with a scale per channel.

    Linear operators are added in rounds that find nothing else: their operands may be the cause.
    """
    floats: dict[str, str] = {}
    others, rounds = {*float_reasons, *fixed}, 0
    for least in _LIMITS:
        coarse, _ = attempts.find({**float_reasons, **floats}, () if floats else None, least)
        new = _added(coarse, floats, others, budget)
        while new and rounds < _MOST_ROUNDS:
            floats |= new
            coarse, balanced = attempts.find({**float_reasons, **floats}, (), least)
            yield dict(floats), balanced
            rounds += 1
            new = _added(coarse, floats, others, budget)


def _added(
    coarse: Sequence[Coarse], floats: Mapping[str, str], others: Collection[str], budget: _Budget
) -> dict[str, str]:
    """Return further nodes in float with reasons: linear operators only if there are no others, the coarsest first."""
    for is_costly in (False, True):
        new: dict[str, str] = {}
        for item in sorted(coarse, key=lambda item: -item.noise):  # stable: execution order
            if item.is_costly is not is_costly:
                continue
            text = f"8 bits leave {_decibel(item.noise)} of the signal at '{item.node.name}'"
            added = {name: text for name in item.remedy if name not in floats and name not in others}
            if budget.allows((*floats, *new, *added)):
                new.update(added)
        if new:
            return new
    return {}


class WorstError:
    """Error of the worst output on the samples of an ``OutputError``.

    Args:
        graph: the float graph.
        chip: the target.
        error: the samples.
    """

    def __init__(self, graph: Graph, chip: Chip, error: OutputError) -> None:
        self._chip = chip
        self._error = error
        with Session(graph) as session, np.errstate(all="ignore"):
            self._floats = [session.run(feed) for feed in error.feeds]

    def loss(self, graph: Graph) -> tuple[float, Errors]:
        """Return the error of the worst branch or output, and all errors.

        The cosine similarity is averaged over the samples, so that small samples count as much as large ones; twice its
        distance from 1 is about the squared error relative to the power of the sample.
        """
        with Session(_Program(graph, self._chip)) as session, np.errstate(all="ignore"):
            runs: list[Mapping[str, Array]] = [session.run(feed) for feed in self._error.feeds]
        errors: Errors = self._error.compare(runs)
        outputs = measure_outputs(graph, self._error.feeds, self._floats, runs)
        cosines = [2 * (1 - output.cosine) for output in outputs if output.equal is None]
        return max(float(errors.branches.mean(axis=1).max()), *cosines, 0.0), errors


@dataclass(frozen=True)
class _Program:
    graph: Graph
    chip: Chip
