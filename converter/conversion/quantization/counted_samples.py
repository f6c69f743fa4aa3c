"""Statistics of the samples that a calibration has counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tpuconvert.optimizer.quantize.calibration.calibration import merge_collectors
from tpuconvert.optimizer.quantize.ranges.calibrators import Collector, MergeableCollector
from tpuconvert.samples.sample_statistics import SampleStatistics
from tpuconvert.schema.graph.graph import Port


@dataclass(frozen=True)
class Part:
    """Consecutive batches that were counted.

    Args:
        start: first batch.
        end: one more than the last batch.
        statistics: of these samples.
    """

    start: int
    end: int
    statistics: SampleStatistics


@dataclass(frozen=True)
class Counted:
    """Statistics of some of the batches. An object does not change.

    Args:
        first: collectors of the first samples, with which refinement runs.
        others: collectors of the other samples.
        parts: the batches, in ascending order. Adjacent parts are joined.
    """

    first: Mapping[str, Collector] = field(default_factory=dict)
    others: Mapping[str, Collector] = field(default_factory=dict)
    parts: Sequence[Part] = ()

    def with_part(self, part: Part, collectors: Mapping[str, Collector], ports: Sequence[Port], first: int) -> Counted:
        """Return the statistics merged with the statistics of further batches.

        Args:
            part: batches of which none is counted.
            collectors: of these batches; they are changed.
            ports: the model's inputs.
            first: number of batches that are first samples. A part has either first samples or others.
        """
        parts = _joined(sorted([*self.parts, part], key=lambda item: item.start), ports)
        if part.start < first:
            return Counted(_merged(self.first, collectors), self.others, parts)
        return Counted(self.first, _merged(self.others, collectors), parts)

    def collectors(self) -> Mapping[str, Collector]:
        """Return the collectors of all samples."""
        return merge_collectors([self.others, self.first]) if self.first else self.others


def _merged(earlier: Mapping[str, Collector], later: Mapping[str, Collector]) -> Mapping[str, Collector]:
    """Merge known collectors into new ones, in the order of the known ones."""
    for name, item in later.items():
        if name in earlier:
            assert isinstance(item, MergeableCollector), "check_mergeable accepted the method"
            item.merge(earlier[name])
    return {**earlier, **later}


def _joined(parts: Sequence[Part], ports: Sequence[Port]) -> Sequence[Part]:
    """Join adjacent parts. The given ones are not changed."""
    joined: list[Part] = []
    for part in parts:
        if joined and joined[-1].end == part.start:
            statistics = SampleStatistics(ports)
            statistics.extend(joined[-1].statistics)
            statistics.extend(part.statistics)
            joined[-1] = Part(joined[-1].start, part.end, statistics)
        else:
            joined.append(part)
    return tuple(joined)
