"""Comparison of constants: how much their elements changed, and whether they are only rescaled."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tpuconvert.diff.network import data_digest
from tpuconvert.schema.graph.graph import Value
from tpuconvert.schema.text.plain_values import Unbounded
from tpuconvert.schema.types import Array, QuantParams

_RESCALED = 1e-6
"""Largest deviation from a rescaled constant, as a share of its largest magnitude: a few ULP of float32."""


@dataclass(frozen=True)
class ConstantDifference:
    """Difference between the elements of two constants of one shape.

    Args:
        elements: number of elements.
        different: number of elements that differ.
        max_difference: largest difference; None if an element is not finite.
        mean_difference: mean difference; None if an element is not finite.
        magnitude: largest magnitude in the first constant.
        factor: the second constant is the first times this number.
        factor_axis: the second constant is the first times a number per index of this axis.

    """

    elements: int
    different: int
    max_difference: float | None
    mean_difference: float | None
    magnitude: Unbounded
    factor: float | None
    factor_axis: int | None


def compare_data(first: Value, second: Value) -> ConstantDifference | None:
    """Compare the elements of two constants of one shape. Return None if they are equal."""
    if first.data is second.data or (first.dtype is second.dtype and data_digest(first) == data_digest(second)):
        return None
    a, b = first.array.astype(np.float64), second.array.astype(np.float64)
    with np.errstate(invalid="ignore"):
        distance = np.abs(a - b)
    distance[(a == b) | (np.isnan(a) & np.isnan(b))] = 0.0
    different = int(np.count_nonzero(distance))  # NaN counts as different
    if not different:
        return None
    finite = distance[np.isfinite(distance)]
    factor, axis = _find_factor(a, b)
    is_finite = finite.size == distance.size
    return ConstantDifference(
        elements=int(a.size),
        different=different,
        max_difference=float(finite.max()) if is_finite else None,
        mean_difference=float(finite.mean()) if is_finite else None,
        magnitude=float(np.abs(a[np.isfinite(a)]).max(initial=0.0)),
        factor=factor,
        factor_axis=axis,
    )


def is_within_one_step(first: Value, second: Value) -> bool:
    """Return True if two quantized constants represent the same values, up to one step of the coarser scale."""
    if first.quant is None or second.quant is None:
        return False
    a, b = (value.quant.dequantize(value.array) for value in (first, second) if value.quant is not None)
    steps = np.maximum(*(_steps(value.quant, a.ndim) for value in (first, second) if value.quant is not None))
    return bool((np.abs(a.astype(np.float64) - b) <= steps * (1.0 + _RESCALED)).all())


def _steps(quant: QuantParams, rank: int) -> Array:
    """Return the scales in a shape that broadcasts to a tensor."""
    shape = [-1 if axis == quant.axis else 1 for axis in range(rank)] if quant.axis is not None else [1] * rank
    return np.asarray(quant.scale, np.float64).reshape(shape)


def _find_factor(a: Array, b: Array) -> tuple[float | None, int | None]:
    """Return the factor between two arrays, or the axis along which factors differ. None if there is no such factor."""
    if not (np.isfinite(a).all() and np.isfinite(b).all()) or np.count_nonzero(a) < 2:
        return None, None
    factor = float((a * b).sum() / (a * a).sum())
    if abs(factor - 1.0) <= _RESCALED:  # rounded in another way
        return None, None
    if factor and _is_close(a * factor, b):
        return factor, None
    for axis in range(min(a.ndim, 2)):
        others = tuple(index for index in range(a.ndim) if index != axis)
        power = (a * a).sum(axis=others, keepdims=True)
        if power.size == a.size:  # one element per index: every array would fit
            continue
        factors = (a * b).sum(axis=others, keepdims=True) / np.where(power > 0.0, power, 1.0)
        if _is_close(a * factors, b) and factors.all():
            return None, axis
    return None, None


def _is_close(expected: Array, actual: Array) -> bool:
    return bool(np.abs(expected - actual).max() <= _RESCALED * np.abs(actual).max())
