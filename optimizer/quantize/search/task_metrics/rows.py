"""Outputs of a network as rows [samples, positions, channels]."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tpuconvert.optimizer.quantize.search.task_metrics.score import Run
from tpuconvert.schema.types import Array


@dataclass(frozen=True)
class Columns:
    """Consecutive channels of an output.

    Args:
        output: name of the output.
        axis: axis of the channels; None if there is one channel without axis.
        first: the first channel.
        last: the channel after the last one.
        samples: axis of the samples; None if every run has one sample.
    """

    output: str
    axis: int | None
    first: int
    last: int
    samples: int | None = 0

    def read(self, run: Run) -> Array:
        """Return the channels as [samples, positions, channels]. NaN becomes the lowest number."""
        array = run[self.output]
        array = array[..., np.newaxis] if self.axis is None else np.moveaxis(array, self.axis, -1)
        array = array[..., self.first : self.last]
        if self.samples is None:
            array = array[np.newaxis]
        elif self.samples:
            array = np.moveaxis(array, self.samples - (self.axis is not None and self.samples > self.axis), 0)
        result: Array = np.nan_to_num(array.reshape(len(array), -1, self.last - self.first), nan=-np.inf)
        return result
