"""The atomic operations on integers."""

import math
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
    made,
    make,
    oracle,
    rrs,
    saturate,
    wrap,
)
from tests.support.operators.integer_oracles.element_wise import ARITHMETIC, LOGIC
from tpuconvert.schema.types import F32, I8, I16, I32, U8, U16, U32, DType

QUANTIZED = "bm_atomic_tensor_arithmetic_quantized"
WORDS = "bm_atomic_tensor_arithmetic"


def pair(s: Sampler) -> tuple[int, int]:
    """Draw a multiplier and a shift: ordinary values, values for which results are ties, or arbitrary ones."""
    kind = s.number(0, 2)
    if kind == 0:
        return s.integer(I32), s.number(-64, 31)
    if kind == 1:
        return s.choice((1, 3, -1, 5)), s.number(-9, 0)
    return s.number(2**30, 2**31 - 1), s.number(-46, -28)


def scaled(value: int, multiplier: int, shift: int, mode: int) -> int:
    exact = value * multiplier
    return exact << shift if shift > 0 else ROUNDINGS[mode](Fraction(exact, 1 << -shift))


def lines(dtype: DType, rows: list[list[Any]]) -> Tensor:
    """Draw per-channel parameters, [1, C, 1, number of parameters]."""
    return Tensor(dtype, (1, len(rows), 1, len(rows[0])), [value for row in rows for value in row])


@oracle("tpu_bdc_int_requant", "tpu_bdc_int_pc_requant")
def int_requant(name: str, s: Sampler) -> Example:
    x, mode = s.tensor(s.choice((I32, I16, U16)), s.shape(4, 4, 2)), s.number(0, 6)
    asked, out = s.out(SMALL, I8)
    narrow = I16 if out.is_signed else U16
    rows = [[*pair(s), s.integer(narrow)] for _ in range(x.shape[1])]
    if "pc" not in name:
        rows = [rows[0]] * len(rows)

    def value(index: tuple[int, ...]) -> int:
        multiplier, shift, offset = rows[index[1]]
        return saturate(scaled(x.at(index), multiplier, shift, mode) + offset, out)

    expected = made(out, x.shape, value)
    if "pc" in name:
        return example(make(name, rounding_mode=mode, out_dtype=asked), [x, lines(I32, rows)], expected)
    given = dict(zip(("multiplier", "shift", "offset"), rows[0], strict=True))
    return example(make(name, rounding_mode=mode, out_dtype=asked, **given), [x], expected)


@oracle("tpu_bdc_int_dequant", "tpu_bdc_int_pc_dequant")
def int_dequant(name: str, s: Sampler) -> Example:
    x, mode = s.tensor(s.choice(SMALL), s.shape(4, 4, 2)), s.number(0, 6)
    asked, out = s.out((I32, I16, U16), I32)
    narrow = I16 if x.dtype.is_signed else U16
    rows = [[s.integer(narrow), *pair(s)] for _ in range(x.shape[1])]
    if "pc" not in name:
        rows = [rows[0]] * len(rows)

    def value(index: tuple[int, ...]) -> int:
        offset, multiplier, shift = rows[index[1]]
        return saturate(scaled(x.at(index) - offset, multiplier, shift, mode), out)

    expected = made(out, x.shape, value)
    if "pc" in name:
        return example(make(name, rounding_mode=mode, out_dtype=asked), [x, lines(I32, rows)], expected)
    given = dict(zip(("offset", "multiplier", "shift"), rows[0], strict=True))
    return example(make(name, rounding_mode=mode, out_dtype=asked, **given), [x], expected)


def to_float(value: int, mode: int) -> float:
    """Draw an integer with 24 significant bits."""
    surplus = max(abs(value).bit_length() - 24, 0)
    return float(ROUNDINGS[mode](Fraction(value, 1 << surplus)) << surplus)


@oracle("tpu_bdc_fp32_requant", "tpu_bdc_fp32_pc_requant")
def fp32_requant(name: str, s: Sampler) -> Example:
    x, mode, source = s.tensor(s.choice((I32, I16, U16)), s.shape(4, 4, 2)), s.number(0, 6), s.number(0, 6)
    asked, out = s.out(SMALL, I8)
    scales = (1.0, 0.5, 0.25, -0.5, 2.0**-9, f32(0.1), 2.0**-24, f32(1e-5))
    rows = [[s.choice(scales), s.number(-600, 600) / 4] for _ in range(x.shape[1])]
    if "pc" not in name:
        rows = [rows[0]] * len(rows)

    def value(index: tuple[int, ...]) -> int:
        scale, offset = rows[index[1]]
        t = f32(f32(to_float(x.at(index), source) * scale) + offset)
        return saturate(ROUNDINGS[mode](Fraction(t)), out)

    expected = made(out, x.shape, value)
    modes = {"dst_rounding_mode": mode, "src_rounding_mode": source, "out_dtype": asked}
    if "pc" in name:
        return example(make(name, **modes), [x, lines(F32, rows)], expected)
    return example(make(name, scale=rows[0][0], offset=rows[0][1], **modes), [x], expected)


@oracle("tpu_bdc_fp32_dequant", "tpu_bdc_fp32_pc_dequant")
def fp32_dequant(name: str, s: Sampler) -> Example:
    x, mode = s.tensor(s.choice(SMALL), s.shape(4, 4, 2)), s.number(0, 6)
    channels = x.shape[1]
    offsets = [s.integer(x.dtype) for _ in range(channels)]
    scales = [f32(s.number(-(10**6), 10**6) / 30011) for _ in range(channels)]
    if "pc" not in name:
        offsets, scales = offsets[:1] * channels, scales[:1] * channels
    expected = made(F32, x.shape, lambda i: f32(f32(x.at(i) - offsets[i[1]]) * scales[i[1]]))
    if "pc" in name:
        operands = [x, lines(I32, [[v] for v in offsets]), lines(F32, [[v] for v in scales])]
        return example(make(name, rounding_mode=mode), list(operands), expected)
    return example(make(name, rounding_mode=mode, offset=offsets[0], scale=scales[0]), [x], expected)


# --- element by element -----------------------------------------------------------------------------------------------


def operands(s: Sampler, first: DType, second: DType, words: bool = False) -> tuple[Tensor, Tensor, dict[str, Any]]:
    """Draw two tensors, of which the second may be broadcast along N, H and W, and the broadcast flags."""
    shape = s.shape(4, 4, 3)
    one = [s.number(0, 3) == 0 and axis != 1 for axis in range(4)]
    x1 = s.tensor(second, [1 if single else n for single, n in zip(one, shape, strict=True)])
    flags = {} if words else {"input1_n_is1": one[0], "input1_h_is1": one[2], "input1_w_is1": one[3]}
    return s.tensor(first, shape), x1, flags


def second_at(tensor: Tensor, index: tuple[int, ...]) -> int:
    return int(tensor.at([0 if n == 1 else i for i, n in zip(index, tensor.shape, strict=True)]))


@oracle(*(f"{QUANTIZED}.BM_{what}" for what in ("ADD", "SUB", "MAX", "MIN", "AND", "OR", "XOR")))
def combine(name: str, s: Sampler) -> Example:
    what = name.split("_")[-1].lower()
    first = s.choice(SMALL)
    second, asked, out = first, None, first
    if what in ("add", "sub"):
        second = s.choice([dtype for dtype in SMALL if dtype.bits == first.bits])
        asked, out = s.out(SMALL, first)
    x0, x1, flags = operands(s, first, second)
    function = LOGIC[what] if what in LOGIC else ARITHMETIC[what]
    value = made(out, x0.shape, lambda i: saturate(function(x0.at(i), second_at(x1, i)), out))
    given = {} if asked is None else {"out_dtype": asked}
    return example(make(name, **flags, **given), [x0, x1], value)


@oracle(f"{QUANTIZED}.BM_MUL", f"{QUANTIZED}.BM_MAC")
def product(name: str, s: Sampler) -> Example:
    x0, x1, flags = operands(s, s.choice(BYTES), s.choice(BYTES))
    right, left = s.number(0, 31), s.number(0, 31)
    if name.endswith("MUL"):
        asked, out = s.out(SMALL, x0.dtype)
        value = made(out, x0.shape, lambda i: saturate(rrs(x0.at(i) * second_at(x1, i), right), out))
        return example(make(name, rshift_bit=right, out_dtype=asked, **flags), [x0, x1], value)
    old = s.tensor(s.choice((I16, U16)), x0.shape)
    asked, out = s.out((I16, U16), old.dtype)

    def total(index: tuple[int, ...]) -> int:
        return saturate(rrs(x0.at(index) * second_at(x1, index) + (old.at(index) << left), right), out)

    op = make(name, rshift_bit=right, lshift_bit=left, out_dtype=asked, **flags)
    return example(op, [x0, x1, old], made(out, x0.shape, total))


def shifted(value: int, amount: int, dtype: DType, arithmetic: bool) -> int:
    """Shift without saturation: bits beyond the type are dropped. A logical shift treats the bits as unsigned."""
    if amount >= 0:
        return value << min(amount, 64)
    return (value if arithmetic else value % (1 << dtype.bits)) >> min(-amount, 64)


@oracle(f"{QUANTIZED}.BM_SHIFT", f"{WORDS}.BM_SHIFT")
def shift(name: str, s: Sampler) -> Example:
    words, arithmetic = name.startswith(f"{WORDS}."), s.flag()
    first = s.choice((I32, U32) if words else (I16, U16))
    x0, x1, flags = operands(s, first, first if words else I16, words)
    if s.flag():
        low = -40 if x1.dtype.is_signed else 0
        x1 = Tensor(x1.dtype, x1.shape, list(s.numbers(low, 40, math.prod(x1.shape))))
    asked, out = (None, first) if words else s.out((I16, U16), first)

    def value(index: tuple[int, ...]) -> int:
        amount = second_at(x1, index)
        if words:
            amount = wrap(amount % 64 * 4, I8) // 4  # the sign of six bits
        return wrap(shifted(x0.at(index), amount, first, arithmetic), out)

    given = {} if asked is None else {"out_dtype": asked}
    return example(make(name, shift_type=int(arithmetic), **flags, **given), [x0, x1], made(out, x0.shape, value))


@oracle(*(f"{WORDS}.BM_{what}" for what in ("AND", "OR", "XOR", "SE", "CPY")), f"{QUANTIZED}.BM_CPY")
def patterns(name: str, s: Sampler) -> Example:
    what, words = name.split("_")[-1].lower(), name.startswith(f"{WORDS}.")
    dtype = s.choice((I32, U32) if words else (I8, U8))
    x0, x1, flags = operands(s, dtype, dtype, words)
    if what == "cpy":
        return example(make(name, **flags), [x0, x1], x0)
    if what == "se":
        few = s.numbers(0, 1, math.prod(x0.shape) + math.prod(x1.shape))
        x0 = Tensor(dtype, x0.shape, list(few[: len(x0.values)]))
        x1 = Tensor(dtype, x1.shape, list(few[len(x0.values) :]))
        bits = {0.0: 0, 1.0: 0x3F800000, 2.0: 0x40000000, 0.5: 0x3F000000}
        chosen = s.choice(list(bits))
        expected = made(dtype, x0.shape, lambda i: bits[chosen] if x0.at(i) == second_at(x1, i) else 0)
        return example(make(name, select_value=chosen), [x0, x1], expected)
    function = LOGIC[what]
    return example(make(name), [x0, x1], made(dtype, x0.shape, lambda i: function(x0.at(i), second_at(x1, i))))
