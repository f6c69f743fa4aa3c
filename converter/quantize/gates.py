"""Algorithms of a quantization that stay only where they reduce the error at the outputs.

The algorithms choose constants by models of the error: the error of one operator, on the samples that they were fitted
on. Whether this helps the network is measured on the last calibration samples, which the refinement does not use if
there are more than it takes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from tpuconvert.optimizer.quantize import Legalized
from tpuconvert.optimizer.quantize.output_error import Errors, OutputError, count_held_out
from tpuconvert.options import REFINEMENT_NEEDS
from tpuconvert.samples.calibration_data import FeedSource

STRUCTURAL = ("channel-scales", "two-term-weights")
"""Algorithms that the refinement depends on. Others measure the error at the outputs themselves."""

_MOST = 8
"""Maximum number of feeds on which the error is measured."""

Build = Callable[[Collection[str]], Legalized]
"""Returns the integer graph without some algorithms."""

Refine = Callable[[Legalized, Collection[str]], None]
"""Applies the refinement without some algorithms, in place."""


@dataclass(frozen=True)
class Gated:
    """Result of the measurements.

    Args:
        legalized: the integer graph.
        unrefined: errors before the refinement.
        errors: errors of the integer graph.
        applied: names of the algorithms that the graph was built with.
        left_out: names of the algorithms without which the error is smaller.
    """

    legalized: Legalized
    unrefined: Errors
    errors: Errors
    applied: tuple[str, ...]
    left_out: tuple[str, ...] = ()

    def describe(self) -> str:
        """Text for the summary."""
        count = len(self.errors.samples)
        text = f"error at the outputs on {count} samples: SQNR {self.unrefined.sqnr:.1f} dB without refinement"
        if self.applied:
            text += f", {self.errors.sqnr:.1f} dB with {', '.join(self.applied)}"
        if self.left_out:
            text += f"; left out, because the error is smaller without: {', '.join(self.left_out)}"
        return text


def effective(names: Sequence[str]) -> tuple[str, ...]:
    """Return the algorithms of the refinement without those that need one that is not in ``names``."""
    return tuple(name for name in names if REFINEMENT_NEEDS.get(name, name) in names)


def last_feeds(feeds: FeedSource) -> FeedSource:
    """Return the samples on which the error is measured: the last ones, at most a quarter and at most 8."""
    count = len(feeds)
    return feeds.part(count - min(_MOST, count_held_out(count)), count)


def gate_algorithms(
    legalized: Legalized,
    rebuild: Build,
    refine: Refine,
    error: OutputError,
    refinements: Sequence[str],
    others: Sequence[str] = (),
) -> Gated:
    """Refine an integer graph, and leave out algorithms without which its error is smaller.

    Args:
        legalized: the integer graph before the refinement, with all algorithms.
        rebuild: builds it again.
        refine: refines a graph.
        error: measures the error at the outputs.
        refinements: algorithms of the refinement. If all of them together do not reduce the error, each one is left out
            in turn, then all.
        others: other algorithms. They and the refinements are left out in turn, even if the refinement reduces the
            error. A difference counts if it is larger than its standard error.
    """
    unrefined = error.measure(legalized.graph)
    refine(legalized, ())
    best = Gated(legalized, unrefined, error.measure(legalized.graph), tuple(refinements))
    last = best

    def trial(left_out: Sequence[str]) -> Gated:
        candidate = rebuild(left_out)
        refine(candidate, left_out)
        applied = effective([name for name in refinements if name not in left_out])
        return Gated(candidate, unrefined, error.measure(candidate.graph), applied, tuple(left_out))

    if others:
        for name in (*others, *refinements):
            last = trial((*best.left_out, name))
            if last.errors.log_ratio_to(best.errors).is_lower:
                best = last
    elif best.errors.mean > unrefined.mean:
        for left_out in [*([name] for name in refinements if len(refinements) > 1), list(refinements)]:
            last = trial(left_out)
            if last.errors.mean < best.errors.mean:
                best = last
    if last is not best:
        rebuild(best.left_out)  # the float graph gets the scales of the result again
    return best
