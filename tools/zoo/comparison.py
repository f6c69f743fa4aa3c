"""Comparison of the outputs of a model with the outputs of another engine."""

import numpy as np

from tools.zoo.files import Array


class DifferentError(Exception):
    """The outputs of the float model differ from the outputs of the source."""


class Comparison:
    """Comparison of one output with ONNX Runtime's, over all samples."""

    def __init__(self) -> None:
        self._expected: list[Array] = []
        self._actual: list[Array] = []

    def add(self, expected: Array, actual: Array) -> None:
        """Add the output of one run.

        Raises:
            DifferentError: the shapes differ.
        """
        if expected.shape != actual.shape:
            raise DifferentError(f"an output has shape {actual.shape}, ONNX Runtime gives {expected.shape}")
        self._expected.append(expected.astype(np.float64).ravel())
        self._actual.append(actual.astype(np.float64).ravel())

    @property
    def _pair(self) -> tuple[Array, Array]:
        return np.concatenate(self._expected), np.concatenate(self._actual)

    @property
    def relative(self) -> float:
        """Largest difference as a share of the range."""
        a, b = self._pair
        extent = float(np.ptp(a)) or float(np.abs(a).max()) or 1.0
        return float(np.abs(a - b).max()) / extent

    @property
    def cosine(self) -> float:
        """Cosine similarity."""
        a, b = self._pair
        size = float(np.linalg.norm(a) * np.linalg.norm(b))
        return float(a @ b) / size if size else float(np.array_equal(a, b))

    @property
    def centered(self) -> float | None:
        """Cosine similarity of the deviations from each element's mean over the runs of the first batch size.

        Elements that are equal in all samples add nothing to it, unlike to the cosine similarity. None if all outputs
        of the source are equal.
        """
        count = sum(array.shape == self._expected[0].shape for array in self._expected)
        a, b = (np.stack(arrays[:count]) for arrays in (self._expected, self._actual))
        a, b = a - a.mean(0), b - b.mean(0)
        if not a.any():
            return None
        size = float(np.linalg.norm(a) * np.linalg.norm(b))
        return float((a * b).sum()) / size if size else 0.0

    @property
    def sqnr(self) -> float:
        """Signal-to-quantization-noise ratio in dB, at most 200. The signal power is computed without the mean."""
        a, b = self._pair
        noise = float(np.square(a - b).mean())
        signal_power = float(np.var(a)) or float(np.square(a).mean())
        return min(200.0, 10.0 * float(np.log10(max(signal_power, 1e-300) / max(noise, 1e-300))))
