"""Choice of the nodes with 16 bits for a network whose integer form misses a target at a branch or task of its outputs.

Errors that are spread over many nodes do not show when one node at a time gets 16 bits. The candidates are therefore
regions, and the search starts from large ones:

1. The error with 8 bits is measured with a float graph that rounds all activations (``float_simulation``). If every
   branch of the outputs (``output_branches``) and every task (``task_metrics``) meets its target, no node needs 16
   bits. Of a task below its target, all branches count as missed.
2. The regions are: the start of the network up to the budget of multiply-accumulates (MACs), whose errors all later
   layers amplify; the linear operators with the largest isolated error per MAC; all element-wise operators, which need
   no MACs; and their unions. The first one that meets the target is taken, else the best one.
3. Parts of the region are lowered to 8 bits again while this costs nothing.
4. The error with the remaining nodes is measured on other samples. It must be clearly lower, or the score higher. If
   the target is missed on them, and met with the start of the network and all element-wise operators, these are taken.
5. If the target is missed, the smallest share of the MACs that would meet it is measured for the warning.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tpuconvert.optimizer.quantize.search.output_branches import Branch
from tpuconvert.optimizer.quantize.search.output_error import Errors, Feed, OutputError, Vector
from tpuconvert.optimizer.quantize.search.task_metrics.score import TaskScore
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.types import Chip

TARGET = 0.01
"""Largest error of a branch as a share of its variance: 20 dB."""

FEWEST = 4
"""Smallest number of samples for a choice: half of them confirm it."""

RUNS = 25
"""Usual number of runs of every sample."""

_TO_RANK = 2
"""Number of samples for the isolated errors. They only order the nodes."""

_MOST_TO_RANK = 48
"""Largest number of linear operators with an isolated error, those with the fewest MACs."""

_PER_NODE = 0.01
"""Share of the MACs that is added to the cost of a linear operator in the ranking."""

_CLEAR_GAIN = 0.2
"""Smallest decrease of the mean logarithm of the error of the branches that miss the target, 0.9 dB, on all samples. On
those that confirm a region, which are few, it must not rise."""

_WORTH = 0.1
"""Decrease of this mean, 0.4 dB, for which a larger region is preferred."""

_NOTHING = 0.05
"""Rise of this mean, 0.2 dB, that counts as no cost of all parts with 8 bits together."""

_PARTS = 6
"""Number of parts of the element-wise and of the linear operators that are lowered again."""

_TIPPING = 8
"""One sample of this number, that with the largest error, is left out of a branch: results of a network at a tipping
point, such as a pose that could be another one, change with any rounding."""

LARGER_SHARES = (0.1, 0.2, 0.4, 0.7, 1.0)
"""Shares of the MACs that are tried for the warning."""


@dataclass(frozen=True)
class BranchLevel:
    """Error of a branch of the outputs, in decibels below its variance: 20 dB is a hundredth.

    Args:
        branch: the branch.
        output: name of the output.
        before: with 8 bits.
        after: with the chosen nodes.
    """

    branch: Branch
    output: str
    before: float
    after: float


@dataclass(frozen=True)
class Floor:
    """Result of the choice.

    Args:
        names: names of the nodes with 16 bits, in execution order.
        share: their share of the MACs.
        levels: errors of the branches that miss the target, or whose task does, with 8 bits or with these nodes.
        before: error at the outputs without these nodes, on the samples that confirm them.
        after: error with them.
        enough: share of the MACs with which all branches meet the target; None if they do, or if none is enough.
        is_exportable: whether both exports to the vendor's compiler have exact forms of the nodes.
    """

    names: tuple[str, ...]
    share: float
    levels: tuple[BranchLevel, ...]
    before: Errors
    after: Errors
    enough: float | None
    is_exportable: bool = True

    @property
    def missed(self) -> list[BranchLevel]:
        """Branches that miss the target, the worst one first."""
        missed = [level for level in self.levels if level.after < decibels(TARGET)]
        return sorted(missed, key=lambda level: level.after)

    @property
    def is_missed(self) -> bool:
        """Return True if a branch or a task misses its target."""
        return bool(self.missed) or any(after.is_missed for _, after in self.tasks)

    @property
    def tasks(self) -> list[tuple[TaskScore, TaskScore]]:
        """Scores without and with the nodes of the tasks that are below their target without them."""
        pairs = zip(self.before.tasks, self.after.tasks, strict=True)
        return [(before, after) for before, after in pairs if before.is_missed]


def decibels(share: float) -> float:
    """Signal-to-noise ratio of an error that is a share of the variance."""
    return -10.0 * math.log10(max(share, 1e-12))


@dataclass(frozen=True)
class FloorCandidates:
    """Nodes that can get 16 bits.

    Args:
        linear: share of the MACs of the linear operators by name, in execution order.
        elementwise: the same for other operators.
        order: names of both, in execution order.
    """

    linear: Mapping[str, float]
    elementwise: Mapping[str, float]
    order: Sequence[str]

    def share(self, names: Collection[str]) -> float:
        """Share of the MACs of some nodes."""
        return sum(shares.get(name, 0.0) for name in names for shares in (self.linear, self.elementwise))

    def start(self, max_share: float) -> frozenset[str]:
        """Nodes at the start of the network with at most this share of the MACs."""
        chosen, left = [], max_share
        for name in self.order:
            left -= self.share((name,))
            if left < -1e-9:
                break
            chosen.append(name)
        return frozenset(chosen)

    def largest(self, max_share: float) -> frozenset[str]:
        """Nodes at the start of the network with at most this share of the MACs, and all element-wise ones."""
        return self.start(max_share) | self.elementwise.keys()

    def fill(self, parts: Mapping[str, float], max_share: float) -> frozenset[str]:
        """Linear operators with a large part of the error per MAC, at most this share of the MACs."""
        chosen, left = [], max_share
        for name in sorted(parts, key=lambda name: -parts[name] / (self.linear[name] + _PER_NODE)):
            if self.linear[name] <= left:
                chosen.append(name)
                left -= self.linear[name]
        return frozenset(chosen)


class _Levels:
    """Errors of simulated graphs, relative to the variance of the branches.

    Args:
        graph: float graph without annotations.
        feeds: samples.
        simulate: returns the float graph that rounds the activations, for the names of nodes with 16 bits.
    """

    def __init__(self, graph: Graph, feeds: Sequence[Feed], simulate: Callable[[Collection[str]], Graph]) -> None:
        self.error = OutputError(graph, Chip.BM1686, feeds)
        self._simulate = simulate

    def measure(self, names: Collection[str]) -> Errors:
        """Error at the outputs with 16 bits in these nodes."""
        return self.error.measure(self._simulate(names))

    def of(self, errors: Errors) -> Vector:
        """Error of every branch: the larger one of all and of large values."""
        pairs = zip((errors.branches, errors.large_branches), self.error.variances, strict=True)
        levels = [_trimmed_means(branch_errors) / np.maximum(variances, 1e-12) for branch_errors, variances in pairs]
        return np.asarray(np.maximum(*levels))

    def fails(self, errors: Errors) -> npt.NDArray[np.bool_]:
        """Return for every branch whether it, or the task that it serves, misses the target."""
        outputs = {output for score in errors.tasks if score.is_missed for output in score.outputs}
        of_tasks = np.array([name in outputs for name in self.error.output_names], np.bool_)
        return np.logical_or(self.of(errors) > TARGET, of_tasks)


def _trimmed_means(errors: Vector) -> Vector:
    """Mean over the samples without the largest ones."""
    count = errors.shape[1]
    return np.asarray(np.sort(errors, axis=1)[:, : count - count // _TIPPING].mean(axis=1))


def raise_to_floor(
    graph: Graph,
    candidates: FloorCandidates,
    simulate: Callable[[Collection[str]], Graph],
    isolate: Callable[[Collection[str]], Iterable[Graph]],
    feeds: Sequence[Feed],
    max_share: float,
    larger: Sequence[float] = LARGER_SHARES,
) -> Floor | None:
    """Choose the nodes with 16 bits.

    Args:
        graph: float graph without annotations.
        candidates: nodes that can have 16 bits.
        simulate: returns the float graph that rounds the activations, for the names of nodes with 16 bits.
        isolate: returns float graphs that round only the operand of one node, for the names of nodes.
        feeds: samples, in an order that depends on their content only; the second half confirms the choice.
        max_share: largest share of the MACs with 16 bits.
        larger: larger shares that are tried for the warning.

    Returns:
        The choice, which may be empty; None if there are too few samples, or if all branches and tasks meet the target.
    """
    if len(feeds) < FEWEST or not candidates.order:
        return None
    half = len(feeds) // 2
    confirmation = _Levels(graph, feeds[-half:], simulate)
    before = confirmation.measure(())
    start, is_missed = confirmation.of(before), confirmation.fails(before)
    search = _Search(_Levels(graph, feeds[-2 * half : -half], simulate), candidates, is_missed)
    fails = search.fails
    if not fails.any():
        return None
    ranking = OutputError(graph, Chip.BM1686, feeds[-half - _TO_RANK : -half])
    by_share = sorted(candidates.linear, key=lambda name: candidates.linear[name])  # stable: execution order
    cheap = [name for name in by_share[:_MOST_TO_RANK] if candidates.linear[name] <= max_share]
    parts = {
        name: float(ranking.measure(isolated).branches[fails].mean())
        for name, isolated in zip(cheap, isolate(cheap), strict=True)
    }
    chosen = search.lower(search.choose(parts, max_share))
    after, end = before, start
    if chosen:
        errors = confirmation.measure(chosen)
        gain = _gain(errors, before, is_missed if is_missed.any() else fails)
        is_clear = gain < 0.0 and (gain + search.gain_of(chosen)) / 2 < -_CLEAR_GAIN
        is_clear = is_clear or errors.gains(before)
        if is_clear and not errors.harms(before, ~fails, targets_only=True):
            after, end = errors, confirmation.of(errors)
        else:
            chosen = frozenset()
    largest = candidates.largest(max_share)
    if confirmation.fails(after).any() and candidates.share(largest) <= max_share + 1e-9:
        errors_of_largest = confirmation.measure(largest)
        if not confirmation.fails(errors_of_largest).any():  # the share that the warning of a smaller limit names
            chosen, after, end = largest, errors_of_largest, confirmation.of(errors_of_largest)
    in_order = tuple(name for name in candidates.order if name in chosen)
    outputs = confirmation.error.output_names
    levels = tuple(
        BranchLevel(branch, output, decibels(float(start[index])), decibels(float(end[index])))
        for index, (branch, output) in enumerate(zip(confirmation.error.branches, outputs, strict=True))
        if fails[index] or end[index] > TARGET
    )
    tried = [share for share in larger if share > max_share] if confirmation.fails(after).any() else []
    enough = _find_enough(confirmation, candidates, tried)
    return Floor(in_order, candidates.share(in_order), levels, before, after, enough)


def _find_enough(levels: _Levels, candidates: FloorCandidates, shares: Sequence[float]) -> float | None:
    """First of some shares of the MACs with which nothing misses the target."""
    for share in shares:
        names = candidates.largest(share)
        if not levels.fails(levels.measure(names)).any():
            return share
    return None


def _gain(errors: Errors, other: Errors, counted: npt.NDArray[np.bool_]) -> float:
    """Mean logarithm of the ratio of two errors over the counted branches."""
    ratios = [
        np.log((_trimmed_means(new)[counted] + 1e-12) / (_trimmed_means(old)[counted] + 1e-12))
        for new, old in ((errors.branches, other.branches), (errors.large_branches, other.large_branches))
    ]
    return float(np.mean(ratios))


class _Search:
    """Search for a region.

    Args:
        levels: measures errors.
        candidates: nodes that can have 16 bits.
        is_missed: whether a branch misses the target with 8 bits on other samples.

    Attributes:
        fails: whether a branch misses it on these or other samples. A scalar meets it on a few samples by chance.
    """

    def __init__(self, levels: _Levels, candidates: FloorCandidates, is_missed: npt.NDArray[np.bool_]) -> None:
        self._levels = levels
        self._candidates = candidates
        self._before = levels.measure(())
        self.fails = is_missed | levels.fails(self._before)

    def _gain(self, errors: Errors, other: Errors) -> float:
        return _gain(errors, other, self.fails)

    def gain_of(self, region: Collection[str]) -> float:
        """Mean logarithm of the ratio of the error with 16 bits in a region to the error with 8 bits."""
        return self._gain(self._levels.measure(region), self._before)

    def _harms(self, errors: Errors) -> bool:
        """Return True if a task has a lower score than with 8 bits, or a branch that meets the target a larger error.

        Scores without target count small responses, which mean errors shift; only the refinement corrects them. Of
        branches that miss the target the mean counts (``_gain``): the noise of large errors would reject any region.
        """
        return errors.harms(self._before, ~self.fails, targets_only=True)

    def _meets(self, errors: Errors) -> bool:
        return not self._levels.fails(errors).any()

    def choose(self, parts: Mapping[str, float], max_share: float) -> tuple[frozenset[str], Errors]:
        """Return the first region that meets the target, else the best one, and its error.

        Args:
            parts: isolated errors of linear operators by name.
            max_share: largest share of the MACs.
        """
        candidates = self._candidates
        elementwise = frozenset(candidates.elementwise)
        start, ranked = candidates.start(max_share), candidates.fill(parts, max_share)
        mixed = candidates.start(max_share / 2)
        mixed |= candidates.fill({name: part for name, part in parts.items() if name not in mixed}, max_share / 2)
        best: tuple[frozenset[str], Errors] = frozenset(), self._before
        regions = [start, ranked, mixed, elementwise, *(elementwise | region for region in (start, ranked, mixed))]
        for region in dict.fromkeys(regions):
            if not region or candidates.share(region) > max_share + 1e-9:
                continue
            errors = self._levels.measure(region)
            is_better = self._gain(errors, best[1]) <= -_WORTH or errors.gains(best[1])
            if self._harms(errors) or not is_better:
                continue
            best = region, errors
            if self._meets(errors):
                break
        return best

    def lower(self, chosen: tuple[frozenset[str], Errors]) -> frozenset[str]:
        """Lower parts of a region to 8 bits again while it meets the target, or while the error does not rise."""
        region, errors = chosen
        meets = self._meets(errors)
        for group in (self._candidates.elementwise, self._candidates.linear):
            names = [name for name in self._candidates.order if name in region and name in group]
            size = math.ceil(len(names) / _PARTS)
            for first in reversed(range(0, len(names), size or 1)):
                smaller = region.difference(names[first : first + size])
                measured = self._levels.measure(smaller)
                is_similar = self._gain(measured, errors) < _NOTHING and not measured.loses(errors)
                is_enough = self._meets(measured) if meets else is_similar
                if is_enough and not self._harms(measured):
                    region = smaller
        return region
