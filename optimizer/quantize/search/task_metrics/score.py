"""Score of a task: the share of the decisions of the float network that the quantized network makes too."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from tpuconvert.schema.types import Array

TARGET = 0.95
"""Smallest score that needs no more accuracy."""

FEWEST_DECISIONS = 20
"""Smallest number of decisions for a score on which a choice depends."""

_WITHOUT_TARGET = 2.0
"""Number of standard errors of a difference that counts between scores without target."""

Vector = npt.NDArray[np.float64]
Run = Mapping[str, Array]


@dataclass(frozen=True)
class TaskScore:
    """Score of a task on samples: the ratio of two sums, from 0 to 1.

    Args:
        outputs: names of the outputs that serve the task.
        unit: what is counted, such as ``detections``.
        text: the counts, such as ``detections: 58 of 60 kept, 1 extra``.
        numerators: what is kept, by sample.
        denominators: what could be kept, by sample.
        decisions: number of decisions of the float network, and of further ones of the quantized network.
        has_target: whether the score has to reach ``TARGET``. If not, it only compares graphs.
    """

    outputs: tuple[str, ...]
    unit: str
    text: str
    numerators: Vector
    denominators: Vector
    decisions: int
    has_target: bool = True

    @property
    def share(self) -> float:
        """The score; 1 if there is nothing to decide."""
        total = float(self.denominators.sum())
        return float(self.numerators.sum()) / total if total > 0.0 else 1.0

    @property
    def counts(self) -> bool:
        """Return True if there are enough decisions for a choice."""
        return self.decisions >= FEWEST_DECISIONS

    @property
    def is_missed(self) -> bool:
        """Return True if the score is below the target, on enough decisions."""
        return self.counts and self.has_target and self.share < TARGET

    def exceeds(self, other: TaskScore) -> bool:
        """Return True if the score is higher than the score of another graph on the same samples.

        The difference has to be larger than its standard error, and than one decision. It has to be larger than
        ``_WITHOUT_TARGET`` standard errors if the decisions are not the decisions that programs make, but smaller
        responses.
        """
        decisions = max(self.decisions, other.decisions)
        if decisions < FEWEST_DECISIONS:
            return False
        errors = 1.0 if self.has_target else _WITHOUT_TARGET
        noise = max(errors * self._standard_error(other), 1.0 / decisions)
        return self.share - other.share > (1.0 + 1e-9) * noise  # one decision is no more than one

    def _standard_error(self, other: TaskScore) -> float:
        """Standard error of the difference of two ratios of sums over the same samples."""
        count = len(self.numerators)
        if count < 2:
            return math.inf
        residuals = np.zeros(count)
        for sign, score in ((1.0, self), (-1.0, other)):
            mean = float(score.denominators.mean())
            if mean > 0.0:
                residuals += sign * (score.numerators - score.share * score.denominators) / mean
        return float(residuals.std(ddof=1)) / math.sqrt(count)


class Task(Protocol):
    """Decisions that outputs of a network serve.

    Attributes:
        outputs: names of the outputs.
    """

    outputs: tuple[str, ...]

    def compare(self, runs: Sequence[Run]) -> TaskScore:
        """Compare the outputs of a quantized graph, one mapping per feed, with the outputs of the float graph."""
