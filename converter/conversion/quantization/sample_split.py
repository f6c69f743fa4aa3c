"""Which calibration samples change weights, compare candidates and measure the finished model.

The ranges of the tensors come from all samples. The refinement takes the first samples, algorithms that compare
candidates *judge* them on the last ones, and the accuracy of the finished model is measured between both, on samples on
which nothing but the ranges was chosen. With too few samples for that, all of them serve every purpose.
"""

from __future__ import annotations

from dataclasses import dataclass

from tpuconvert.optimizer.quantize.ranges.ranges import samples_in
from tpuconvert.optimizer.quantize.search.deciding import SAMPLES as DECISION_SAMPLES
from tpuconvert.optimizer.quantize.search.measuring_work import affordable_feeds
from tpuconvert.optimizer.quantize.search.output_error import count_held_out
from tpuconvert.samples.calibration_data import FeedSource
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.types import Chip

_FEWEST_HELD_OUT = 4
"""Smallest number of held-out feeds. With fewer, the last feeds are measured although they were used."""


@dataclass(frozen=True)
class SampleSplit:
    """Numbers of the feeds for two purposes.

    Args:
        judged: those on which candidates are compared.
        measured: those on which the accuracy of the finished model is measured.
        are_held_out: whether nothing but the ranges was chosen on ``measured``.
    """

    judged: range
    measured: range
    are_held_out: bool

    def searched(self, feeds: FeedSource) -> FeedSource:
        """Return the samples on which a choice may depend: all of them, or all but the held-out ones."""
        return feeds.without(self.measured) if self.are_held_out else feeds


NO_SAMPLES = SampleSplit(range(0), range(0), are_held_out=False)


def split_feeds(graph: Graph, chip: Chip, feeds: FeedSource, refinement_samples: int) -> SampleSplit:
    """Choose the calibration feeds that compare candidates, and those that measure the finished model.

    Args:
        graph: the float graph.
        chip: the target.
        feeds: the calibration samples, in the order in which the algorithms take them.
        refinement_samples: largest number of samples that change weights; 0 if none does.
    """
    count = len(feeds)
    sample = next(iter(feeds))
    affordable = affordable_feeds(graph, chip, sample)
    first = max(DECISION_SAMPLES, -(-refinement_samples // samples_in(sample)))
    searched = count_held_out(count)
    if count - searched - first < _FEWEST_HELD_OUT:
        every = range(max(0, count - affordable), count)
        return SampleSplit(every, every, are_held_out=False)
    judged = min(affordable, max(searched, (count - first) // 2))
    last = count - max(judged, searched)
    return SampleSplit(range(count - judged, count), range(max(first, last - affordable), last), are_held_out=True)
