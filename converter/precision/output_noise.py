"""Error at the outputs of a network, over samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.text.plain_values import Plain, Unbounded
from tpuconvert.schema.types import Array


@dataclass(frozen=True)
class OutputNoise(Plain, keys={"sqnr": "sqnr_db"}):
    """Error at the outputs of a network.

    Args:
        noise: power of the difference as a share of the power of the float output, averaged over the outputs.
        cosine: smallest cosine similarity of an output.
        flips: share of the samples whose highest score has another class; None if no output has scores of classes.

    """

    noise: Unbounded
    cosine: Unbounded
    flips: float | None

    @property
    def sqnr(self) -> Unbounded:
        """Signal-to-quantization-noise ratio in decibel; infinite without noise."""
        return to_decibel(self.noise)


def to_decibel(noise: float) -> float:
    """Convert a share of noise to an SQNR in decibel."""
    if noise == 0.0:
        return math.inf
    return -10.0 * math.log10(noise) if math.isfinite(noise) else -math.inf


@dataclass
class Powers:
    """Powers of a tensor of the float network, of its counterpart and of their difference, and the inner product."""

    expected: float = 0.0
    actual: float = 0.0
    noise: float = 0.0
    product: float = 0.0

    def add(self, expected: Array, actual: Array) -> None:
        """Add one feed. Equal infinities and NaN at the same positions do not count as a difference."""
        a, b = expected.astype(np.float64).ravel(), actual.astype(np.float64).ravel()
        noise = a - b
        if not np.isfinite(noise).all():
            same = (a == b) | (np.isnan(a) & np.isnan(b))
            both = np.isfinite(a) & np.isfinite(b)
            noise = np.where(both, noise, np.where(same, 0.0, np.inf))
            a, b = np.where(both, a, 0.0), np.where(both, b, 0.0)
        self.expected += float(a @ a)
        self.actual += float(b @ b)
        self.noise += float(noise @ noise)
        self.product += float(a @ b)

    @property
    def share(self) -> float:
        """Power of the difference as a share of the power of the float tensor."""
        if self.noise == 0.0:
            return 0.0
        return self.noise / self.expected if self.expected > 0.0 else math.inf

    @property
    def cosine(self) -> float:
        """Cosine similarity; 1 for two tensors of zeros, 0 if an element is infinite or NaN in one of them only."""
        if math.isinf(self.noise):
            return 0.0
        norm = math.sqrt(self.expected) * math.sqrt(self.actual)
        return max(-1.0, min(1.0, self.product / norm)) if norm > 0.0 else float(self.noise == 0.0)


class NoiseSum:
    """Differences between the outputs and the outputs of the float network, summed over samples.

    Args:
        graph: the float network. The first output with one score per class, if there is one, belongs to a classifier.

    """

    def __init__(self, graph: Graph) -> None:
        self._outputs = [Powers() for _ in graph.outputs]
        scores = (index for index, value in enumerate(graph.outputs) if has_classes(value))
        self._scores = next(scores, None)
        self._flips = 0
        self._samples = 0

    def add(self, expected: Sequence[Array], actual: Sequence[Array]) -> None:
        """Add the outputs for one feed."""
        for powers, a, b in zip(self._outputs, expected, actual, strict=True):
            powers.add(a, b)
        if self._scores is not None:
            scores = expected[self._scores], actual[self._scores]
            classes = [array.reshape(len(array), -1).argmax(axis=1) for array in scores]
            self._flips += int(np.count_nonzero(classes[0] != classes[1]))
            self._samples += len(classes[0])

    def result(self) -> OutputNoise:
        """Return the error over all samples."""
        noise = sum(powers.share for powers in self._outputs) / len(self._outputs)
        cosine = min(powers.cosine for powers in self._outputs)
        return OutputNoise(noise, cosine, self._flips / self._samples if self._samples else None)


def has_classes(value: Value) -> bool:
    """Return True if one axis besides the batch has several elements."""
    return value.dtype.is_float and value.rank >= 2 and sum(extent != 1 for extent in value.shape[1:]) == 1
