"""The first samples of a calibration, with which refinement runs, and the means of the float tensors on them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping

import numpy as np

from tpuconvert.optimizer.quantize.calibration.recorded_floats import RecordedFloats
from tpuconvert.optimizer.quantize.ranges.calibrators import Collector
from tpuconvert.optimizer.quantize.ranges.ranges import RangeCollector, samples_in
from tpuconvert.schema.types import Array

_FEWEST_FEEDS = 8
"""Minimum number of feeds, if there are as many: axis 0 of an input may be time steps instead of samples."""


class FirstSamples:
    """Selection of the first feeds.

    Args:
        max_samples: maximum number of samples, in whole feeds. Eight feeds are used even if they have more samples.
    """

    def __init__(self, max_samples: int) -> None:
        self._max_samples = max_samples
        self._samples = self._feeds = 0

    def accepts(self, feed: Mapping[str, Array]) -> bool:
        """Return True if the next feed is one of the first."""
        self._samples += samples_in(feed)
        if self._samples > self._max_samples and self._feeds >= min(_FEWEST_FEEDS, self._max_samples):
            return False
        self._feeds += 1
        return True


class FirstMeans:
    """Means per channel (axis 1) of the float tensors over the first samples, recorded during a calibration.

    Args:
        max_samples: as for ``FirstSamples``.
        floats: records other float tensors of the calibration.

    Attributes:
        by_name: the means by name of the value. Values that are not all finite have no entry.
    """

    def __init__(self, max_samples: int, floats: RecordedFloats | None = None) -> None:
        self.floats = floats
        self.by_name: dict[str, Array] = {}
        self._max_samples = max_samples
        self._first = FirstSamples(max_samples)
        self._is_complete = False

    def count(self, feeds: Iterable[Mapping[str, Array]]) -> int:
        """Number of feeds that are the first samples."""
        first = FirstSamples(self._max_samples)
        return sum(1 for _ in itertools.takewhile(first.accepts, feeds))

    def before(self, feed: Mapping[str, Array], collectors: Mapping[str, Collector]) -> None:
        """Record the means before a feed that is not one of the first."""
        if not self._is_complete and not self._first.accepts(feed):
            self.record(collectors)

    def record(self, collectors: Mapping[str, Collector]) -> None:
        """Record the means of everything collected until now, unless they are recorded."""
        if self._is_complete:
            return
        self._is_complete = True
        for name, collector in collectors.items():
            channels = collector.channels() if isinstance(collector, RangeCollector) else None
            if channels is not None:
                self.by_name[name] = np.asarray(channels.mean)
