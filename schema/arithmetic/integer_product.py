"""Exact integer matmul and convolution by floating-point matmul of BLAS.

Operands are signed integers of at most 9 bits (8-bit data minus a zero point of the same type), so that the magnitude
of a product is at most 255 * 255. If the magnitudes of all products of one result sum to at most 2^24, every partial
sum, in any order and with or without fused operations, is an integer of magnitude at most 2^24. float32 represents
these integers exactly, so no operation rounds. Longer sums are split into chunks within this bound; the sums of chunks
are added in float64, which is exact up to 2^53. On one core this takes half of the time of a matmul in float64.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tpuconvert.schema.arithmetic.convolution import Window, convolve, convolve_transposed
from tpuconvert.schema.arithmetic.fixed_point import saturate
from tpuconvert.schema.types import EXACT_FLOAT32, I32, Array, DType

_EXACT_BINARY64 = 1 << 53


def largest_magnitude(dtype: np.dtype[Any], zero: Array | int = 0) -> int:
    """Largest ``|x - zero|`` for all x of an integer type and all given zero points."""
    info = np.iinfo(dtype)
    zeros = np.atleast_1d(np.asarray(zero, dtype=np.int64))
    return max(int(zeros.max()) - int(info.min), int(info.max) - int(zeros.min()))


def exact_chunk(largest: int, factors: Array) -> int | None:
    """Number of products whose sum is exact in float32, or None if the whole sum is exact.

    Args:
        largest: bound of the magnitudes of one operand.
        factors: the other operand, with integral values. Shape: [..., rows, length of the sum].

    """
    bound = largest * float(np.abs(factors).max(initial=0))
    if bound * factors.shape[-1] <= EXACT_FLOAT32:
        return None
    if largest * float(np.abs(factors).sum(axis=-1, dtype=np.float64).max()) <= EXACT_FLOAT32:
        return None
    return max(int(EXACT_FLOAT32 // bound), 1)


def _sum_type(length: int, first: int, second: int) -> np.dtype[Any]:
    """Return INT32 if all sums of ``length`` products fit, else INT64."""
    bound = length * first * second
    if max(first, second) > 1 << 16 or bound > _EXACT_BINARY64:
        raise ValueError(f"{length} products of {first} * {second} are not exact")
    return np.dtype(np.int32 if bound < 1 << 31 else np.int64)


def integer_convolution(
    x: Array, w: Array, window: Window, *, x_zero: Array | int = 0, w_zero: Array | int = 0, pad: int = 0
) -> Array:
    """Exact convolution of (x - x_zero) with (w - w_zero). ``pad`` is the value of padding after that subtraction.

    Shapes: x [N, ic, H, W], w [oc, ic/groups, kh, kw], x_zero scalar or [ic], w_zero scalar or [oc]; the result is
    [N, oc, oh, ow] of type INT32 if all possible sums fit, else INT64.
    """
    largest_x = max(largest_magnitude(x.dtype, x_zero), abs(pad))
    largest_w = largest_magnitude(w.dtype, w_zero)
    kernels = _subtract_zero(w, np.asarray(w_zero).reshape(-1, 1, 1, 1))
    out = _sum_type(int(np.prod(w.shape[1:])), largest_x, largest_w)
    chunk = exact_chunk(largest_x, kernels.reshape(len(w), -1))
    return convolve(x, kernels, window, out, zero=x_zero, pad=pad, chunk=chunk)


def integer_transposed_convolution(
    x: Array, w: Array, window: Window, *, x_zero: Array | int = 0, w_zero: Array | int = 0
) -> Array:
    """Exact transposed convolution of (x - x_zero) with (w - w_zero), computed in binary64.

    Shapes: x [N, ic, H, W], w [ic, oc/groups, kh, kw], x_zero scalar or [ic], w_zero scalar or [oc]; the result is
    [N, oc, oh, ow] of type INT32 if all possible sums fit, else INT64.
    """
    largest = largest_magnitude(x.dtype, x_zero), largest_magnitude(w.dtype, w_zero)
    out = _sum_type(w.shape[0] // window.groups * w.shape[2] * w.shape[3], *largest)
    zeros: Array = np.asarray(w_zero, dtype=np.int64)
    if zeros.size > 1:  # one per output channel; the channels of a group are axis 1 of w
        zeros = np.repeat(zeros.reshape(window.groups, w.shape[1]), w.shape[0] // window.groups, axis=0)
        zeros = zeros.reshape(*w.shape[:2], 1, 1)
    return convolve_transposed(x, w.astype(np.int64) - zeros, window, out, zero=x_zero)


def integer_matmul(left: Array, right: Array, *, left_zero: Array | int = 0, right_zero: Array | int = 0) -> Array:
    """Exact matmul of (left - left_zero) with (right - right_zero).

    Shapes: left [..., M, K], right [..., K, N], left_zero scalar or [M], right_zero scalar or [N]; the result is
    [..., M, N] of type INT32 if all possible sums fit, else INT64.
    """
    largest_left = largest_magnitude(left.dtype, left_zero)
    largest_right = largest_magnitude(right.dtype, right_zero)
    depth = left.shape[-1]
    out = _sum_type(depth, largest_left, largest_right)
    a = _subtract_zero(left, np.asarray(left_zero).reshape(-1, 1))
    b = _subtract_zero(right, np.asarray(right_zero).reshape(1, -1))
    chunk = exact_chunk(largest_right, a)
    if chunk is None:
        single: Array = np.matmul(a, b)
        return single.astype(out)
    batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    sums = np.zeros((*batch, left.shape[-2], right.shape[-1]))
    for start in range(0, depth, chunk):
        sums += np.matmul(a[..., start : start + chunk], b[..., start : start + chunk, :])
    return sums.astype(out)


def _subtract_zero(x: Array, zero: Array) -> Array:
    """Subtract the zero points; the result is float32."""
    if not zero.any():
        return x.astype(np.float32)
    return np.subtract(x, zero.astype(np.float32), dtype=np.float32)


def add_bias(sums: Array, bias: Array | None, out: DType) -> Array:
    """Add an integer bias, which broadcasts, to exact sums, and saturate once."""
    if bias is None:
        return sums if sums.dtype == out.numpy else saturate(sums, out)
    if out is I32 and sums.dtype == np.int32 and sums.size:
        low, high = int(sums.min()) + int(bias.min()), int(sums.max()) + int(bias.max())
        if I32.holds(low) and I32.holds(high) and I32.holds(int(bias.max())):
            small: Array = sums + bias.astype(np.int32)
            return small
    return saturate(sums.astype(np.int64) + bias, out)
