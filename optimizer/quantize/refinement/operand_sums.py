"""Mean accumulator of a linear operator, computed from sums of its operand.

The accumulator is linear in the operand: its sum over all positions is the product of the weights with the sums of the
elements that each weight is multiplied with. All of them are integers, so that nothing is rounded before the division.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tpuconvert.runtime.native.statistics.byte_statistics import positions_of, window_sums
from tpuconvert.schema.definition.op import Op
from tpuconvert.schema.ops.convolution.convolution_params import SpatialConvolution
from tpuconvert.schema.ops.matmul.matrix_mul_v2 import MatrixMulV2
from tpuconvert.schema.ops.matmul.zero_points import zero_point
from tpuconvert.schema.types import I32, Array

Float64 = npt.NDArray[np.float64]

_LARGEST_PRODUCT = 255 * 255
"""Largest magnitude of the product of two bytes minus their zero points."""

_EXACT = 1 << 53
"""Integers up to this magnitude are binary64 numbers."""


def accumulator_means(
    op: SpatialConvolution | MatrixMulV2, operands: Sequence[Array], w: Array, bias: Array, samples: Sequence[int]
) -> list[Float64 | None]:
    """Means of the accumulators including the bias, by sample and output channel.

    Args:
        op: a convolution that is not transposed, or a matmul of operands that are not transposed.
        operands: of all feeds, bytes [N, C, ...] or [N, K]; N is a multiple of the number of samples.
        w: the constant weights, as the operator takes them.
        bias: one integer per output channel.
        samples: number of samples in each operand.

    Returns:
        One array [samples, output channels] per operand, rounded once; None if an accumulator could saturate or a sum
        is too large to be exact.
    """
    ones = (1,) * (w.ndim - 2)
    if isinstance(op, MatrixMulV2):
        kernels = without_zero(w, op, "rzp", (1, -1)).T[np.newaxis]
    else:
        kernels = without_zero(w, op, "kzp", (-1, 1, *ones)).reshape(op.geometry.groups, -1, math.prod(w.shape[1:]))
    groups, outputs, inputs = kernels.shape
    largest = inputs * _LARGEST_PRODUCT + int(np.abs(bias.astype(np.int64)).max(initial=0))
    if largest > I32.max:
        return [None] * len(operands)
    columns, sizes = [], []
    for x, count in zip(operands, samples, strict=True):
        if isinstance(op, MatrixMulV2):
            positions = 1
            sums = without_zero(x, op, "lzp", (-1, 1))
        else:
            positions = math.prod(positions_of(x.shape[2:], op.geometry, w.shape[2:]))
            sums = window_sums(without_zero(x, op, "izp", (-1, *ones)), op.geometry, w.shape[2:])
        images = len(x) // count
        columns.append(sums.reshape(count, images, groups, inputs).sum(axis=1, dtype=np.float64))
        sizes.append(images * positions)
    # One product for all samples: integers are exact in any order of additions. Sums that are too large are not used.
    totals = kernels.astype(np.float64) @ np.concatenate(columns).transpose(1, 2, 0)
    rows = totals.reshape(groups * outputs, -1).T
    offset = bias.reshape(-1).astype(np.float64)
    ends = np.cumsum(samples)
    return [
        (rows[end - count : end] + offset * size) / size if largest * size <= _EXACT else None
        for count, size, end in zip(samples, sizes, ends, strict=True)
    ]


def without_zero(x: Array, op: Op, prefix: str, shape: tuple[int, ...]) -> Array:
    """Subtract the zero points of an operand of bytes, if there are any. ``shape`` is that in which they broadcast.

    The differences are INT32: INT64 takes twice the memory, and its windows are not copied by the engine.
    """
    zero = zero_point(op, prefix).astype(np.int32)
    return x - zero.reshape(shape if zero.ndim else ()) if zero.any() else x
