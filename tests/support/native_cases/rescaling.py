"""Epilogues of 32-bit accumulators: requant_int32 in every mode, alone and with clamps, casts and tables."""

import numpy as np

from tests.support.native_cases.draft import Draft, kind
from tpuconvert.schema.arithmetic.fixed_point import RoundingMode, multiplier_shift
from tpuconvert.schema.graph.graph import Value
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.cast import Cast
from tpuconvert.schema.ops.clamp import Clamp
from tpuconvert.schema.ops.quantization.dequant_int_to_fp32 import DequantIntToFp32
from tpuconvert.schema.ops.quantization.lut import Lut
from tpuconvert.schema.ops.quantization.requant_fp32_to_int import RequantFp32ToInt
from tpuconvert.schema.ops.quantization.requant_int32 import RequantInt32, RequantMode
from tpuconvert.schema.types import F32, I8, I16, I32, U8, U16, DType, Scalar

TWICE = (RequantMode.TFLITE_LSHIFT, RequantMode.TFLITE)
ROUNDINGS = [mode for mode in RoundingMode if mode is not RoundingMode.UNKNOWN]
MULTIPLIER_LIMITS = (I32.min, I32.min + 1, -(1 << 30), -1, 0, 1, 2, 1 << 30, I32.max - 1, I32.max)
SHIFT_LIMITS = (-64, -63, -62, -33, -32, -31, -1, 0, 1, 30, 31)


def factor(draft: Draft, mode: RequantMode, largest: int, out: DType) -> tuple[int, int]:
    """Draw a multiplier and a shift: ordinary values, values for which results are ties, and limits."""
    highest = 0 if mode is RequantMode.TFLITE else 31
    span = float(min(2.0 ** draft.number(3, out.bits + 1), 2.0**31))
    style = draft.number(0, 11)
    if style < 6:
        real = span * float(draft.rng.uniform(0.3, 1.2)) / max(largest, 1)
        multiplier, shift = multiplier_shift(min(real, 2.0**30))
        shift -= 0 if mode in TWICE else 31
        multiplier = -multiplier if draft.chance(0.05) else multiplier
    elif style < 9:
        right = max(0, round(np.log2(max(largest, 1) / span)))
        power = draft.number(20, 30) if mode in TWICE else draft.number(0, 20)
        multiplier = draft.pick(4, 4, 12, 20) << power >> 2 if power < 29 else 1 << power
        shift = (31 if mode in TWICE else 0) - power - right + draft.pick(0, 1, 2)
    elif style < 10:
        multiplier, shift = draft.pick(*MULTIPLIER_LIMITS), draft.pick(*SHIFT_LIMITS)
    else:
        multiplier, shift = draft.number(I32.min, I32.max), draft.number(-64, 31)
    return multiplier, min(max(shift, -64), highest)


def offsets(draft: Draft, out: DType) -> int:
    inside = draft.number(out.min, out.max)
    return draft.pick(0, 0, 1, -1, out.min, out.max, 128, -128, inside, 1 << 20, I32.min, I32.max)


def requantize(draft: Draft, x: Value, *, out: DType | None = None, per_channel: bool | None = None) -> Value:
    """requant_int32 with random parameters that suit the values of x."""
    mode = draft.pick(*RequantMode)
    if out is None:
        legal = (I8, I8, I8, I16, I32) if mode in TWICE else (I8, I8, U8, U8, I16, U16)
        out = draft.pick(*legal)
    largest = int(np.abs(draft.arrays[x].astype(np.int64)).max(initial=1))
    channels = x.type.static_shape[1] if x.rank > 1 else 1
    if per_channel is None:
        per_channel = draft.chance(0.6)
    is_pc, has_offsets = per_channel and x.rank > 1, per_channel and x.rank > 1 and draft.chance(0.4)
    if draft.chance(0.5):
        pairs = [factor(draft, mode, largest, out)] * channels
        if draft.chance(0.5):  # adjacent values that differ little
            pairs = [(min(max(m + index, I32.min), I32.max), s) for index, (m, s) in enumerate(pairs)]
    else:
        pairs = [factor(draft, mode, largest, out) for _ in range(channels)]
    op = RequantInt32(
        is_mul_shift_pc=is_pc,
        multiplier_val=1 if is_pc else pairs[0][0],
        shift_val=0 if is_pc else pairs[0][1],
        multiplier_vec=tuple(multiplier for multiplier, _ in pairs) if is_pc else (),
        shift_vec=tuple(shift for _, shift in pairs) if is_pc else (),
        is_offset_pc=has_offsets,
        offset_val=0 if has_offsets else offsets(draft, out),
        offset_vec=tuple(offsets(draft, out) for _ in range(channels)) if has_offsets else (),
        mode=mode,
        round_mode=RoundingMode.HALF_UP if mode in TWICE else draft.pick(*ROUNDINGS),
        out_dtype=out,
    )
    # Stored INT8 values have 128 added, perhaps by a later cast, and so has the offset: it may not fit 32 bits.
    draft.declines(max((op.offset_val, *op.offset_vec)) > I32.max - 128)
    return draft.add(op, x)


def add_limit(draft: Draft, x: Value) -> Value:
    """Add a clamp with limits inside the type."""
    low, high = sorted(draft.number(x.dtype.min, x.dtype.max) for _ in range(2))
    if draft.chance(0.2):
        low, high = x.dtype.min, x.dtype.max
    return draft.add(Clamp(Scalar(x.dtype, low), Scalar(x.dtype, high)), x)


def table(draft: Draft, x: Value) -> Value:
    dtype = draft.pick(I8, U8)
    shape = draft.pick((256,), (1, 256, 1, 1), (256, 1))
    entries = draft.rng.integers(dtype.min, dtype.max, 256, endpoint=True).astype(dtype.numpy)
    return draft.add(Lut(), x, draft.constant(entries.reshape(shape)))


def follow(draft: Draft, x: Value, most: int = 2) -> Value:
    """Add up to ``most`` operators that may be fused with a linear operator."""
    for _ in range(draft.number(0, most)):
        choice = draft.number(0, 4)
        if x.dtype.bits > 16:
            return x
        if choice == 0:
            x = draft.add(Active(ActiveType.ACTIVE_RELU), x)
        elif choice == 1:
            x = add_limit(draft, x)
        elif choice == 2:
            x = draft.add(Cast(draft.pick(I8, U8, I16, U16)), x)
        elif x.dtype.bits == 8:
            x = table(draft, x)
    return x


@kind(1200)
def requant_alone(draft: Draft) -> None:
    """requant_int32 of a graph input of every type that it takes."""
    x = draft.input(draft.pick(I32, I32, I16, U16, I8, U8), some_shape(draft))
    follow(draft, requantize(draft, x))


@kind(400)
def quantize_and_back(draft: Draft) -> None:
    """Float to integers and integers to float."""
    shape = some_shape(draft)
    channels = shape[1] if len(shape) > 1 else 1
    x = draft.input(F32, shape)
    if draft.chance(0.3):
        flat = draft.arrays[x].reshape(-1)
        flat[: min(3, flat.size)] = (np.nan, np.inf, -np.inf)[: min(3, flat.size)]
        if draft.chance(0.5):
            flat[:] = np.round(flat) + np.float32(0.5)
    is_pc = len(shape) > 1 and draft.chance(0.4)
    scales = [float(np.float32(2.0 ** draft.rng.uniform(-4, 6))) for _ in range(channels)]
    out = draft.pick(I8, I8, U8, I16, U16, I32)
    op = RequantFp32ToInt(
        is_scale_pc=is_pc,
        scale_val=draft.pick(1.0, 0.5, scales[0]),
        scale_vec=tuple(scales) if is_pc else (),
        offset_val=draft.pick(0, out.min, out.max, 3) if out.bits < 32 else 0,
        out_dtype=out,
    )
    draft.declines(out is I32)  # no chip has it
    y = draft.add(op, x)
    if draft.chance(0.5):
        y = follow(draft, y, 1)
        back = DequantIntToFp32(
            is_scale_pc=is_pc,
            scale_val=scales[0],
            scale_vec=tuple(scales) if is_pc else (),
            offset_val=draft.pick(0, 0, y.dtype.max, y.dtype.min),
        )
        draft.add(back, y)
        if draft.chance(0.2):
            draft.graph.output(y)
            draft.graph.output(next(value for value in draft.graph.values if not value.uses and value is not y))


@kind(300)
def casts(draft: Draft) -> None:
    x = draft.input(draft.pick(F32, I32, I16, U16, I8, U8), some_shape(draft))
    for _ in range(draft.number(1, 3)):
        op = Cast(draft.pick(F32, I32, I16, U16, I8, U8))
        draft.declines(x.dtype is F32 and op.out_dtype is F32)  # not a valid cast
        x = draft.add(op, x)


def some_shape(draft: Draft) -> tuple[int, ...]:
    """Draw a shape with one to five axes and odd extents, sometimes one element."""
    rank = draft.pick(1, 2, 3, 4, 4, 4, 5)
    return tuple(draft.small(12 if axis else 3) if rank > 2 else draft.small(70) for axis in range(rank))
