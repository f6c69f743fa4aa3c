"""Rounding of the weights of a linear operator so that their errors cancel in its result.

Rounding every weight to the nearest integer is best only where inputs are independent. Neighboring pixels and channels
are correlated: other weights can compensate for the error of one weight. Weights are rounded one input at a time, and
the error of each is distributed over the remaining inputs by their covariance with it.

Source: Frantar et al., GPTQ (2022), section 3, after Hassibi and Stork, Optimal Brain Surgeon (1993).
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from tpuconvert.runtime.session import Session
from tpuconvert.schema.convolution_params import SpatialConvolution
from tpuconvert.schema.graph import Graph
from tpuconvert.schema.ops.matrix_mul_v2 import MatrixMulV2
from tpuconvert.schema.types import Array, DType, TensorType

Float64 = npt.NDArray[np.float64]

MOST_INPUTS = 2400
"""Maximum number of inputs per result; weights with more inputs are rounded to nearest. The covariance grows with the
square of this number, the time to invert it with the cube."""

_LIMIT = 127.0
_DAMPING = 0.01
"""Fraction of the mean variance that is added to all variances, because few samples leave the covariance singular."""

_BLOCK = 64

_MOST_ROWS = 1 << 15
"""Number of observations whose products have a sum below 2^31: 2^15 * 255 * 255."""


def round_with_compensation(exact: Float64, covariance: Float64) -> Float64:
    """Round weights to integers within -127..127.

    Args:
        exact: float weights divided by their scales, [groups, outputs, inputs].
        covariance: covariance of the inputs, [groups, inputs, inputs].

    Returns:
        Integers as binary64, of the shape of ``exact``.
    """
    inputs = exact.shape[2]
    variance = np.diagonal(covariance, axis1=1, axis2=2)
    damped = covariance + np.eye(inputs) * (_DAMPING * variance.mean(axis=1) + 1e-12)[:, None, None]
    # Inputs with the largest variance come first: their errors cost most, and most other inputs can compensate for
    # them.
    order = np.argsort(-variance.sum(axis=0), kind="stable")
    damped = damped[:, order][:, :, order]
    spread = np.ascontiguousarray(_inverse_factor(damped).swapaxes(1, 2))
    # One row per input, so that the weights of an input are contiguous.
    work = np.ascontiguousarray(exact.swapaxes(1, 2)[:, order])
    rounded = np.empty_like(work)
    for start in range(0, inputs, _BLOCK):
        end = min(start + _BLOCK, inputs)
        errors = np.empty((len(work), end - start, work.shape[2]))
        for index in range(start, end):
            rounded[:, index] = np.clip(np.rint(work[:, index]), -_LIMIT, _LIMIT)
            error = (work[:, index] - rounded[:, index]) / spread[:, index, index, None]
            work[:, index:end] -= spread[:, index:end, index, None] * error[:, None]
            errors[:, index - start] = error
        work[:, end:] -= spread[:, end:, start:end] @ errors
    result = np.empty_like(rounded)
    result[:, order] = rounded
    return np.ascontiguousarray(result.swapaxes(1, 2))


def _inverse_factor(matrices: Float64) -> Float64:
    """For each positive definite matrix H, return the upper triangular U with a positive diagonal and U' U = H^-1.

    With J reversing the order, J H J = L L' gives H^-1 = (J L^-1 J)' (J L^-1 J), and J L^-1 J is upper triangular. This
    takes less than a quarter of the operations of inverting H and factoring the inverse.
    """
    lower = np.asarray(np.linalg.cholesky(matrices[:, ::-1, ::-1]), dtype=np.float64)
    return _inverse_of_lower(lower)[:, ::-1, ::-1]


def _inverse_of_lower(lower: Float64) -> Float64:
    """Invert lower triangular matrices recursively: with L = [A 0; B C], L^-1 is [A^-1 0; -C^-1 B A^-1 C^-1]."""
    size = lower.shape[1]
    if size <= _BLOCK:
        inverse: Float64 = np.tril(np.linalg.inv(lower))
        return inverse
    half = size // 2
    result = np.zeros_like(lower)
    first, last = _inverse_of_lower(lower[:, :half, :half]), _inverse_of_lower(lower[:, half:, half:])
    result[:, :half, :half], result[:, half:, half:] = first, last
    result[:, half:, :half] = -(last @ (lower[:, half:, :half] @ first))
    return result


class Covariance:
    """Covariance of the inputs of a linear operator, accumulated over samples."""

    def __init__(self, groups: int, inputs: int) -> None:
        self._sum = np.zeros((groups, inputs))
        self._products = np.zeros((groups, inputs, inputs))
        self._count = 0

    def add(self, rows: Array) -> None:
        """Add observations, [groups, observations, inputs]. Sums of bytes are exact."""
        if rows.dtype.kind in "iu" and rows.dtype.itemsize == 1:
            for start in range(0, rows.shape[1], _MOST_ROWS):
                self._products += _products_of_bytes(rows[:, start : start + _MOST_ROWS])
            self._sum += rows.sum(axis=1, dtype=np.int64)
        else:
            values = rows.astype(np.float64)
            self._products += values.swapaxes(1, 2) @ values
            self._sum += values.sum(axis=1)
        self._count += rows.shape[1]

    def result(self) -> Float64:
        """The covariance, [groups, inputs, inputs]."""
        mean = self._sum / self._count
        covariance: Float64 = self._products / self._count - mean[:, :, None] * mean[:, None, :]
        return covariance


def _products_of_bytes(rows: Array) -> Array:
    """Multiply the transposed observations by the observations; INT32 [groups, inputs, inputs]."""
    graph = Graph()
    x = graph.input("x", TensorType(DType.of(rows.dtype), rows.shape))
    graph.output(graph.add(MatrixMulV2(is_left_trans=True), x, x, name="y"))
    with Session(graph) as session:
        return session.run({"x": rows})["y"]


def patches(x: Array, op: SpatialConvolution, kernel: tuple[int, ...], most: int) -> Array:
    """Extract the windows of a convolution at evenly spread positions of its result.

    Args:
        x: operand, [N, C, H, W] or [N, C, D, H, W], zero where padded.
        op: strides, dilations, pads and groups.
        kernel: extents of the kernel.
        most: maximum number of positions.

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
    chosen = np.unique(np.linspace(0, total - 1, min(total, most)).astype(np.int64))
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
