"""Linear operators with 16 bits in the form of the quantizer: products of bytes, whose INT32 sums are added."""

import numpy as np

from tests.support.native_cases.draft import Draft, kind
from tests.support.native_cases.elementwise import image
from tests.support.native_cases.linear import BYTES, Window, bias_for, exact_product, window
from tests.support.native_cases.rescaling import follow, requantize
from tpuconvert.schema.arithmetic.fixed_point import RoundingMode, multiplier_shift
from tpuconvert.schema.graph.graph import Value
from tpuconvert.schema.ops.arithmetic import Add, Sub
from tpuconvert.schema.ops.clamp import Clamp
from tpuconvert.schema.ops.convolution.conv_v2 import ConvV2
from tpuconvert.schema.ops.matmul.matrix_mul_v2 import MatrixMulV2
from tpuconvert.schema.ops.quantization.dequant_int_to_fp32 import DequantIntToFp32
from tpuconvert.schema.ops.quantization.requant_int32 import RequantInt32, RequantMode
from tpuconvert.schema.ops.shifts.arithmetic_shift import ArithmeticShift
from tpuconvert.schema.types import I8, I16, I32, U8, Array, DType, Scalar


def split(draft: Draft, x: Value) -> tuple[Value, Value]:
    high = draft.add(ArithmeticShift(-8, RoundingMode.HALF_UP, out_dtype=I8), x)
    rounded = draft.add(ArithmeticShift(8, RoundingMode.DOWN, out_dtype=I16), high)
    return high, draft.add(Sub(out_dtype=I8), x, rounded)


def bytes_of_weights(draft: Draft, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """High and low bytes: of any value, or small ones, for which more sums fit 32 bits."""
    most = draft.pick(127, 127, 20, 3)
    high = draft.rng.integers(-most, most, shape, endpoint=True).astype(np.int8)
    return high, draft.data(I8, shape)


def accumulator(draft: Draft, x: Value, made: Window | None, *, zero: int = 0) -> tuple[Value, int]:
    """256 * top + middle of a conv, or of a matmul without a window; and the bound of its magnitude."""
    if made is None:
        (_, depth), channels = x.type.static_shape, draft.small(90)
        high, low = bytes_of_weights(draft, (channels, depth))
    else:
        high, low = bytes_of_weights(draft, (made.channels, made.shape[1] // made.parameters["groups"], *made.kernel))
    heavy, light = (np.abs(array.reshape(len(array), -1).astype(np.int64)).sum(axis=1) for array in (high, low))
    is_wide = x.dtype is I16
    largest = max(x.dtype.max - zero, zero - x.dtype.min)
    bound = heavy * 32896 + light * 128 if is_wide else (256 * heavy + light) * largest
    bias = bias_for(draft, np.minimum(bound, I32.max))

    def product(operand: Value, weights: Array, bias: Array | None = None) -> Value:
        if made is None:
            operands = [operand, draft.constant(np.ascontiguousarray(weights.T))]
            operands += [] if bias is None else [draft.constant(bias)]
            return draft.add(MatrixMulV2(has_bias=bias is not None, lzp_val=zero), *operands)
        operands = [operand, draft.constant(weights)]
        operands += [] if bias is None else [draft.constant(bias.reshape(1, -1, 1, 1))]
        return draft.add(ConvV2(**made.parameters, has_bias=bias is not None, izp_val=zero), *operands)

    first, rest = split(draft, x) if is_wide else (x, None)
    top, middle = product(first, high), product(first, low, bias)
    if rest is not None:
        # The quantizer uses one constant for both.
        other = draft.add(top.producer.op, rest, top.producer.inputs[1])
        middle = draft.add(Add(), middle, other)
        if draft.chance(0.1):  # another user of the bytes
            draft.graph.output(rest)
    grown = draft.add(ArithmeticShift(8, RoundingMode.DOWN), top)
    return draft.add(Add(), grown, middle), int(bound.max())


def multipliers(draft: Draft, factors: list[float]) -> list[tuple[int, int]]:
    """Multipliers and shifts: of 24 bits as in calibrated networks, or of 31 bits."""
    is_short = draft.chance(0.8)
    return [multiplier_shift(float(np.float32(factor)) if is_short else factor) for factor in factors]


def to_words(draft: Draft, sums: Value) -> Value:
    """Requantize as the quantizer does: one rounding, with one factor or one per channel."""
    channels = sums.type.static_shape[1]
    is_per_channel = draft.chance(0.7)
    found = int(np.abs(draft.arrays[sums].astype(np.int64)).max(initial=1))
    real = [draft.rng.uniform(0.3, 1.5) * 2**15 / max(found, 1) for _ in range(channels if is_per_channel else 1)]
    pairs = multipliers(draft, real)
    op = RequantInt32(
        is_mul_shift_pc=is_per_channel,
        multiplier_val=1 if is_per_channel else pairs[0][0],
        shift_val=0 if is_per_channel else pairs[0][1] - 31,
        multiplier_vec=tuple(multiplier for multiplier, _ in pairs) if is_per_channel else (),
        shift_vec=tuple(shift - 31 for _, shift in pairs) if is_per_channel else (),
        offset_val=draft.pick(0, 0, 0, draft.number(-9000, 9000)),
        mode=RequantMode.MULTIPLIER_SHIFT,
        out_dtype=I16,
    )
    return draft.add(op, sums)


def to_bytes(draft: Draft, words: Value) -> Value:
    """Requantize 16-bit results to bytes, with one factor or one per channel."""
    out = draft.pick(I8, U8)
    is_per_channel = draft.chance(0.5)
    count = words.type.static_shape[1] if is_per_channel else 1
    pairs = multipliers(draft, [float(draft.rng.uniform(0.3, 1.5) / 128) for _ in range(count)])
    op = RequantInt32(
        is_mul_shift_pc=is_per_channel,
        multiplier_val=1 if is_per_channel else pairs[0][0],
        shift_val=0 if is_per_channel else pairs[0][1] - 31,
        multiplier_vec=tuple(multiplier for multiplier, _ in pairs) if is_per_channel else (),
        shift_vec=tuple(shift - 31 for _, shift in pairs) if is_per_channel else (),
        offset_val=draft.pick(0, 0, draft.number(out.min, out.max)),
        mode=RequantMode.MULTIPLIER_SHIFT,
        out_dtype=out,
    )
    return draft.add(op, words)


def finish(draft: Draft, sums: Value) -> None:
    """Add requantizations and clamps in the form of the quantizer, or any epilogue."""
    if draft.chance(0.1):
        follow(draft, requantize(draft, sums))
        return
    y = to_words(draft, sums)
    if draft.chance(0.5):
        low, high = sorted((draft.number(-3000, 3000), draft.number(0, 20000)))
        y = draft.add(Clamp(Scalar(I16, low), Scalar(I16, high)), y)
    if draft.chance(0.5):
        y = to_bytes(draft, y)
    if draft.chance(0.2):
        y = draft.add(DequantIntToFp32(scale_val=0.37, offset_val=draft.number(-5, 5)), y)


def operand(draft: Draft, shape: tuple[int, ...]) -> tuple[Value, int]:
    dtype: DType = draft.pick(I16, I16, I16, I8, U8)
    x = image(draft, dtype, shape) if len(shape) == 4 and draft.chance(0.3) else draft.input(dtype, shape)
    return x, 0 if dtype is I16 else draft.pick(0, dtype.min, draft.number(dtype.min, dtype.max))


@kind(3000)
def conv_int16(draft: Draft) -> None:
    made = window(draft, style=draft.pick("dense", "dense", "grouped", "depthwise", "depthwise", "large"))
    x, zero = operand(draft, made.shape)
    finish(draft, accumulator(draft, x, made, zero=zero)[0])


def words_with_limits(draft: Draft, sums: Value) -> None:
    """Requantize sums to 16 bits, often with a clamp."""
    y = to_words(draft, sums)
    if draft.chance(0.5):
        low, high = sorted((draft.number(-20000, 3000), draft.number(0, 32767)))
        draft.add(Clamp(Scalar(I16, low), Scalar(I16, high)), y)


@kind(1500)
def conv_int8_to_words(draft: Draft) -> None:
    """Add an 8-bit convolution before a node of 16 bits."""
    made = window(draft, style=draft.pick("dense", "dense", "grouped", "depthwise", "large"))
    words_with_limits(draft, exact_product(draft, draft.input(draft.pick(*BYTES), made.shape), made))


@kind(60)
def winograd_to_words(draft: Draft) -> None:
    """Add an 8-bit convolution with few outputs, whose shape suits the Winograd kernel."""
    names = ("pad_h_t", "pad_h_b", "pad_w_l", "pad_w_r", "dh", "dw", "stride_h", "stride_w", "groups")
    shape = (1, draft.pick(128, 320), draft.pick(20, 24, 28), draft.pick(16, 20, 28))
    made = Window(shape, draft.pick(64, 80), (3, 3), dict.fromkeys(names, 1))
    words_with_limits(draft, exact_product(draft, draft.input(draft.pick(*BYTES), shape), made))


@kind(800)
def matrix_mul_int16(draft: Draft) -> None:
    x, zero = operand(draft, (draft.small(50), draft.small(draft.pick(60, 500))))
    finish(draft, accumulator(draft, x, None, zero=zero)[0])
