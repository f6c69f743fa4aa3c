"""Mean accumulator of a linear operator, computed from sums of its operand.

The accumulator is linear in the operand: its sum over all positions is the product of the weights with the sums of the
elements that each weight is multiplied with. All of them are integers, so that nothing is rounded before the division.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from tpuconvert.schema.convolution_params import ConvolutionGeometry, SpatialConvolution
from tpuconvert.schema.op import Op
from tpuconvert.schema.ops.matrix_mul_v2 import MatrixMulV2
from tpuconvert.schema.types import I32, Array
from tpuconvert.schema.zero_points import zero_point

Float64 = npt.NDArray[np.float64]

_LARGEST_PRODUCT = 255 * 255
"""Largest magnitude of the product of two bytes minus their zero points."""

_EXACT = 1 << 53
"""Integers up to this magnitude are binary64 numbers."""


def accumulator_means(
    op: SpatialConvolution | MatrixMulV2, x: Array, w: Array, bias: Array, samples: int
) -> Float64 | None:
    """Mean of the accumulators including the bias, by sample and output channel.

    Args:
        op: a convolution that is not transposed, or a matmul of operands that are not transposed.
        x: the operand, bytes [N, C, ...] or [N, K]; N is a multiple of ``samples``.
        w: the constant weights, as the operator takes them.
        bias: one integer per output channel.
        samples: number of samples in ``x``.

    Returns:
        [samples, output channels], rounded once; None if an accumulator could saturate or a sum is too large to be
        exact.
    """
    if isinstance(op, MatrixMulV2):
        positions, inputs = 1, w.shape[0]
        sums = without_zero(x, op, "lzp", (-1, 1)).astype(np.float64)
        kernels = without_zero(w, op, "rzp", (1, -1)).T[np.newaxis]
    else:
        ones = (1,) * (x.ndim - 2)
        positions, inputs = math.prod(_positions(x, op.geometry, w.shape[2:])), math.prod(w.shape[1:])
        sums = window_sums(without_zero(x, op, "izp", (-1, *ones)), op.geometry, w.shape[2:])
        kernels = without_zero(w, op, "kzp", (-1, 1, *ones)).reshape(op.geometry.groups, -1, inputs)
    images = len(x) // samples
    largest = inputs * _LARGEST_PRODUCT + int(np.abs(bias.astype(np.int64)).max(initial=0))
    if largest > I32.max or largest * positions * images > _EXACT:
        return None
    columns = sums.reshape(samples, images, len(kernels), inputs).sum(axis=1, dtype=np.float64).transpose(1, 2, 0)
    totals = (kernels.astype(np.float64) @ columns).reshape(-1, samples).T
    means: Float64 = (totals + bias.reshape(-1) * float(images * positions)) / (images * positions)
    return means


def window_sums(x: Array, geometry: ConvolutionGeometry, kernel: tuple[int, ...]) -> Array:
    """Sum the elements that each element of a kernel is multiplied with, over all positions of a convolution.

    Args:
        x: integers, [N, C, H, W] or [N, C, D, H, W], zero where padded.
        geometry: strides, dilations and pads.
        kernel: extents of the kernel.

    Returns:
        INT64 [N, C, *kernel].
    """
    sums = x
    for axis, positions in enumerate(_positions(x, geometry, kernel)):
        stride, taps = geometry.strides[axis], []
        for tap in range(kernel[axis]):
            start = tap * geometry.dilations[axis] - geometry.pads[axis][0]
            first, end = max(0, -(start // stride)), max(0, start + positions * stride)
            taps.append(sums[:, :, start + first * stride : end : stride].sum(axis=2, dtype=np.int64))
        sums = np.stack(taps, axis=-1)  # the remaining axes of the operand move forward
    return sums


def _positions(x: Array, geometry: ConvolutionGeometry, kernel: tuple[int, ...]) -> list[int]:
    """Extents of the result of a convolution."""
    strides, dilations = geometry.strides, geometry.dilations
    return [
        (extent + sum(pads) - dilation * (taps - 1) - 1) // stride + 1
        for extent, pads, dilation, taps, stride in zip(
            x.shape[2:], geometry.pads, dilations, kernel, strides, strict=True
        )
    ]


def without_zero(x: Array, op: Op, prefix: str, shape: tuple[int, ...]) -> Array:
    """Subtract the zero points of an operand, if there are any. ``shape`` is that in which they broadcast."""
    zero = zero_point(op, prefix)
    return x - zero.reshape(shape if zero.ndim else ()) if zero.any() else x
