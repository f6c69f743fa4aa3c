"""Choice of a few linear operators with 16-bit operands, weights and results on BM1686, by the error at the outputs.

In some networks a few cheap nodes, such as the first depthwise convolutions of MobileNetV1, cause most of the error
that rounding activations to 8 bits leaves at the outputs:

1. The error of the network at the outputs is measured with a float graph that rounds all activations
   (``float_simulation``). If it is small, no node needs 16 bits.
2. The isolated error of every candidate is measured with a float graph that rounds only the operand of that candidate.
   It is the largest part of the error that 16 bits can remove. A difference of two networks that round everything
   needs ten times as many samples, because the other errors scatter.
3. Candidates are chosen in the order of the isolated error per multiply-accumulate (MAC) while the MACs of all of them
   are within a budget. This assumes that isolated errors add up. If they exceed the error of the network, they do not,
   and no node is chosen.
4. The error with all chosen candidates is measured on other samples. It must be clearly lower.

The simulation has float weights, so that the gain from 16-bit weights is not counted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tpuconvert.optimizer.quantize.search.measuring_work import Work
from tpuconvert.optimizer.quantize.search.output_error import Errors, Feed, OutputError
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.types import Chip

_PER_NODE = 0.01
"""Share of the MACs that is added to the cost of a candidate in the ranking, for its element-wise operators."""

_SMALLEST_PART = 0.02
"""Smallest isolated error of a candidate, as a share of the error of the network."""

_CLEAR_GAIN = 0.2
"""Smallest decrease of the mean logarithm of the error by all candidates: 0.9 dB."""

_CLEAR = 2.0
"""Number of standard errors by which the mean logarithm of the error must fall with all candidates."""

_LARGEST_SUM = 1.5
"""Largest sum of all isolated errors, as a share of the error of the network. For eleven classifiers and three
detectors it was 0.7 to 1.2, for one whose output is a set of rows more than 9."""

ACCURATE = 1e-4
"""Networks keep 8 bits if the error is a smaller share of the variance of the float outputs: 40 dB. The rounded
activations of the labeled classifiers with less noise changed no class of 100 calibration samples."""

TO_RANK = 4
"""Smallest number of samples for the isolated errors."""

_MOST_TO_RANK = 16
"""Largest number of samples for the isolated errors."""

FEWEST = 2 * TO_RANK
"""Smallest number of samples for a choice: half of them confirm it."""

_TO_CONFIRM = 32
"""Largest number of samples for the error with all candidates."""

MOST_SAMPLES = _MOST_TO_RANK + _TO_CONFIRM
"""Largest number of samples for a choice."""

LEAST_WORK = 7e10
"""Smallest limit for the work of the isolated errors, and twice the limit of the confirmation: a second of one core."""

SHARE = 0.05
"""Limit for the same as a share of the work of the calibration, if this is more."""

_LEAST_IF_REQUESTED = 2e11
"""``LEAST_WORK`` if the user requests 16 bits."""

_SHARE_IF_REQUESTED = 2.0
"""``SHARE`` if the user requests 16 bits."""

_ALL = 0.999
"""Largest part of the error that isolated errors can add up to."""


@dataclass(frozen=True)
class Int16Nodes:
    """Result of the choice.

    Args:
        names: names of the chosen nodes, in execution order.
        share: their share of the MACs.
        before: error at the outputs without them.
        after: error at the outputs with them.
    """

    names: tuple[str, ...]
    share: float
    before: Errors
    after: Errors


def is_clearly_lower(errors: Errors, current: Errors) -> bool:
    """Return True if the error falls by enough for the cost of 16 bits, and the error of large values does not grow."""
    ratio = errors.log_ratio_to(current)
    return (
        ratio.mean < -max(_CLEAR_GAIN, _CLEAR * ratio.standard_error) and errors.mean_of_large <= current.mean_of_large
    )


def choose_int16_nodes(
    graph: Graph,
    shares: Mapping[str, float],
    simulate: Callable[[Collection[str]], Graph],
    isolate: Callable[[Collection[str]], Iterable[Graph]],
    feeds: Sequence[Feed],
    samples: int,
    max_share: float,
    *,
    is_requested: bool,
) -> Int16Nodes | None:
    """Choose the nodes with 16 bits.

    Args:
        graph: float graph without annotations.
        shares: share of the MACs of every candidate by its name, in execution order; at most ``max_share``.
        simulate: returns the float graph that rounds the activations, for the names of nodes with 16 bits.
        isolate: returns float graphs that round only the operand of one node, for the names of nodes.
        feeds: samples, in an order that depends on their content only; the last ones are used.
        samples: number of calibration samples, which limits the work.
        max_share: largest share of the MACs with 16 bits. Each of them costs the chip up to three MACs of 8 bits.
        is_requested: whether the user requests 16 bits. If so, accurate networks also get them, the limit of the work
            is larger, and candidates beyond it are left out. Otherwise these networks keep 8 bits.

    Returns:
        The choice; None if there are too few samples, or if no choice decreases the error clearly.
    """
    if len(feeds) < FEWEST or not shares:
        return None
    work = Work(graph, Chip.BM1686, feeds[0])
    least, share = (_LEAST_IF_REQUESTED, _SHARE_IF_REQUESTED) if is_requested else (LEAST_WORK, SHARE)
    runs = int(max(least, share * samples * work.sample) / work.sample)
    names = sorted(shares, key=lambda name: shares[name])[: runs // TO_RANK]  # stable: execution order among equals
    if not names or (len(names) < len(shares) and not is_requested):
        return None
    to_rank = min(_MOST_TO_RANK, runs // len(names), len(feeds) // 2)
    ranking = OutputError(graph, Chip.BM1686, feeds[-to_rank:])
    error = ranking.measure(simulate(()))
    if error.mean < ACCURATE * ranking.variance and not is_requested:
        return None
    ratios = (ranking.measure(isolated).log_ratio_to(error) for isolated in isolate(names))
    parts = {name: math.exp(ratio.mean) for name, ratio in zip(names, ratios, strict=True)}
    chosen = _fill(parts, shares, max_share)
    if sum(parts.values()) > _LARGEST_SUM or math.log1p(-min(_ALL, sum(parts[name] for name in chosen))) > -_CLEAR_GAIN:
        return None
    others = feeds[-to_rank - min(_TO_CONFIRM, max(TO_RANK, runs // 4)) : -to_rank]
    confirmation = OutputError(graph, Chip.BM1686, others)
    before, after = (confirmation.measure(simulate(selected)) for selected in ((), chosen))
    if not is_clearly_lower(after, before):
        return None
    in_order = tuple(name for name in shares if name in chosen)
    return Int16Nodes(in_order, sum(shares[name] for name in in_order), before, after)


def _fill(parts: Mapping[str, float], shares: Mapping[str, float], max_share: float) -> set[str]:
    """Choose candidates with a large part of the error per MAC while all of them are within the budget."""
    chosen: set[str] = set()
    left = max_share
    for name in sorted(parts, key=lambda name: -parts[name] / (shares[name] + _PER_NODE)):
        if parts[name] > _SMALLEST_PART and shares[name] <= left:
            chosen.add(name)
            left -= shares[name]
    return chosen
