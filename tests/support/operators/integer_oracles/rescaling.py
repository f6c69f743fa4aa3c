"""Requantization between integers of different scales, quantization and dequantization."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

from tests.support.operators.integer_oracles.base import (
    BYTES,
    ROUNDINGS,
    SMALL,
    Example,
    Sampler,
    Tensor,
    example,
    f32,
    half_away,
    half_up,
    made,
    make,
    nearest_int32,
    oracle,
    saturate,
)
from tpuconvert.schema.types import F32, I8, I16, I32, U16, U32, Scalar


def per_channel(
    s: Sampler, field: str, flag: str, draw: Callable[[], Any], channels: int
) -> tuple[dict[str, Any], Any]:
    """A per-tensor or per-channel attribute, and its value by channel."""
    if s.flag():
        value = draw()
        return {f"{field}_val": value}, lambda channel: value
    vector = tuple(draw() for _ in range(channels))
    return {flag: True, f"{field}_vec": vector}, lambda channel: vector[channel]


def offset(s: Sampler) -> int:
    return s.integer(I32) if s.number(0, 3) == 0 else s.number(-300, 300)


def multiplier_and_shift(s: Sampler, mode: int, tie: bool) -> tuple[int, int]:
    """Draw a multiplier and a shift: ordinary values, values for which results are ties, or arbitrary ones."""
    kind = s.number(0, 3)
    if tie:
        return (2**30, -s.number(0, 6)) if mode != 2 else (1, -s.number(0, 8))
    if kind == 0:
        return s.integer(I32), s.number(-64, 0 if mode == 1 else 31)
    if kind == 1:
        return s.integer(I32), s.number(-8, 0)
    return s.number(2**30, 2**31 - 1), -s.number(0, 12) - (31 if mode == 2 else 0)


@oracle("requant_int32")
def requant_int32(name: str, s: Sampler) -> Example:
    mode, rounding = s.number(0, 2), s.number(0, 6)
    x = s.tensor(s.choice((I32, I16, U16) if mode == 2 else (I32, *SMALL)), s.shape(2))
    asked, out = s.out(SMALL if mode == 2 else (I32, I16, I8), I8)
    channels, tie = x.shape[1], s.number(0, 3) == 0
    if tie:
        x = Tensor(x.dtype, x.shape, [saturate(value % 511 - 255, x.dtype) for value in x.values])
    if s.flag():
        pair = multiplier_and_shift(s, mode, tie)
        pairs = [pair] * channels
        fields: dict[str, Any] = {"multiplier_val": pair[0], "shift_val": pair[1]}
    else:
        pairs = [multiplier_and_shift(s, mode, tie) for _ in range(channels)]
        multipliers, shifts = zip(*pairs, strict=True)
        fields = {"is_mul_shift_pc": True, "multiplier_vec": multipliers, "shift_vec": shifts}
    offset_fields, offset_of = per_channel(s, "offset", "is_offset_pc", lambda: offset(s), channels)

    def value(index: tuple[int, ...]) -> int:
        v, (m, shift) = x.at(index), pairs[index[1]]
        if mode == 2:
            product = v * m
            v = product << shift if shift > 0 else ROUNDINGS[rounding](Fraction(product, 1 << -shift))
        else:
            v = v << shift if shift > 0 else v
            v = saturate(half_up(Fraction(v * m, 1 << 31)), I32)
            v = half_away(Fraction(v, 1 << -shift)) if shift < 0 else v
        return saturate(v + offset_of(index[1]), out)

    op = make(name, mode=mode, round_mode=rounding, out_dtype=asked, **fields, **offset_fields)
    return example(op, [x], made(out, x.shape, value))


def scale(s: Sampler) -> float:
    """Draw a scale: an ordinary one, a power of two for which results are ties, or any number."""
    kind = s.number(0, 2)
    if kind == 0:
        return float(s.choice((1.0, 0.5, 0.25, -0.5, 2.0, 0.0, 2.0**-9, 1e-30, 1e30)))
    return f32(s.number(1, 10**6) / 10**5) if kind == 1 else s.number(-(10**6), 10**6) / 30011


@oracle("requant_fp32_to_int")
def requant_fp32_to_int(name: str, s: Sampler) -> Example:
    mode = s.number(0, 1)
    x = s.tensor(s.choice((I32, I16, U16)) if mode else F32, s.shape(2))
    asked, out = s.out(SMALL, I8)
    channels = x.shape[1]
    scale_fields, scale_of = per_channel(s, "scale", "is_scale_pc", lambda: scale(s), channels)
    field, draw = ("offset_fp", lambda: s.number(-600, 600) / 4) if mode else ("offset", lambda: offset(s))
    offset_fields, offset_of = per_channel(s, field, "is_offset_pc", draw, channels)

    def value(index: tuple[int, ...]) -> int:
        c = index[1]
        scaled = f32(f32(x.at(index)) * f32(scale_of(c)))
        if mode:
            return saturate(nearest_int32(f32(scaled + f32(offset_of(c)))), out)
        return saturate(nearest_int32(scaled) + offset_of(c), out)

    op = make(name, mode=mode, out_dtype=asked, **scale_fields, **offset_fields)
    return example(op, [x], made(out, x.shape, value))


@oracle("dequant_int_to_fp32")
def dequant_int_to_fp32(name: str, s: Sampler) -> Example:
    x = s.tensor(s.choice(SMALL), s.shape(2))
    scale_fields, scale_of = per_channel(s, "scale", "is_scale_pc", lambda: scale(s), x.shape[1])
    offset_fields, offset_of = per_channel(s, "offset", "is_offset_pc", lambda: offset(s), x.shape[1])
    value = made(F32, x.shape, lambda i: f32(f32(x.at(i) - offset_of(i[1])) * f32(scale_of(i[1]))))
    return example(make(name, **scale_fields, **offset_fields), [x], value)


@oracle("softmax_int")
def softmax_int(name: str, s: Sampler) -> Example:
    shape = s.choice(((1, 1), (2, 5), (1, 3, 2, 2), (2, 7, 1, 3)))
    x = s.tensor(s.choice(BYTES), shape)
    decay = s.number(1, 1000) / 1000
    table = [f32(decay**d) for d in range(256)]
    if s.flag():
        table = [f32(s.number(0, 100) / 7) for _ in range(4)] * 64
        table[0] = 1.0  # the largest element: Python cannot divide by a sum of 0
    factor, zero = s.choice((1.0, 127.0, 255.0, 256.0, 0.5, 1e6, 3.7)), s.integer(x.dtype)

    def value(index: tuple[int, ...]) -> int:
        n, c, *place = index
        column = [x.at((n, k, *place)) for k in range(shape[1])]
        terms = [table[max(column) - v] for v in column]
        total = terms[0]
        for term in terms[1:]:
            total = f32(total + term)
        scaled = f32(f32(terms[c] / total) * f32(factor))
        return saturate(nearest_int32(scaled) + zero, x.dtype)

    op = make(name, table=tuple(table), scale=factor, zero_point=zero)
    return example(op, [x], made(x.dtype, shape, value))


@oracle("hw_avg")
def hw_avg(name: str, s: Sampler) -> Example:
    mode = s.number(0, 2)
    x = s.tensor(s.choice((I32, U32)), (*s.shape(2, 2), *s.shape(2, 2)))
    if s.flag():
        x = Tensor(x.dtype, x.shape, [saturate(v % 2001 - 1000, x.dtype) for v in x.values])
    extents = Tensor(I32, (2,), list(s.numbers(1, 9, 2)))
    area = extents.values[0] * extents.values[1]

    def value(index: tuple[int, ...]) -> float:
        q = f32(f32(x.at(index)) / f32(area))
        return q if mode == 0 else saturate((half_up if mode == 1 else half_away)(Fraction(q)), x.dtype)

    parameters: dict[str, Any] = {"mode": mode}
    return example(make(name, **parameters), [x, extents], made(F32 if mode == 0 else x.dtype, x.shape, value))


@oracle("hw_mul")
def hw_mul(name: str, s: Sampler) -> Example:
    extents = Tensor(s.choice((I32, U32)), (2,), list(s.numbers(0, 2**26, 2)))
    factor = f32(scale(s))
    expected = Tensor(F32, (1,), [f32(f32(extents.values[0] * extents.values[1]) * factor)])
    return example(make(name, scale=Scalar(F32, factor)), [extents], expected)
