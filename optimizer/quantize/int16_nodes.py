"""Choice of a few linear operators with 16-bit operands, weights and results on BM1686, by the error at the outputs.

In some networks a few cheap nodes, such as the first depthwise convolutions of MobileNetV1, cause most of the error
that rounding activations to 8 bits leaves at the outputs. Candidates are compared by a float graph that rounds the
activations (``float_simulation``) on calibration samples:

1. Each candidate is measured with those that are chosen already. They are ranked by the decrease of the error per
   multiply-accumulate (MAC).
2. In this order, candidates are added if the error falls and the MACs of all of them are within a budget.
3. This is repeated while candidates are added: they uncover the errors of others.

All of them are dropped if the error with them is not clearly lower. The simulation has float weights, so that the gain
from 16-bit weights is not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from tpuconvert.optimizer.quantize.method_search import FEWEST, LEAST, Work
from tpuconvert.optimizer.quantize.output_error import Errors, Feed, OutputError
from tpuconvert.schema.graph import Graph
from tpuconvert.schema.types import Chip

_PER_NODE = 0.01
"""Share of the MACs that is added to the cost of a candidate in the ranking, for its element-wise operators."""

_SMALLEST_GAIN = 0.1
"""Smallest decrease of the mean logarithm of the error by one candidate."""

_PROMISING = 0.02
"""Smallest such decrease in the ranking, which has fewer samples."""

_CLEAR_GAIN = 0.2
"""Smallest decrease of the mean logarithm of the error by all candidates: 0.9 dB."""

_CLEAR = 2.0
"""Number of standard errors by which the mean logarithm of the error must fall with all candidates."""

SAMPLES = 64
"""Largest number of samples for a decision. With 16 samples of MobileNetV1 0.25, the standard error of the effect of
its first depthwise convolution was eight times the effect, with 64 a third of it."""

_TO_RANK = 32
"""Largest number of samples for the ranking."""

_TRIALS = 8
"""Largest number of candidates that a round adds, one after the other."""

_ROUNDS = 3
"""Largest number of rounds."""

_LEAST_WORK = 20 * LEAST
"""Smallest limit for the work of a ranking, and for that of adding candidates: about four seconds of one core."""

_WORK = 2.0
"""Limit for both as a share of the work of the calibration, if this is more."""


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


def is_clearly_lower(found: Errors, current: Errors) -> bool:
    """Return True if the error falls by enough for the cost of 16 bits, and that of large values does not grow."""
    ratio = found.log_ratio_to(current)
    return (
        ratio.mean < -max(_CLEAR_GAIN, _CLEAR * ratio.standard_error) and found.mean_of_large <= current.mean_of_large
    )


def choose_int16_nodes(
    graph: Graph,
    shares: Mapping[str, float],
    simulate: Callable[[Collection[str]], Graph],
    feeds: Sequence[Feed],
    samples: int,
    most: float,
) -> Int16Nodes | None:
    """Choose the nodes with 16 bits.

    Args:
        graph: float graph without annotations.
        shares: share of the MACs of every candidate by its name, in execution order; at most ``most``.
        simulate: returns the float graph that rounds the activations, for the names of nodes with 16 bits.
        feeds: samples, in an order that depends on their content only; the last ones are used.
        samples: number of calibration samples, which limits the work.
        most: largest share of the MACs with 16 bits. Each of them costs the chip up to three MACs of 8 bits.

    Returns:
        The choice; None if there are too few samples, or if no choice decreases the error clearly.
    """
    if len(feeds) < FEWEST or not shares:
        return None
    work = Work(graph, Chip.BM1686, feeds[0])
    limit = max(_LEAST_WORK, _WORK * samples * work.sample)
    ranking = _count_feeds(limit / len(shares), work, _TO_RANK)
    count = int(limit / (work.candidate + ranking * work.sample))
    cheapest = sorted(shares, key=lambda name: shares[name])[:count]  # stable: execution order among equals
    to_rank = OutputError(graph, Chip.BM1686, feeds[-ranking:])
    to_add = OutputError(graph, Chip.BM1686, feeds[-_count_feeds(limit / (_TRIALS + 1), work, SAMPLES) :])
    before = after = to_add.measure(simulate(()))
    chosen: set[str] = set()
    left = most
    for _ in range(_ROUNDS):
        candidates = [name for name in cheapest if name not in chosen and shares[name] <= left]
        current = to_rank.measure(simulate(chosen))
        gains = {name: -to_rank.measure(simulate({*chosen, name})).log_ratio_to(current).mean for name in candidates}
        promising = [name for name in candidates if gains[name] > _PROMISING]
        ranked = sorted(promising, key=lambda name: -gains[name] / (shares[name] + _PER_NODE))
        known = len(chosen)
        for name in ranked[:_TRIALS]:
            if shares[name] > left:
                continue
            errors = to_add.measure(simulate({*chosen, name}))
            ratio = errors.log_ratio_to(after)
            if ratio.mean < -max(_SMALLEST_GAIN, ratio.standard_error):
                chosen.add(name)
                left -= shares[name]
                after = errors
        if len(chosen) == known:
            break
    if not chosen or not is_clearly_lower(after, before):
        return None
    return Int16Nodes(tuple(name for name in shares if name in chosen), most - left, before, after)


def _count_feeds(limit: float, work: Work, most: int) -> int:
    """Number of samples that the work for one candidate permits."""
    return max(FEWEST, min(most, int((limit - work.candidate) / work.sample)))
