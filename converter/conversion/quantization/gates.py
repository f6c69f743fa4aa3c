"""Algorithms of a quantization that stay only where they reduce the error at the outputs.

The algorithms choose constants by models of the error: the error of one operator, on the samples that they were fitted
on. Whether this helps the network is measured on the last calibration samples, which the refinement does not use if
there are more than it takes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from tpuconvert.conversion.options.quantization import REFINEMENT_NEEDS
from tpuconvert.optimizer.quantize import Legalized
from tpuconvert.optimizer.quantize.search.output_error import Errors, OutputError
from tpuconvert.text.text_format import several

STRUCTURAL = ("channel-scales", "two-term-weights")
"""Algorithms that the refinement depends on. Others measure the error at the outputs themselves."""

Build = Callable[[Collection[str]], Legalized]
"""Returns the integer graph without some algorithms."""

Refine = Callable[[Legalized, Collection[str], float], None]
"""Applies the refinement without some algorithms, and with a share of the bias correction, in place."""

BIAS = "bias-correction"

_SHARE = 0.5
"""Share of the bias correction that is tried if the whole one harms a branch of an output: the mean error of positions
that respond differs from the mean error of the background, which determines the correction."""


@dataclass(frozen=True)
class Gated:
    """Result of the measurements.

    Args:
        legalized: the integer graph.
        unrefined: errors before the refinement.
        errors: errors of the integer graph.
        applied: names of the algorithms that the graph was built with.
        left_out: names of the algorithms without which the error is smaller.
        without_gain: names of the costly algorithms that do not reduce the error.
        bias_share: share of the bias correction.
    """

    legalized: Legalized
    unrefined: Errors
    errors: Errors
    applied: tuple[str, ...]
    left_out: tuple[str, ...] = ()
    without_gain: tuple[str, ...] = ()
    bias_share: float = 1.0

    def describe(self) -> str:
        """Text for the summary."""
        count = several(len(self.errors.samples), "sample")
        text = f"error at the outputs on {count}: SQNR {self.unrefined.sqnr:.1f} dB without refinement"
        if self.applied:
            names = (f"{self.bias_share:.0%} of {name}" if self._is_partial(name) else name for name in self.applied)
            text += f", {self.errors.sqnr:.1f} dB with {', '.join(names)}"
        if self.left_out:
            text += f"; left out, because the error is smaller without: {', '.join(self.left_out)}"
        if self.without_gain:
            text += f"; left out, because the error is not smaller with: {', '.join(self.without_gain)}"
        return text

    def _is_partial(self, name: str) -> bool:
        return name == BIAS and self.bias_share < 1.0


def effective(names: Sequence[str]) -> tuple[str, ...]:
    """Return the algorithms of the refinement without those that need one that is not in ``names``."""
    return tuple(name for name in names if REFINEMENT_NEEDS.get(name, name) in names)


def gate_algorithms(
    legalized: Legalized,
    rebuild: Build,
    refine: Refine,
    error: OutputError,
    refinements: Sequence[str],
    others: Sequence[str] = (),
    costly: Sequence[str] = (),
) -> Gated:
    """Refine an integer graph, and leave out algorithms without which its error is smaller.

    Args:
        legalized: the integer graph before the refinement, with all algorithms.
        rebuild: builds it again.
        refine: refines a graph.
        error: measures the error at the outputs.
        refinements: algorithms of the refinement. If all of them together do not reduce the error, or increase the
            error of a branch of an output, or lower the score of a task, half of the bias correction is tried, then
            each one is left out in turn, then all, until nothing is harmed. If a task has a low score in any case, only
            the half is tried. A result that keeps the scores without refinement stays, of several that with the highest
            scores, and among similar ones that with the smallest error.
        others: other algorithms. They and the refinements are left out in turn, even if the refinement reduces the
            error. A difference counts if it is larger than its standard error.
        costly: algorithms that make the network slower. They are left out unless the error with them is smaller by more
            than its standard error.
    """
    unrefined = error.measure(legalized.graph)
    refine(legalized, (), 1.0)
    best = Gated(legalized, unrefined, error.measure(legalized.graph), tuple(refinements))
    last = best

    def trial(left_out: Sequence[str], without_gain: Sequence[str], share: float = 1.0) -> Gated:
        candidate = rebuild((*without_gain, *left_out))
        before = best.unrefined if without_gain == best.without_gain else error.measure(candidate.graph)
        refine(candidate, left_out, share)
        applied = effective([name for name in refinements if name not in left_out])
        errors = error.measure(candidate.graph)
        return Gated(candidate, before, errors, applied, tuple(left_out), tuple(without_gain), share)

    for name in costly:
        last = trial((), (*best.without_gain, name))
        if not (best.errors.log_ratio_to(last.errors).is_lower or best.errors.gains(last.errors)):
            best = last
    if others:
        for name in (*others, *refinements):
            last = trial((*best.left_out, name), best.without_gain)
            is_lower = last.errors.log_ratio_to(best.errors).is_lower and not last.errors.loses(best.errors)
            if is_lower or last.errors.gains(best.errors):
                best = last
    elif not _helps(best) or best.errors.misses_task:
        trials: list[tuple[list[str], float]] = [([], _SHARE), ([BIAS], 1.0)] if BIAS in refinements else []
        if not _helps(best):
            trials += [([name], 1.0) for name in reversed(refinements) if len(refinements) > 1 and name != BIAS]
            trials.append((list(refinements), 1.0))
        for left_out, share in trials:
            last = trial(left_out, best.without_gain, share)
            if _is_better(last, best):
                best = last
            if _helps(best):
                break
    if last is not best:
        rebuild((*best.without_gain, *best.left_out))  # the float graph gets the scales of the result again
    return best


def _is_better(candidate: Gated, best: Gated) -> bool:
    """Return True if a result keeps the scores of the tasks without refinement, or has better scores or errors."""
    candidate_loses, best_loses = (item.errors.loses(item.unrefined) for item in (candidate, best))
    return best_loses if candidate_loses != best_loses else candidate.errors.is_preferred_to(best.errors)


def _helps(candidate: Gated) -> bool:
    """Return True if the refinement does not increase the error, and harms nothing."""
    return candidate.errors.loss <= candidate.unrefined.loss and not candidate.errors.harms(candidate.unrefined)
