"""Requantization of accumulators in the three integer calculation modes of conv, deconv and matrix_mul.

All sums are exact integers; ``s`` is the scale rounded to float32, and every floating-point step is rounded to float32
in the written order.

Source: docs/inside/semantics.md, section 7.
"""

from __future__ import annotations

import math

import numpy as np

from tpuconvert.schema.arithmetic.fixed_point import limit_to, rhaz_i32, rrs, saturate
from tpuconvert.schema.types import I16, I32, Array, DType


def ceil_shift(s: np.float32) -> int:
    """ceil(log2(1/s)) for s <= 1, else 0; exact, without logarithms."""
    return 1 - math.frexp(float(s))[1] if s <= 1 else 0


def floor_shift(s: np.float32) -> int:
    """floor(log2(1/s)) for s <= 1, else 0; exact, without logarithms."""
    mantissa, exponent = math.frexp(float(s))
    if s > 1:
        return 0
    return 1 - exponent if mantissa == 0.5 else -exponent


def low_precision(sums: Array, bias: Array | None, scale: float, out: DType) -> Array:
    """Mode 0: shift right to 8 bits, then multiply by a 7-bit fixed-point factor. ``bias`` broadcasts with ``sums``."""
    s = np.float32(scale)
    shift = ceil_shift(s)
    result = limit_to(rrs(_add_bias(sums, bias), shift), out)
    remainder = np.float32(math.ldexp(float(s), shift))
    if remainder != 1:
        # A multiplier of 2^40 saturates every result except 0, as a larger one does; the product fits into 64 bits.
        multiplier = min(int(float(remainder) * 128), 1 << 40)
        result = rrs(result * multiplier, 7)
    return saturate(result, out)


def high_precision_symmetric(sums: Array, bias: Array | None, scale: float, out: DType) -> Array:
    """Mode 1: shift right to INT16, then multiply by the scale in float32. 32-bit biases are added after that."""
    s = np.float32(scale)
    shift = ceil_shift(s)
    is_late = bias is not None and bias.dtype in (np.int32, np.float32)
    total = _add_bias(sums, None if is_late else bias)
    result = _rescale(limit_to(rrs(total, shift), I16), s, shift)
    if bias is not None and is_late:
        result = _add_scaled(result, bias, s)
    return saturate(rhaz_i32(result), out)


def high_precision_asymmetric(
    sums: Array, zero_sums: Array | int, offline_bias: Array, scale: float, shift: int, output_zero: int, out: DType
) -> Array:
    """Mode 2: shift both sums to INT16, subtract, multiply by the scale in float32, add bias and output zero point.

    Args:
        sums: sums of ``x * w``.
        zero_sums: sums of ``x * w_zero``.
        offline_bias: ``bias - sum(x_zero * (w - w_zero))``, INT32 or FLOAT32.
        scale: scale of the accumulator divided by the scale of the result.
        shift: ``floor_shift`` for convolutions, ``ceil_shift`` for matrix products.
        output_zero: added before the last saturation.
        out: type of the result.

    """
    s = np.float32(scale)
    first = limit_to(rrs(limit_to(sums, I32), shift), I16)
    second = limit_to(rrs(limit_to(np.asarray(zero_sums), I32), shift), I16)
    result = _add_scaled(_rescale(limit_to(first - second, I16), s, shift), offline_bias, s)
    return saturate(rhaz_i32(result) + output_zero, out)


def offline_bias(bias: Array | None, zero_products: Array) -> Array:
    """Bias of mode 2: ``bias - zero_products``, in float32 for a FLOAT32 bias, otherwise saturated to INT32."""
    if bias is not None and bias.dtype == np.float32:
        return bias - zero_products.astype(np.float32)
    exact = -zero_products.astype(np.int64) if bias is None else bias.astype(np.int64) - zero_products
    return saturate(exact, I32)


def _add_bias(sums: Array, bias: Array | None) -> Array:
    """Add an integer bias and saturate to INT32; the result is INT64."""
    total = sums.astype(np.int64, copy=False)
    return limit_to(total if bias is None else total + bias.astype(np.int64), I32)


def _rescale(result: Array, s: np.float32, shift: int) -> Array:
    """Multiply by ``s * 2^shift`` in float32. Only the multiplication by s rounds."""
    with np.errstate(all="ignore"):
        rescaled: Array = np.ldexp(result.astype(np.float32) * s, np.int32(shift))
        return rescaled


def _add_scaled(result: Array, bias: Array, s: np.float32) -> Array:
    """Compute ``result + bias * s`` in float32, rounded after each operation."""
    with np.errstate(all="ignore"):
        total: Array = result + bias.astype(np.float32) * s
        return total
