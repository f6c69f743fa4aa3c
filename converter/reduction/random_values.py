"""Random values in place of the constants of a model."""

from __future__ import annotations

import numpy as np

from tpuconvert.schema.types import Array

FEW = 16
"""Integers of constants with at most this size are shapes, axes or indices rather than weights."""


def random_like(array: Array, generator: np.random.Generator) -> Array:
    """Return random values of the same type, shape and range, and with the same share of zeros and signs.

    Nonzero floats are drawn from a normal distribution with the mean and the deviation of the magnitudes, within their
    range; integers are drawn uniformly from their range.
    """
    if array.dtype.kind != "f":
        return generator.integers(array.min(), array.max(), array.shape, array.dtype, endpoint=True)
    sign = generator.permutation(np.sign(array).reshape(-1)).reshape(array.shape)
    magnitudes = np.abs(array[np.isfinite(array) & (array != 0)].astype(np.float64))
    if not magnitudes.size:
        return array.copy()
    drawn = generator.normal(magnitudes.mean(), magnitudes.std(), array.shape)
    low, high = _limits(array, sign, magnitudes)
    values = np.clip(np.abs(drawn), low, high) * np.nan_to_num(sign)
    return np.where(np.isfinite(array), values, array).astype(array.dtype)


def _limits(array: Array, sign: Array, magnitudes: Array) -> tuple[float, Array]:
    """Smallest and largest magnitude; the largest depends on the sign, so that the range is kept."""
    finite = array[np.isfinite(array)].astype(np.float64)
    return float(magnitudes.min()), np.where(sign < 0, -float(finite.min()), float(finite.max()))
