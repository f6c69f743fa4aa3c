"""Top-k accuracy: the share of samples whose class is among the k highest scores."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tpuconvert.evaluation.classes import Labeled, load_classes
from tpuconvert.evaluation.metric import Metric, Sample, Setup, evaluation_metric
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.types import Array


@evaluation_metric(r"top[1-9][0-9]*")
class TopK(Metric):
    """Share of samples whose class is among the k highest scores."""

    agreement_names = ("flips",)

    def __init__(self, setup: Setup, name: str) -> None:
        super().__init__(setup, name)
        self.k = int(name.removeprefix("top"))
        port = setup.output_port()
        extents = [extent for extent in port.shape[1:] if isinstance(extent, int)]
        self.classes = math.prod(extents)
        if len(extents) < len(port.shape[1:]) or self.classes < 2:
            hint = "--scores NAME chooses another output"
            raise UsageError(f"output '{port.name}' holds no scores of classes", hint=hint)
        self.output: str = port.name
        self.right = 0
        self.samples = 0
        self.flips = 0
        self.compared = 0

    def load(self, samples: Any, labels: Any) -> Labeled:
        """Load samples with one class index each."""
        return load_classes(samples, labels, self.classes)

    def predict(self, sample: Sample) -> Array:
        """Return the scores [1, classes] as float64."""
        return sample.outputs[self.output].reshape(1, -1).astype(np.float64)

    def add(self, prediction: Array, label: Any) -> None:
        """Count the sample if its class is among the k highest scores."""
        self.right += int(ranks_of(prediction, np.array([label]))[0] < self.k)
        self.samples += 1

    def values(self) -> dict[str, float]:
        """Return the accuracy from 0 to 1."""
        return {self.name: self.right / self.samples}

    def right_samples(self) -> dict[str, int]:
        """Return the number of samples that count."""
        return {self.name: self.right}

    def compare(self, prediction: Array, reference: Array) -> None:
        """Count samples for which the class with the highest score differs. NaN never is the highest score."""
        mine, other = (np.where(np.isnan(scores), -np.inf, scores).argmax() for scores in (prediction, reference))
        self.flips += int(mine != other)
        self.compared += 1

    def agreement(self) -> dict[str, float]:
        """Return the share of samples whose predicted class differs."""
        return {"flips": self.flips / self.compared}


def ranks_of(scores: Array, labels: Array) -> Array:
    """Return the number of classes ranked before the right one, [N]. Ties are ranked by class index; NaN is last."""
    own = np.take_along_axis(scores, labels[:, np.newaxis].astype(np.int64), axis=1)
    index = np.arange(scores.shape[1])
    before = ~(scores < own) & ~((scores == own) & (index >= labels[:, np.newaxis]))
    ranks: Array = before.sum(axis=1)
    return ranks
