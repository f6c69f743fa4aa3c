"""Sums and products of two tensors in every lowered form, pools, tables, integer softmax, shift arithmetic."""

import math

import numpy as np

from tests.support.native_cases.draft import Draft, kind
from tests.support.native_cases.rescaling import add_limit, follow, requantize, some_shape, table
from tpuconvert.schema.arithmetic.fixed_point import RoundingMode, multiplier_shift
from tpuconvert.schema.graph.graph import Value, static
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.arithmetic import Add, Max, Min, Mul, Sub
from tpuconvert.schema.ops.arithmetic_with_scalar import Adds, Muls
from tpuconvert.schema.ops.bit_logic import BitAnds
from tpuconvert.schema.ops.cast import Cast
from tpuconvert.schema.ops.concat import Concat
from tpuconvert.schema.ops.index_select import IndexSelect
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.pool import Pool, PoolType
from tpuconvert.schema.ops.pool_int import OutCeilMode, PoolInt, PoolQuantMode
from tpuconvert.schema.ops.quantization.requant_int32 import RequantInt32, RequantMode
from tpuconvert.schema.ops.reduce import Reduce, ReduceMethodType
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.ops.shifts.arithmetic_shift import ArithmeticShift
from tpuconvert.schema.ops.shifts.shift_arithmetic import (
    AddShift,
    AddsShift,
    MulShift,
    MulsShift,
    RsubsShift,
    SubShift,
    SubsShift,
)
from tpuconvert.schema.ops.softmax_int import SoftmaxInt
from tpuconvert.schema.types import I8, I16, I32, U8, U16, Chip, DType, Scalar

BYTES = (I8, U8)


def image_shape(draft: Draft) -> tuple[int, int, int, int]:
    return draft.pick(1, 1, 2), draft.small(70), draft.small(14), draft.small(14)


def image(draft: Draft, dtype: DType, shape: tuple[int, ...]) -> Value:
    """Add an input of this shape; it may be a permuted channels-last input."""
    if len(shape) == 4 and draft.chance(0.4):
        n, c, h, w = shape
        return draft.add(Permute((0, 3, 1, 2)), draft.input(dtype, (n, h, w, c)))
    return draft.input(dtype, shape)


# Sums and products of two tensors


def widen(draft: Draft, x: Value, multiplier: int, shift: int, offset: int) -> Value:
    op = RequantInt32(
        multiplier_val=multiplier, shift_val=shift, offset_val=offset, mode=RequantMode.TFLITE_LSHIFT, out_dtype=I32
    )
    return draft.add(op, x)


def last_rescale(draft: Draft, total: Value, factors: list[float], zero: int, out: DType, *, twice: bool) -> Value:
    """Add one requantization to the result type. UINT8 with two roundings goes through INT16."""
    pairs = [multiplier_shift(factor) for factor in factors]
    is_pc = len(pairs) > 1
    narrow = twice and out is U8
    shifts = [shift - (0 if twice else 31) for _, shift in pairs]
    op = RequantInt32(
        is_mul_shift_pc=is_pc,
        multiplier_val=1 if is_pc else pairs[0][0],
        shift_val=0 if is_pc else shifts[0],
        multiplier_vec=tuple(multiplier for multiplier, _ in pairs) if is_pc else (),
        shift_vec=tuple(shifts) if is_pc else (),
        offset_val=zero,
        mode=RequantMode.TFLITE_LSHIFT if twice else RequantMode.MULTIPLIER_SHIFT,
        out_dtype=I16 if narrow else out,
    )
    y = draft.add(op, total)
    return draft.add(Cast(U8), y) if narrow else y


def scales_of(draft: Draft, count: int) -> list[float]:
    return [2.0 ** float(draft.rng.uniform(-8, 2)) for _ in range(count)]


@kind(700)
def sum_in_common_units(draft: Draft) -> None:
    """The add of BM1686 with common units: exact integer multiples, then one requantization."""
    shape = image_shape(draft)
    channels = shape[1] if draft.chance(0.3) else 1
    dtypes = [draft.pick(*BYTES) for _ in range(2)]
    scales = [scales_of(draft, channels) for _ in range(2)]
    if draft.chance(0.1):
        scales[1] = scales[0]
    units = [max(pair) / (2**15 - 1) for pair in zip(*scales, strict=True)]
    terms = []
    for dtype, own in zip(dtypes, scales, strict=True):
        zero = draft.pick(0, dtype.min, dtype.max, draft.number(dtype.min, dtype.max))
        whole = [round(scale / unit) for scale, unit in zip(own, units, strict=True)]
        x = image(draft, dtype, shape)
        if channels == 1:
            terms.append(widen(draft, x, whole[0] << 16, 15, -zero * whole[0]))
            continue
        op = RequantInt32(
            is_mul_shift_pc=True,
            multiplier_vec=tuple(number << 16 for number in whole),
            shift_vec=(15,) * channels,
            is_offset_pc=zero != 0,
            offset_vec=tuple(-zero * number for number in whole) if zero else (),
            mode=RequantMode.TFLITE_LSHIFT,
            out_dtype=I32,
        )
        terms.append(draft.add(op, x))
    if draft.chance(0.1):
        terms[1] = terms[0]
    total = draft.add(draft.pick(Add(), Sub()), *terms)
    out = draft.pick(*BYTES)
    result = max(max(own) for own in scales) * draft.pick(1.0, 2.0, 1.3)
    factors = [unit / result for unit in units]
    y = last_rescale(draft, total, factors, draft.pick(0, out.min, out.max, 7), out, twice=False)
    follow(draft, y, 1)


@kind(300)
def sum_of_words(draft: Draft) -> None:
    """The add of BM1686 with 16 bits: operands of 16 or 8 bits times whole numbers, then one requantization."""
    shape = image_shape(draft)
    terms = []
    for _ in range(2):
        dtype = draft.pick(I16, I16, I8)
        whole = draft.pick(2**14, draft.number(1, 2**14))
        terms.append(widen(draft, image(draft, dtype, shape), whole << 16, 15, 0))
    total = draft.add(draft.pick(Add(), Sub()), *terms)
    out = draft.pick(I16, I16, *BYTES)
    y = last_rescale(draft, total, [float(draft.rng.uniform(0.4, 1.5)) / 2**14], 0, out, twice=False)
    follow(draft, y, 1)


@kind(300)
def wide_look_up(draft: Draft) -> None:
    """A function with 16 bits: the operand is rounded to a position, and integers are gathered as FLOAT32."""
    shift = draft.pick(0, 2, 4)
    x = image(draft, I16, image_shape(draft))
    if shift:
        op = RequantInt32(
            multiplier_val=1 << 30, shift_val=-30 - shift, mode=RequantMode.MULTIPLIER_SHIFT, out_dtype=I16
        )
        x = draft.add(op, x)
    place = widen(draft, x, 1 << 30, 1, 1 << 15 >> shift)
    out = draft.pick(I16, I16, I8, I32)
    low, high = max(out.min, -(2**24)), min(out.max, 2**24)
    entries = draft.rng.integers(low, high, (1 << 16 >> shift) + 1, endpoint=True).astype(np.float32)
    flat = draft.add(Reshape(reshape_param=(-1,)), place)
    chosen = draft.add(IndexSelect(dim=0), draft.constant(entries), flat)
    whole = draft.add(Cast(out), chosen)
    if draft.chance(0.1):
        draft.graph.output(chosen)
    y = draft.add(Reshape(reshape_param=static(place.type.static_shape)), whole)
    follow(draft, y, 1)


@kind(700)
def sum_as_tflite(draft: Draft) -> None:
    """The sum as TFLite's reference computes it: 20 fraction bits, a rescale per operand, a rescale of the sum."""
    shape = image_shape(draft)
    dtype = draft.pick(*BYTES)
    scales = scales_of(draft, 2)
    twice_the_larger = 2 * max(scales)
    terms = []
    for scale in scales:
        zero = draft.pick(0, dtype.min, dtype.max, draft.number(dtype.min, dtype.max))
        x = image(draft, dtype, shape)
        if draft.chance(0.1):
            x = draft.add(Active(ActiveType.ACTIVE_RELU), x)
        wide = widen(draft, x, 1 << 30, 21, -(zero << 20))
        terms.append(widen(draft, wide, *multiplier_shift(scale / twice_the_larger), 0))
    total = draft.add(draft.pick(Add(), Sub()), *terms)
    result = max(scales) * draft.pick(1.0, 2.0, 0.7)
    zero = draft.pick(0, dtype.min, dtype.max, 7)
    follow(draft, last_rescale(draft, total, [twice_the_larger / 2**20 / result], zero, dtype, twice=True), 1)


@kind(600)
def product_of_two(draft: Draft) -> None:
    """Multiplications: 16 bits without zero points, 32 bits with zero points; the second operand may broadcast."""
    shape = image_shape(draft)
    other = shape if draft.chance(0.6) else (shape[0], shape[1], 1, 1)
    a, b = image(draft, draft.pick(*BYTES), shape), draft.input(draft.pick(*BYTES), other)
    scale = scales_of(draft, 1)[0] / 256
    if draft.chance(0.5):
        unsigned = a.dtype is U8 and b.dtype is U8
        total = draft.add(Mul(out_dtype=U16 if unsigned else I16), a, b)
    else:
        wide = [widen(draft, x, 1 << 30, 1, -draft.pick(0, x.dtype.min, x.dtype.max, 5)) for x in (a, b)]
        total = draft.add(Mul(out_dtype=I32), *wide)
    out = draft.pick(*BYTES)
    zero = draft.pick(0, out.min, out.max)
    follow(draft, last_rescale(draft, total, [scale], zero, out, twice=draft.chance(0.4)), 1)


@kind(500)
def sums_of_every_type(draft: Draft) -> None:
    """add, sub, mul, max and min of integers without requantization, with broadcasting and saturation."""
    shape = some_shape(draft)
    dtype = draft.pick(I8, U8, I16, U16, I32)
    other = tuple(1 if draft.chance(0.2) else extent for extent in shape)
    a, b = draft.input(dtype, shape), draft.input(dtype, other)
    kinds = [Add, Sub, Mul, Max, Min] if dtype.bits < 32 else [Add, Sub, Max, Min]
    y = draft.add(draft.pick(*kinds)(), a, b)
    if draft.chance(0.4):
        requantize(draft, y)


@kind(700)
def shift_arithmetic(draft: Draft) -> None:
    """The rounding-shift operators of BM1684, alone and combined as in its adds and multiplications."""
    draft.chip = Chip.BM1684
    shape = image_shape(draft) if draft.chance(0.7) else some_shape(draft)
    if draft.chance(0.4):
        bits = draft.number(0, 6)
        terms = []
        for _ in range(2):
            x = image(draft, draft.pick(*BYTES), shape)
            scale = Scalar(U8, draft.number(128, 255))
            terms.append(draft.add(MulsShift(scalar=scale, shift=draft.number(0, 12), out_dtype=I16), x))
        kind_of_sum = draft.pick(AddShift, SubShift)
        out = draft.pick(*BYTES) if kind_of_sum is AddShift else I8
        follow(draft, draft.add(kind_of_sum(shift=bits, out_dtype=out), *terms), 1)
    elif draft.chance(0.4):
        a, b = (image(draft, draft.pick(*BYTES), shape) for _ in range(2))
        unsigned = a.dtype is U8 and b.dtype is U8
        exact = draft.add(Mul(out_dtype=U16 if unsigned else I16), a, b)
        scale = Scalar(U8, draft.number(128, 255))
        out = draft.pick(*BYTES) if unsigned else I8
        draft.add(MulsShift(scalar=scale, shift=draft.number(0, 31), out_dtype=out), exact)
    elif draft.chance(0.5):
        dtype = draft.pick(I8, U8, I16, U16)
        op = draft.pick(AddShift, SubShift, MulShift)
        draft.declines(op is MulShift and dtype.bits > 8)
        op_made = op(shift=draft.pick(0, 1, 7, 15, 31), out_dtype=dtype if op is not SubShift else None)
        draft.add(op_made, draft.input(dtype, shape), draft.input(dtype, shape))
    else:
        dtype = draft.pick(I8, U8, I16, U16)
        scalar = Scalar(draft.pick(*BYTES), draft.number(0, 127))
        op = draft.pick(AddsShift, SubsShift, MulsShift, RsubsShift)
        draft.add(op(scalar=scalar, shift=draft.pick(0, 1, 7, 15, 31)), draft.input(dtype, shape))


@kind(600)
def arithmetic_shifts(draft: Draft) -> None:
    """arithmetic_shift of every type in every rounding, alone and after a 16-bit multiplication."""
    shape = some_shape(draft)
    dtype = draft.pick(I8, U8, I16, U16, I32, I32)
    x = draft.input(dtype, shape)
    if dtype is I32 and draft.chance(0.5):
        x = draft.add(Mul(out_dtype=I32), draft.input(I16, shape), draft.input(I16, shape))
    outs = (I8, I16, I32) if dtype.is_signed else (U8, U16)
    shift = draft.pick(draft.number(-64, 31), draft.number(-20, -1), draft.number(-20, -1), -15, -18, -31, -32, -33, 0)
    mode = draft.pick(*(mode for mode in RoundingMode if mode is not RoundingMode.UNKNOWN))
    follow(draft, draft.add(ArithmeticShift(shift, mode, draft.pick(*outs)), x), 1)


@kind(300)
def bits_of_numbers(draft: Draft) -> None:
    """bit_ands of every type, alone and as in decomposed 16-bit activations."""
    dtype = draft.pick(I8, U8, I16, U16, I32)
    x = draft.input(dtype, some_shape(draft))
    y = draft.add(BitAnds(Scalar(dtype, draft.pick(255 if dtype.bits > 8 else 127, dtype.min, dtype.max, 0, 12))), x)
    draft.add(draft.pick(Cast(U8), Adds(scalar=Scalar(dtype, 1)), Active(ActiveType.ACTIVE_RELU)), y)


@kind(200)
def products_with_a_number(draft: Draft) -> None:
    """INT32 times 1, including products that saturate."""
    number = draft.pick(2, 3, -1, -3, 1 << 16, I32.max, -I32.max, 0, 1)
    y = draft.add(Muls(scalar=Scalar(I32, number)), draft.input(I32, some_shape(draft)))
    draft.add(draft.pick(Cast(I16), Adds(scalar=Scalar(I32, 7)), Active(ActiveType.ACTIVE_RELU)), y)


# Pools


@kind(800)
def pool(draft: Draft) -> None:
    """Maximum and average pooling of bytes: padding counted or not, windows past the image."""
    shape = (draft.pick(1, 2), draft.small(70), draft.small(16), draft.small(16))
    kernels = [draft.small(min(extent, 7)) for extent in shape[2:]]
    if draft.chance(0.1):
        kernels = list(shape[2:])
    pads = [draft.number(0, kernel // 2) for kernel in kernels]
    op = Pool(
        stride_h=draft.number(1, 3),
        stride_w=draft.number(1, 3),
        pad_h=pads[0],
        pad_w=pads[1],
        pad_h_offset=draft.number(-min(pads[0], 1), 1) if pads[0] or draft.chance(0.3) else 0,
        pad_w_offset=draft.number(-min(pads[1], 1), 1) if pads[1] or draft.chance(0.3) else 0,
        kernel_h=kernels[0],
        kernel_w=kernels[1],
        pooling_type=draft.pick(PoolType.MAX, PoolType.AVE),
        is_global_pooling=draft.chance(0.15),
        is_ceil_mode=draft.chance(0.4),
        is_ave_count_zero_pad=draft.chance(0.5),
        ensure_pool_image=draft.chance(0.3),
    )
    follow(draft, draft.add(op, image(draft, draft.pick(*BYTES), shape)), 1)


@kind(600)
def pool_int(draft: Draft) -> None:
    """Averages by division or multiplier, and maxima with and without their indices."""
    shape = (draft.pick(1, 2), draft.small(70), draft.small(14), draft.small(14))
    kernels = [draft.small(min(extent, 7)) for extent in shape[2:]]
    if draft.chance(0.2):
        kernels = list(shape[2:])
    is_average = draft.chance(0.8)
    has_indices = not is_average and draft.chance(0.3)
    area = kernels[0] * kernels[1]
    multiplier, exponent = multiplier_shift(float(draft.rng.uniform(0.2, 2)) / area)
    pads = [draft.number(0, (kernel - 1) // 2) for kernel in (kernels[0], kernels[0], kernels[1], kernels[1])]
    mode = draft.pick(*PoolQuantMode)
    rescales = mode is PoolQuantMode.MULTIPLIER_SHIFT
    dtype = draft.pick(I8, I8, U8, U8, I16)
    op = PoolInt(
        stride_h=draft.number(1, 3),
        stride_w=draft.number(1, 3),
        pad_h_t=pads[0],
        pad_h_b=pads[1],
        pad_w_l=pads[2],
        pad_w_r=pads[3],
        kernel_h=kernels[0],
        kernel_w=kernels[1],
        is_avg_pooling=is_average,
        out_ceil_mode=OutCeilMode.floor,
        quant_mode=mode,
        scale=draft.pick(multiplier, multiplier, -multiplier, I32.max, 0) if rescales else 1,
        rshift=draft.pick(31 - exponent, 31 - exponent, 0, 63) if rescales else 0,
    )
    results = draft.add_all(op, image(draft, dtype, shape))
    if not has_indices:
        draft.graph.output(results[0])


@kind(300)
def reductions_of_integers(draft: Draft) -> None:
    """Sums, means and extremes along any axes."""
    shape = some_shape(draft)
    rank = len(shape)
    axes = tuple(sorted(draft.rng.permutation(rank)[: draft.number(1, rank)].tolist()))
    methods = [ReduceMethodType.REDUCE_MEAN, ReduceMethodType.REDUCE_MEAN, ReduceMethodType.REDUCE_SUM]
    methods += [ReduceMethodType.REDUCE_MAX, ReduceMethodType.REDUCE_MIN]
    draft.add(Reduce(axes, draft.pick(*methods), keep_dims=draft.chance(0.5)), image(draft, draft.pick(*BYTES), shape))


# Lookup tables


@kind(300)
def tables(draft: Draft) -> None:
    """Several lookup tables one after the other, with clamps between them."""
    x = image(draft, draft.pick(*BYTES), image_shape(draft))
    for _ in range(draft.number(1, 4)):
        x = table(draft, x) if draft.chance(0.6) else add_limit(draft, x)


@kind(300)
def joined_after_tables(draft: Draft) -> None:
    """Concatenation of operands, some of which are requantized to the common scale by lookup tables."""
    shape = image_shape(draft)
    axis = draft.pick(1, 1, 1, 2, 3, -3)
    parts = []
    for _ in range(draft.number(2, 4)):
        own = list(shape)
        own[axis % 4] = draft.small(40 if axis % 4 == 1 else 9)
        x = image(draft, U8, tuple(own))
        while draft.chance(0.5) or x.dtype is not U8:
            x = table(draft, x)
        parts.append(x)
    joined = draft.add(Concat(axis=axis), *parts)
    if draft.chance(0.5):
        table(draft, joined)


@kind(500)
def softmax_int(draft: Draft) -> None:
    dtype = draft.pick(*BYTES)
    channels = draft.small(draft.pick(30, 1100))
    shape: tuple[int, ...] = (draft.number(1, 3), channels)
    if draft.chance(0.5):
        shape = (draft.pick(1, 2), channels, draft.small(7), draft.small(7))
    scale = 2.0 ** float(draft.rng.uniform(-8, 0))
    powers = tuple(float(np.float32(math.exp(-step * scale))) for step in range(256))
    op = SoftmaxInt(
        table=powers,
        scale=draft.pick(256.0, 255.0, float(np.float32(draft.rng.uniform(1, 300)))),
        zero_point=draft.pick(dtype.min, 0, dtype.max, draft.number(dtype.min, dtype.max)),
    )
    draft.add(op, image(draft, dtype, shape))
