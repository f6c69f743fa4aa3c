"""Correction of weights for the errors of their operand.

The operand of a linear operator in an integer graph differs from the float operand by the errors of all nodes before it
(``drift``). A part of the drift is a linear function of the operand: channels that are systematically too small, or
leak into each other. Weights can compensate for this part. With the float weights W, the integer operand q and the
float operand q + d in the same units, the correction D minimizes the mean squared error of ``W (q + d) - (W + D) q``:
``D = W cov(d, q) cov(q, q)^-1``.

A correction that fits few samples may be worse on others. It is computed on two halves of the samples and measured on
the other half each: the error there is a quadratic function of the share of D that is applied, and the share with the
smallest error is used. It is 0 if the correction does not reduce the error on unseen samples.

Source: Li et al., GPTAQ: Efficient Finetuning-Free Quantization for Asymmetric Calibration (2025), section 4; the share
and the damping are of this package.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tpuconvert.optimizer.quantize.weights.weight_rounding import Float64, InputSums
from tpuconvert.schema.types import Array

FRACTION = 16
"""Unit of the drift: 1/16 of a step of the operand. Sums of integers are exact for every split of the samples."""

_MOST_DRIFT = 127
"""Largest magnitude of the drift in its units, about 8 steps: it is stored in a byte. Larger ones are saturated."""

_DAMPING = 0.1
"""Fraction of the mean variance that is added to all variances. Chosen on calibration images."""

MOST_INPUTS = 640
"""Largest number of inputs per result of an operator that is corrected: the time grows with its cube."""


@dataclass
class DriftSums:
    """Sums over observations of the integer inputs q of a linear operator and of their drift d, exact in binary64.

    Args:
        squares: sums of ``q[i] * q[j]``, [groups, inputs, inputs].
        products: sums of ``d[i] * q[j]``.
        totals: sums of q, [groups, inputs].
        drifts: sums of d.
        count: number of observations.
    """

    squares: Float64
    products: Float64
    totals: Float64
    drifts: Float64
    count: int

    @staticmethod
    def of(inputs: Array, drift: Array) -> DriftSums:
        """Add observations, [groups, observations, inputs] each, bytes."""
        # One product of both: the drift gets the type of the inputs.
        width, offset = inputs.shape[2], 128 if inputs.dtype == np.uint8 else 0
        shifted = (drift.astype(np.int16) + offset).astype(inputs.dtype)
        both = np.concatenate([inputs.swapaxes(1, 2), shifted.swapaxes(1, 2)], axis=1)
        sums = InputSums.of(both.swapaxes(1, 2))
        squares, crossed = (
            np.asarray(sums.products[:, rows, :width], np.float64) for rows in (slice(width), slice(width, None))
        )
        totals, own = (np.asarray(part, np.float64) for part in np.split(sums.totals, [width], axis=1))
        crossed -= offset * totals[:, np.newaxis]
        return DriftSums(squares, crossed, totals, own - offset * sums.count, sums.count)

    def merged(self, other: DriftSums) -> DriftSums:
        """Sums over the observations of both."""
        return DriftSums(
            self.squares + other.squares,
            self.products + other.products,
            self.totals + other.totals,
            self.drifts + other.drifts,
            self.count + other.count,
        )

    def covariances(self) -> tuple[Float64, Float64]:
        """Return cov(q, q), and cov(d, q) in steps of the operand."""
        mean, drift = self.totals / self.count, self.drifts / self.count
        own = self.squares / self.count - mean[:, :, None] * mean[:, None, :]
        cross = self.products / self.count - drift[:, :, None] * mean[:, None, :]
        return own, cross / FRACTION


def drift_of(exact: Array, integers: Array) -> Array:
    """Return the drift of an operand in units of ``1 / FRACTION`` steps, INT8.

    Args:
        exact: float operand divided by its scale.
        integers: integer operand with zero point 0.
    """
    difference: Array = exact - integers
    difference *= FRACTION
    np.rint(difference, out=difference)
    return np.clip(difference, -_MOST_DRIFT, _MOST_DRIFT, out=difference).astype(np.int8)


def correct_weights(exact: Float64, halves: Mapping[int, DriftSums]) -> Float64:
    """Return weights that compensate for the linear part of the drift of their operand.

    Args:
        exact: float weights divided by their scales, [groups, outputs, inputs].
        halves: sums over two halves of the samples; without both of them, the weights are returned as they are.
    """
    if len(halves) < 2:
        return exact
    first, second = halves[0], halves[1]
    # The correction is a product of the weights with a matrix. With more outputs than inputs, the matrix costs less.
    squares = exact.swapaxes(1, 2) @ exact if exact.shape[1] > exact.shape[2] else None
    weights = exact if squares is None else None
    share = max(0.0, min(1.0, _best_share(_Fit.of(weights, first), _Fit.of(weights, second), squares)))
    if share == 0:
        return exact
    change = _Fit.of(weights, first.merged(second)).change
    return exact + share * (change if squares is None else exact @ change)


class _Fit(NamedTuple):
    """Correction computed on some samples.

    Args:
        own: cov(q, q).
        cross: product of the weights and cov(d, q), or cov(d, q) alone.
        change: ``cross`` times the inverse of the damped ``own``.
    """

    own: Float64
    cross: Float64
    change: Float64

    @staticmethod
    def of(weights: Float64 | None, sums: DriftSums) -> _Fit:
        """Compute the correction of weights [groups, outputs, inputs], or the matrix to multiply them with."""
        own, cross = sums.covariances()
        if weights is not None:
            cross = weights @ cross
        diagonal, damped = np.arange(own.shape[1]), own.copy()
        damped[:, diagonal, diagonal] += (_DAMPING * own[:, diagonal, diagonal].mean(axis=1) + 1e-12)[:, None]
        solved = np.linalg.solve(damped, cross.swapaxes(1, 2)).swapaxes(1, 2)
        return _Fit(own, cross, np.asarray(solved, np.float64))


def _best_share(first: _Fit, second: _Fit, squares: Float64 | None) -> float:
    """Share of the correction with the smallest error on the half of the samples that it was not computed on.

    ``squares`` is W' W for the weights W, if the corrections are matrices to multiply them with.
    """
    linear = square = 0.0
    for fitted, unseen in ((first, second), (second, first)):
        weighted = fitted.change if squares is None else squares @ fitted.change
        linear += float(np.sum(unseen.cross * weighted))
        square += float(np.sum((weighted @ unseen.own) * fitted.change))
    return linear / square if square > 0 else 0.0
