"""Scalar implementations with Python integers, with which the vectorized integer operators are compared."""

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from tpuconvert.schema.types import Array, DType


def saturate(value: int, dtype: DType) -> int:
    return min(max(value, dtype.min), dtype.max)


def half_up(value: Fraction) -> int:
    return math.floor(value + Fraction(1, 2))


def half_away(value: Fraction) -> int:
    return half_up(value) if value >= 0 else -half_up(-value)


def nearest_int32(value: float) -> int:
    """Half away from zero, saturated; NaN gives 0."""
    if math.isnan(value):
        return 0
    if math.isinf(value):
        return DType.INT32.max if value > 0 else DType.INT32.min
    return saturate(half_away(Fraction(value)), DType.INT32)


def rrs(value: int, shift: int) -> int:
    return half_up(Fraction(value, 1 << shift)) if shift > 0 else value


def convolution(
    x: Array,
    w: Array,
    *,
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int],
    groups: int,
    x_zero: Callable[[int], int] = lambda channel: 0,
    w_zero: Callable[[int], int] = lambda channel: 0,
    pad_value: Callable[[int], int] | None = None,
) -> list[tuple[tuple[int, int, int, int], int]]:
    """Index and exact value of every element. Zero points are per input and output channel; pads are top, left, ..."""
    images, _, height, width = x.shape
    outputs, inputs, kh, kw = w.shape
    rows = (height + pads[0] + pads[2] - dilations[0] * (kh - 1) - 1) // strides[0] + 1
    columns = (width + pads[1] + pads[3] - dilations[1] * (kw - 1) - 1) // strides[1] + 1
    found = []
    for n, o, i, j in np.ndindex(images, outputs, rows, columns):
        total = 0
        for c, a, b in np.ndindex(inputs, kh, kw):
            channel = o // (outputs // groups) * inputs + c
            row, column = i * strides[0] - pads[0] + a * dilations[0], j * strides[1] - pads[1] + b * dilations[1]
            inside = 0 <= row < height and 0 <= column < width
            outside = x_zero(channel) if pad_value is None else pad_value(channel)
            value = int(x[n, channel, row, column]) if inside else outside
            total += (value - x_zero(channel)) * (int(w[o, c, a, b]) - w_zero(o))
        found.append(((n, o, i, j), total))
    return found


def transposed_convolution(
    x: Array,
    w: Array,
    *,
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int],
    groups: int,
    x_zero: Callable[[int], int] = lambda channel: 0,
    w_zero: Callable[[int], int] = lambda channel: 0,
) -> dict[tuple[int, int, int, int], int]:
    """Exact value by index; pads are top, left, bottom, right."""
    images, channels, height, width = x.shape
    _, outputs, kh, kw = w.shape
    rows = (height - 1) * strides[0] + dilations[0] * (kh - 1) + 1 - pads[0] - pads[2]
    columns = (width - 1) * strides[1] + dilations[1] * (kw - 1) + 1 - pads[1] - pads[3]
    total = dict.fromkeys(np.ndindex(images, outputs * groups, rows, columns), 0)
    for n, c, i, j, o, a, b in np.ndindex(images, channels, height, width, outputs, kh, kw):
        out = c // (channels // groups) * outputs + o
        location = n, out, i * strides[0] + a * dilations[0] - pads[0], j * strides[1] + b * dilations[1] - pads[1]
        if location in total:
            total[location] += (int(x[n, c, i, j]) - x_zero(c)) * (int(w[c, o, a, b]) - w_zero(out))
    return total


def random_integers(rng: np.random.Generator, dtype: DType, shape: Sequence[int], extreme: bool = False) -> Array:
    """Random data over the whole range of a dtype, or only its two limits."""
    if extreme:
        return rng.choice(np.array([dtype.min, dtype.max], dtype.numpy), shape)
    return rng.integers(dtype.min, dtype.max, shape, endpoint=True).astype(dtype.numpy)


def quantized_mode(
    mode: int, total: int, bias: Any, scale: float, out: DType, *, zero_total: int = 0, offset: int = 0, n: int = 0
) -> int:
    """One result of docs/inside/semantics.md, section 7, step by step.

    ``bias`` is a Python int, an np.float32 for a float bias, or None.
    """
    f32, i16, i32 = np.float32, DType.INT16, DType.INT32
    s = f32(scale)
    e = math.frexp(float(s))[1]
    if mode != 2:
        n = 1 - e if s <= 1 else 0
    if mode == 0:
        r = saturate(rrs(saturate(total + (bias or 0), i32), n), out)
        remainder = f32(float(s) * 2.0**n)
        if remainder != 1:
            # If the product overflows float32, any large multiplier saturates as well.
            r = saturate(rrs(r * min(int(float(remainder) * 128), 1 << 100), 7), out)
        return r
    if mode == 1:
        late = isinstance(bias, (np.float32, np.int32))
        r = saturate(rrs(saturate(total + (0 if late or bias is None else bias), i32), n), i16)
        t = f32(math.ldexp(float(f32(r) * s), n))
        if late:
            t = f32(t + f32(f32(bias) * s))
        return saturate(nearest_int32(float(t)), out)
    part1 = saturate(rrs(saturate(total, i32), n), i16)
    part2 = saturate(rrs(saturate(zero_total, i32), n), i16)
    r = saturate(part1 - part2, i16)
    t = f32(math.ldexp(float(f32(r) * s), n))
    t = f32(t + f32(f32(bias) * s))
    return saturate(nearest_int32(float(t)) + offset, out)
