"""Rounding of the weights of a linear operator so that their errors cancel in its result.

Rounding every weight to the nearest integer is best only where inputs are independent. Neighboring pixels and channels
are correlated: other weights can compensate for the error of one weight. Weights are rounded one input at a time, and
the error of each is distributed over the remaining inputs by their covariance with it.

Source: Frantar et al., GPTQ (2022), section 3, after Hassibi and Stork, Optimal Brain Surgeon (1993).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tpuconvert.runtime.native.statistics.byte_statistics import MOST_OBSERVATIONS, multiply_inputs
from tpuconvert.runtime.native.statistics.weight_rounding import round_weights
from tpuconvert.schema.ops.convolution.convolution_params import SpatialConvolution
from tpuconvert.schema.types import Array

Float64 = npt.NDArray[np.float64]

MOST_INPUTS = 2400
"""Maximum number of inputs per result; weights with more inputs are rounded to nearest. The covariance grows with the
square of this number, the time to factor it with the cube."""

_LIMIT = 127.0
_DAMPING = 0.01
"""Fraction of the mean variance that is added to all variances, because few samples leave the covariance singular."""

_SHRINKAGE, _MOST_SHRINKAGE = 0.2, 0.1
"""Products of different inputs are multiplied by 1 minus the first number times inputs per observation, at most the
second: the mean of few observations overestimates how much inputs have in common. With 6144 observations of a decoder
with 135 million weights, this lowers the squared error on other text by 2% for 576 inputs, by 7% for 1536."""

_BLOCK = 8
"""Number of inputs whose errors are compensated one by one; a matrix product compensates those for more inputs."""

_PART = 1 << 17
"""Number of elements of a covariance that are computed together, in the L2 cache."""


def round_with_compensation(exact: Float64, covariance: Array) -> npt.NDArray[np.int8]:
    """Round weights to integers within -127..127.

    With a covariance L L' and errors d of the weights, the mean squared error of the result is the sum over i of
    ``(L[i, i] * (d[i] + sum over j > i of L[j, i] / L[i, i] * d[j])) ** 2``. Weights are rounded from the last to the
    first, each one so that its term is smallest. This is the rounding of GPTQ without the inverse of the covariance.

    Args:
        exact: float weights divided by their scales, [groups, outputs, inputs].
        covariance: covariance of the inputs, [groups, inputs, inputs].

    Returns:
        INT8, of the shape of ``exact``.
    """
    variance = np.diagonal(covariance, axis1=1, axis2=2).copy()
    # Inputs with the largest variance are rounded first: their errors cost most, and most other inputs can compensate
    # for them.
    order = np.argsort(-variance.sum(axis=0), kind="stable")[::-1]
    damping = _DAMPING * variance.mean(axis=1) + 1e-12
    # One row per input, so that the weights of an input are contiguous.
    target = np.ascontiguousarray(exact.swapaxes(1, 2)[:, order])
    rounded = round_weights(_damped(covariance, order, damping), target, _LIMIT, overwrite_covariance=True)
    if rounded is None:
        rounded = _round(_damped(covariance, order, damping), target)
    result = np.empty(rounded.shape, np.int8)
    result[:, order] = rounded
    return np.ascontiguousarray(result.swapaxes(1, 2))


def _damped(covariance: Array, order: npt.NDArray[np.int64], damping: Array) -> Array:
    """Copy a covariance with its inputs in another order, and add one number per group to the variances."""
    damped = np.empty(covariance.shape, covariance.dtype)
    step = max(1, _PART // covariance[0, :1].size)
    for start in range(0, len(order), step):
        rows = slice(start, start + step)
        # Two copies are faster than one with two arrays of indices.
        damped[:, rows] = covariance.take(order[rows], axis=1).take(order, axis=2)
    diagonal = np.arange(len(order))
    damped[:, diagonal, diagonal] += damping[:, None]
    return damped


class Grid(NamedTuple):
    """Values that weights may have: ``scale * i`` for integers i from ``low`` to ``high``, all [inputs, outputs]."""

    scale: Array
    low: Array
    high: Array

    def round_input(self, index: int, values: Array, out: Array) -> None:
        """Round the weights of one input, [groups, outputs], to the nearest values."""
        scale = self.scale[index]
        np.clip(np.rint(np.divide(values, scale, out=out), out=out), self.low[index], self.high[index], out=out)
        out *= scale


class Factor(NamedTuple):
    """Factor of the mean products of two inputs, which all weights of an operand share.

    Args:
        order: inputs in ascending order of their mean squares.
        lower: lower triangular factor of the products in this order, with a small number added to the squares.
        unit: the same, divided by its diagonal, in binary32.
    """

    order: npt.NDArray[np.int64]
    lower: Array
    unit: Array

    def remaining_squares(self) -> Array:
        """Mean squares of the inputs without the parts for which inputs that are rounded later can compensate."""
        squares = np.empty(len(self.order))
        squares[self.order] = np.square(np.diagonal(self.lower), dtype=np.float64)
        return squares

    def errors(self, differences: Array) -> Array:
        """Mean squared error of each output for errors of its weights, [outputs, inputs]."""
        products: Array = differences[:, self.order].astype(np.float32, copy=False) @ self.lower
        sums: Array = np.square(products).sum(axis=1, dtype=np.float64)
        return sums


def factor_moments(second_moments: Array, observations: int | None = None) -> Factor:
    """Factor mean products of two inputs, [inputs, inputs], for ``round_to_grid``.

    Unlike a covariance, they include the effect of errors on the mean of the result.

    Args:
        second_moments: the mean products.
        observations: their number, by which the products of different inputs are shrunk; None for exact means.
    """
    moments = np.diagonal(second_moments)
    order = np.argsort(-moments, kind="stable")[::-1]
    matrix = second_moments[order[:, None], order].astype(np.float64)
    if observations is not None:
        matrix *= 1 - min(_MOST_SHRINKAGE, _SHRINKAGE * len(order) / max(1, observations))
    diagonal = np.arange(len(order))
    matrix[diagonal, diagonal] = moments[order] + (_DAMPING * moments.mean() + 1e-12)
    lower = np.linalg.cholesky(matrix)
    unit = lower / np.diagonal(lower)[None, :]
    return Factor(order, lower.astype(np.float32), unit.astype(np.float32))


def round_to_grid(exact: Array, factor: Factor, grid: Grid) -> Array:
    """Round weights as ``round_with_compensation`` does, but each to its own grid.

    Args:
        exact: float weights, [outputs, inputs].
        factor: factor of the mean products of two inputs.
        grid: the values, in binary32.

    Returns:
        Values of the grid, [outputs, inputs].
    """
    order = factor.order
    ordered = Grid(*(part[order] for part in grid))
    weights = np.ascontiguousarray(exact.T[order], np.float32)[None]
    rows = _Rows(factor.unit[None], weights, weights.copy(), np.empty_like(weights), ordered)
    _round_rows(rows, 0, weights.shape[1])
    result = np.empty(exact.shape, np.float32)
    result[:, order] = rows.rounded[0].T
    return result


def _round(covariance: Array, weights: Float64) -> Array:
    """Round weights, [groups, inputs, outputs], the last input first."""
    factor = np.linalg.cholesky(covariance.astype(np.float64))
    factor /= np.diagonal(factor, axis1=1, axis2=2)[:, None, :].copy()
    rows = _Rows(factor, weights.copy(), weights.copy(), np.empty_like(weights))
    _round_rows(rows, 0, weights.shape[1])
    return rows.rounded


class _Rows(NamedTuple):
    """Weights by input, [groups, inputs, outputs].

    Args:
        factor: unit lower triangular factor of the covariance, [groups, inputs, inputs].
        targets: float weights; replaced by the errors of the rounded ones.
        shifted: float weights plus what compensates for the errors of the rounded ones.
        rounded: the result.
        grid: the values to which weights are rounded; None for integers.
    """

    factor: Array
    targets: Array
    shifted: Array
    rounded: Array
    grid: Grid | None = None


def _round_rows(rows: _Rows, start: int, end: int) -> None:
    """Round the weights of the inputs ``start`` to ``end - 1``, the last one first.

    ``shifted`` of these inputs contains the compensation for all later ones.
    """
    if end - start > _BLOCK:
        middle = (start + end) // 2
        _round_rows(rows, middle, end)
        errors = rows.targets[:, middle:end]
        rows.shifted[:, start:middle] += rows.factor[:, middle:end, start:middle].swapaxes(1, 2) @ errors
        _round_rows(rows, start, middle)
        return
    for index in range(end - 1, start - 1, -1):
        rounded = rows.rounded[:, index]
        if rows.grid is None:
            np.clip(np.rint(rows.shifted[:, index], out=rounded), -_LIMIT, _LIMIT, out=rounded)
        else:
            rows.grid.round_input(index, rows.shifted[:, index], rounded)
        errors = rows.targets[:, index]
        errors -= rounded
        rows.shifted[:, start:index] += rows.factor[:, index, start:index, None] * errors[:, None]


@dataclass
class InputSums:
    """Sums over observations of the inputs of a linear operator. Sums of integers are exact, and can be merged.

    Args:
        products: sums of the products of two inputs, [groups, inputs, inputs], INT32 or binary64.
        totals: sums of the inputs, [groups, inputs].
        count: number of observations.
    """

    products: Array
    totals: Array
    count: int

    @staticmethod
    def of(rows: Array) -> InputSums:
        """Add observations, [groups, observations, inputs]."""
        count = rows.shape[1]
        if rows.dtype.kind in "iu" and rows.dtype.itemsize == 1:
            products: Array
            products, totals = multiply_inputs(rows[:, :MOST_OBSERVATIONS])
            for start in range(MOST_OBSERVATIONS, count, MOST_OBSERVATIONS):
                more, added = multiply_inputs(rows[:, start : start + MOST_OBSERVATIONS])
                products, totals = np.add(products, more, dtype=np.float64), totals + added
        else:
            values = rows.astype(np.float64)
            products, totals = values.swapaxes(1, 2) @ values, values.sum(axis=1)
        return InputSums(products, totals, count)

    def merge(self, other: InputSums) -> None:
        """Add the sums over other observations."""
        is_small = self.products.dtype == other.products.dtype == np.int32
        if is_small and self.count + other.count <= MOST_OBSERVATIONS:
            self.products = self.products + other.products
        else:
            self.products = np.add(self.products, other.products, dtype=np.float64)
        self.totals = self.totals + other.totals
        self.count += other.count

    def covariance(self, dtype: type[np.floating[Any]] = np.float64) -> Array:
        """Return the covariance of the inputs, [groups, inputs, inputs], computed in binary64 and rounded to a type."""
        mean = self.totals / self.count
        covariance = np.empty(self.products.shape, dtype)
        step = max(1, _PART // covariance[0, :1].size)
        for start in range(0, covariance.shape[1], step):
            rows = slice(start, start + step)
            part = self.products[:, rows] / self.count
            part -= mean[:, rows, None] * mean[:, None, :]
            covariance[:, rows] = part
        return covariance


def patches(x: Array, op: SpatialConvolution, kernel: tuple[int, ...], limit: int) -> Array:
    """Extract the windows of a convolution at evenly spread positions of its result.

    Args:
        x: operand, [N, C, H, W] or [N, C, D, H, W], zero where padded.
        op: strides, dilations, pads and groups.
        kernel: extents of the kernel.
        limit: maximum number of positions.

    Returns:
        [groups, positions, C / groups * kernel size].
    """
    strides, dilations, groups = op.geometry.strides, op.geometry.dilations, op.geometry.groups
    padded = np.pad(x, ((0, 0), (0, 0), *op.geometry.pads))
    extents = [
        (padded.shape[2 + axis] - dilations[axis] * (extent - 1) - 1) // strides[axis] + 1
        for axis, extent in enumerate(kernel)
    ]
    total = x.shape[0] * math.prod(extents)
    chosen = np.unique(np.linspace(0, total - 1, min(total, limit)).astype(np.int64))
    sample, *indices = np.unravel_index(chosen, (x.shape[0], *extents))
    along = [
        _on_axis(index[:, None] * strides[axis] + dilations[axis] * np.arange(kernel[axis]), axis, len(kernel))
        for axis, index in enumerate(indices)
    ]
    taken = np.moveaxis(padded, 1, -1)[(sample.reshape(-1, *(1,) * len(kernel)), *along)]  # [positions, *kernel, C]
    grouped: Array = np.moveaxis(taken, -1, 0).reshape(groups, -1, chosen.size, math.prod(kernel))
    return grouped.transpose(0, 2, 1, 3).reshape(groups, chosen.size, -1)


def _on_axis(indices: Array, axis: int, count: int) -> Array:
    """Reshape indices [positions, extent] so that they broadcast with the indices of the other kernel axes."""
    return indices.reshape(len(indices), *(indices.shape[1] if other == axis else 1 for other in range(count)))
