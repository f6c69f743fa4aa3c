"""Difference between a tensor of a model and the same tensor of its source."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tpuconvert.schema.text.plain_values import Plain, Unbounded
from tpuconvert.schema.types import Array, QuantParams

LAYER_SQNR = 20.0
"""SQNR limit in dB for a quantized tensor: noise of 1 % of the signal power. A lower SQNR is reported."""


FLOAT_TOLERANCE = 1e-4
"""Largest accepted difference of float programs, as a share of a tensor's range: from sums in another order."""

ENGINE_ERROR = 1e-6
"""Largest ignored absolute difference from another engine: the error of onnxruntime's approximate sigmoid near 0."""

SAME = "same"
"""Stage of a tensor that equals the source's."""

AS_READ = "as read"
"""Stage of a tensor that equals the source as it was read, which is known to deviate from the standard there."""

EQUAL_WORDS = {SAME: "exact", AS_READ: AS_READ}
"""Stage of a tensor without difference -> the word that replaces its SQNR in reports."""


@dataclass
class Difference(
    Plain,
    hidden=("moves",),
    added=("relative", "cosine"),
    keys={"added": "noise_added", "sqnr": "sqnr_db", "clipped_share": "clipped"},
):
    """Difference between a tensor and the source's tensor, summed over samples.

    Args:
        name: name of the tensor in the source.
        op: operator that computes the tensor in the model.
        stage: stage that introduced the difference: ``import``, ``optimize``, ``quantize`` or ``legalize``; ``same`` if
            there is no difference, or ``as read`` if there is none, but both deviate from the standard.
        reads: names of the nearest compared tensors from which the tensor is computed.
        moves: whether the operator only moves elements.
        added: noise added between the tensors in ``reads`` and this one, as a share of the power of this tensor.
        integers: number of elements that were compared as codes.
        different: number of codes that differ.
        steps: largest difference of codes, in steps of the scale.
        not_finite: number of elements that are NaN or infinite in the source or the model.

    """

    name: str
    op: str = ""
    stage: str = SAME
    reads: tuple[str, ...] = ()
    moves: bool = False
    added: Unbounded = 0.0
    max_absolute: Unbounded = 0.0
    integers: int = 0
    different: int = 0
    steps: int = 0
    not_finite: int = 0
    _outside: int = 0
    _size: int = 0
    _largest: float = 0.0
    _low: float = math.inf
    _high: float = -math.inf
    _product: float = 0.0
    _source_power: float = 0.0
    _model_power: float = 0.0
    _noise_power: float = 0.0

    def add(self, expected: Array, actual: Array, quant: QuantParams | None = None) -> None:
        """Add the comparison of one sample. Shapes are equal. ``quant`` belongs to ``actual`` if it has integers."""
        self._size += expected.size
        if quant is not None:
            self._outside += int(_outside(expected, quant))
        a, b = expected.astype(np.float64).ravel(), actual.astype(np.float64).ravel()
        same = (a == b) | (np.isnan(a) & np.isnan(b))  # infinities and NaN at the same positions are equal
        with np.errstate(invalid="ignore"):
            noise = np.where(same, 0.0, a - b)
        finite = np.isfinite(a)
        self.not_finite += int(np.count_nonzero(~(finite & np.isfinite(b))))
        if not np.isfinite(noise).all():
            self.max_absolute = self._noise_power = math.inf
            return
        a, b = np.where(finite, a, 0.0), np.where(finite, b, 0.0)
        if a.size:
            self.max_absolute = max(self.max_absolute, float(np.abs(noise).max()))
            self._low, self._high = min(self._low, float(a.min())), max(self._high, float(a.max()))
            self._largest = max(self._largest, float(np.abs(a).max()))
        self._product += float(a @ b)
        self._source_power += float(a @ a)
        self._model_power += float(b @ b)
        self._noise_power += float(noise @ noise)

    def add_steps(self, steps: Array) -> None:
        """Add the integers of one sample; ``steps`` are the distances of their codes."""
        self.integers += steps.size
        self.different += int(np.count_nonzero(steps))
        self.steps = max(self.steps, int(steps.max(initial=0)))

    @property
    def is_used(self) -> bool:
        """Return True if anything was compared."""
        return self._size > 0

    @property
    def range(self) -> float:
        """Largest minus smallest value of the source's tensor; the magnitude if it is constant."""
        return (self._high - self._low) or self._largest if self._high >= self._low else 0.0

    @property
    def relative(self) -> Unbounded:
        """Largest difference as a share of the range."""
        if self.max_absolute == 0.0:
            return 0.0
        return self.max_absolute / self.range if self.range > 0 else math.inf

    @property
    def cosine(self) -> Unbounded:
        """Cosine similarity; 1 for two tensors of zeros, NaN without a finite element."""
        if self.not_finite and self.not_finite == self._size:
            return math.nan
        if math.isinf(self._noise_power):
            return 0.0
        norm = math.sqrt(self._source_power) * math.sqrt(self._model_power)
        if norm == 0.0:
            return 1.0 if self._noise_power == 0.0 else 0.0
        return max(-1.0, min(1.0, self._product / norm))

    @property
    def sqnr(self) -> Unbounded:
        """Power of the source's tensor over the power of the difference, in decibel; infinite for no difference."""
        if self._noise_power == 0.0:
            return math.inf
        if self._source_power == 0.0 or math.isinf(self._noise_power):
            return -math.inf
        return 10.0 * math.log10(self._source_power / self._noise_power)

    @property
    def noise(self) -> float:
        """Power of the difference as a share of the power of the source's tensor."""
        if self._noise_power == 0.0:
            return 0.0
        return self._noise_power / self._source_power if self._source_power > 0.0 else math.inf

    @property
    def clipped_share(self) -> Unbounded:
        """Share of the source's values that are outside the range of the model's integers."""
        return self._outside / self._size if self._size else 0.0


def _outside(real: Array, quant: QuantParams) -> int:
    """Number of values that clip by more than half a quantization step."""
    shape = [-1 if index == quant.axis else 1 for index in range(real.ndim)] if quant.axis is not None else ()
    scale = np.asarray(quant.scale).reshape(shape)
    zero = np.asarray(quant.zero_point, np.float64).reshape(shape)
    low, high = (quant.dtype.min - zero - 0.5) * scale, (quant.dtype.max - zero + 0.5) * scale
    return int(np.count_nonzero((real < low) | (real > high)))
