"""Convolutions with 8-bit results and a residual add, in the pattern of the quantizer."""

from math import isqrt

from tests.support.native_cases.draft import Draft, kind
from tests.support.native_cases.elementwise import BYTES, image
from tests.support.native_cases.linear import Window, exact_convolution, exact_convolution_of, exact_product
from tests.support.native_cases.rescaling import follow, requantize
from tpuconvert.schema.graph.graph import Value
from tpuconvert.schema.ops.arithmetic import Add, Sub
from tpuconvert.schema.ops.cast import Cast
from tpuconvert.schema.ops.concat import Concat
from tpuconvert.schema.ops.quantization.requant_int32 import RequantInt32, RequantMode
from tpuconvert.schema.types import I8, I32


def in_units(draft: Draft, x: Value, *, per_channel: bool) -> Value:
    """Add x minus a zero point, times integers, as INT32."""
    count = x.type.static_shape[1] if per_channel else 1
    most = draft.pick(1, 255, 32767)
    whole = [draft.number(0, most) for _ in range(count)]
    zero = draft.pick(0, x.dtype.min, x.dtype.max, draft.number(x.dtype.min, x.dtype.max))
    op = RequantInt32(
        is_mul_shift_pc=per_channel,
        multiplier_val=1 if per_channel else whole[0] << 16,
        shift_val=0 if per_channel else 15,
        multiplier_vec=tuple(number << 16 for number in whole) if per_channel else (),
        shift_vec=(15,) * count if per_channel else (),
        is_offset_pc=per_channel,
        offset_val=0 if per_channel else -zero * whole[0],
        offset_vec=tuple(-zero * number for number in whole) if per_channel else (),
        mode=RequantMode.TFLITE_LSHIFT,
        out_dtype=I32,
    )
    return draft.add(op, x)


def bytes_of_convolution(draft: Draft, sums: Value) -> Value:
    y = follow(draft, requantize(draft, sums, out=I8), draft.pick(0, 0, 1))
    return y if y.dtype.bits == 8 else draft.add(Cast(I8), y)


@kind(2000)
def residual_convolution(draft: Draft) -> None:
    """The sum of a convolution's bytes and others, shifted to bytes; the result perhaps a part of a concatenation."""
    style = draft.pick("dense", "dense", "dense", "grouped", "depthwise", "large")
    sums = exact_convolution(draft, style, transposed=draft.chance(0.05))
    y = bytes_of_convolution(draft, sums)
    shape = y.type.static_shape
    first = draft.graph.inputs[0]
    if first.type.static_shape == shape and draft.chance(0.5):
        other = first
    elif draft.chance(0.2):
        x = image(draft, I8, shape)
        again = bytes_of_convolution(draft, exact_convolution_of(draft, x, "dense", shape[1]))
        other = again if again.type.static_shape == shape else x
    else:
        other = image(draft, draft.pick(*BYTES), shape)
    result = residual_add(draft, y, other)
    if draft.chance(0.4) and other.dtype is result.dtype:
        draft.add(Concat(axis=1), *draft.pick((result, other), (other, result)))
    elif draft.chance(0.1):
        draft.graph.output(result)
        draft.graph.output(y)
    draft.declines()  # cases in which the convolution itself is not fused


def residual_add(draft: Draft, y: Value, other: Value) -> Value:
    """Add two tensors times integers, shifted to bytes."""
    operands = [in_units(draft, value, per_channel=draft.chance(0.5)) for value in (y, other)]
    if draft.chance(0.5):
        operands.reverse()
    total = draft.add(draft.pick(Add(), Add(), Sub()), *operands)
    power = draft.pick(0, 30, draft.number(1, 29))
    shift = draft.pick(draft.number(1, 24), draft.number(8, 16))
    out = draft.pick(*BYTES)
    op = RequantInt32(
        multiplier_val=(1 << power) + draft.pick(0, 0, 0, 0, 0, 0, 1),
        shift_val=-shift - power,
        offset_val=draft.pick(0, out.min, out.max, draft.number(-300, 300)),
        mode=RequantMode.MULTIPLIER_SHIFT,
        out_dtype=out,
    )
    return draft.add(op, total)


@kind(100)
def inverted_residual(draft: Draft) -> None:
    """Expansion, depthwise convolution and projection, large enough to be one step; perhaps with a residual add."""
    expanded = draft.pick(32, 33, 48, 64)
    side = isqrt(2**18 // expanded) + draft.number(1, 3)
    x = draft.input(draft.pick(*BYTES), (1, draft.number(3, 12), side, side + draft.number(0, 2)))

    def convolve(x: Value, channels: int, *, kernel: int = 1, stride: int = 1, groups: int = 1) -> Value:
        pads = dict.fromkeys(("pad_h_t", "pad_h_b", "pad_w_l", "pad_w_r"), kernel // 2)
        others = {"dh": 1, "dw": 1, "stride_h": stride, "stride_w": stride, "groups": groups}
        made = Window(x.type.static_shape, channels, (kernel, kernel), pads | others)
        return bytes_of_convolution(draft, exact_product(draft, x, made))

    y = convolve(x, expanded) if draft.chance(0.8) else draft.input(draft.pick(*BYTES), (1, expanded, side, side))
    kernel, stride = draft.pick(3, 3, 3, 5), draft.pick(1, 1, 2)
    y = convolve(convolve(y, expanded, kernel=kernel, stride=stride, groups=expanded), x.type.static_shape[1])
    if y.type.static_shape == x.type.static_shape and draft.chance(0.7):
        residual_add(draft, y, x)
    draft.declines()  # cases in which a convolution is not fused
