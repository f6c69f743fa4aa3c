"""The observer of a calibration: collectors of all float values."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from tpuconvert.optimizer.quantize.calibration.recorded_floats import RecordedFloats
from tpuconvert.optimizer.quantize.ranges.calibrators import Collector, collector
from tpuconvert.optimizer.quantize.ranges.ranges import RangeCollector
from tpuconvert.runtime.native.statistics.channel_statistics import TensorStatistics
from tpuconvert.runtime.native.statistics.observers import StatisticsObserver
from tpuconvert.schema.graph.graph import Value
from tpuconvert.schema.types import Array

_RUNS = 16
"""Number of batches after which the statistics that the engine has collected are added. The statistics of one sample
have 0.8 MB for ResNet50."""


class Collecting(StatisticsObserver):
    """Collectors of float values, and a record of some of them.

    Args:
        method_of: method by name of the value.
        keeps: see ``calibration.collect``.
        floats: see ``calibration.collect``.
        feed: number of the first batch there.

    Attributes:
        collectors: by name of the value, in the order in which the values are computed.
        samples: number of samples in the batch that runs.
    """

    def __init__(
        self, method_of: Callable[[str], str], keeps: Collection[str], floats: RecordedFloats | None, feed: int
    ) -> None:
        self.collectors: dict[str, Collector] = {}
        self.samples = 1
        self.feed = feed
        self._method_of, self._keeps, self._floats = method_of, keeps, floats
        self._runs = 0

    def __call__(self, value: Value, array: Array) -> None:
        """Add an array of a float value."""
        if not self.takes(value):
            return
        existing = self._collector(value)
        if isinstance(existing, RangeCollector):
            existing.add(array, self.samples)
        else:
            existing.add(np.array(array, order="C"))  # collectors of plugins may keep the array
        if self._floats is not None:
            self._floats.observe(self.feed, value.name, array)

    @property
    def key(self) -> tuple[int, bool]:
        """Number of samples in the batch, and whether it is recorded."""
        return self.samples, self._is_recording

    def takes(self, value: Value) -> bool:
        """Return True for float values."""
        return value.dtype.is_float

    def statistics(self, value: Value, location: Any, array: Array) -> TensorStatistics | None:
        """Return the statistics of a value that is neither recorded nor collected by a plugin."""
        existing = self._collector(value)
        is_recorded = self._is_recording and self._floats is not None and self._floats.takes(value.name)
        if is_recorded or not isinstance(existing, RangeCollector):
            return None
        return existing.collecting(location, array, self.samples)

    def end_feed(self) -> None:
        """Go on to the next batch."""
        self.feed += 1
        self._runs += 1
        if self._runs % _RUNS == 0:
            for item in self.collectors.values():
                if isinstance(item, RangeCollector):
                    item.update()

    def release(self) -> None:
        """Add what the engine has collected."""
        for item in self.collectors.values():
            if isinstance(item, RangeCollector):
                item.release()

    @property
    def _is_recording(self) -> bool:
        return self._floats is not None and self._floats.is_recording(self.feed)

    def _collector(self, value: Value) -> Collector:
        existing = self.collectors.get(value.name)
        if existing is None:
            method, keeps = self._method_of(value.name), value.name in self._keeps
            existing = self.collectors[value.name] = collector(method, keeps_histogram=keeps)
        return existing
