"""Integer convolutions and matmuls with all possible epilogues."""

from dataclasses import dataclass

import numpy as np

from tests.support.native_cases.draft import Draft, kind
from tests.support.native_cases.rescaling import follow, requantize
from tpuconvert.schema.graph.graph import Value
from tpuconvert.schema.ops.convolution.conv import Conv
from tpuconvert.schema.ops.convolution.conv_v2 import ConvV2
from tpuconvert.schema.ops.convolution.deconv import Deconv
from tpuconvert.schema.ops.convolution.deconv_v2 import DeconvV2
from tpuconvert.schema.ops.matmul.fc_int import FcInt
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul
from tpuconvert.schema.ops.matmul.matrix_mul_v2 import MatrixMulV2
from tpuconvert.schema.ops.matmul.quantized_modes import QCalMode
from tpuconvert.schema.types import F32, I8, I16, I32, U8, U16, Array, Chip, DType

BYTES = (I8, U8)


def zero_point(draft: Draft, dtype: DType) -> int:
    return draft.pick(0, 0, dtype.min, dtype.max, draft.number(dtype.min, dtype.max))


def weights(draft: Draft, dtype: DType, shape: tuple[int, ...]) -> Array:
    if draft.chance(0.2):  # whole channels of one sign
        array = draft.rng.choice(np.array([dtype.min, dtype.max], dtype.numpy), (shape[0],))
        return np.ascontiguousarray(np.broadcast_to(array.reshape(-1, *(1,) * (len(shape) - 1)), shape))
    return draft.data(dtype, shape)


def zeros_of(draft: Draft, prefix: str, dtype: DType, count: int, *, vectors: float = 0.25) -> dict[str, object]:
    """Draw the three zero point parameters of an operand."""
    is_vector = draft.chance(vectors)
    return {
        f"is_{prefix}_const": not is_vector,
        f"{prefix}_val": 0 if is_vector else zero_point(draft, dtype),
        f"{prefix}_vec": tuple(zero_point(draft, dtype) for _ in range(count)) if is_vector else (),
    }


def zero_values(parameters: dict[str, object], prefix: str) -> Array:
    """Zero points as an array of one or many."""
    if parameters[f"is_{prefix}_const"]:
        return np.array([parameters[f"{prefix}_val"]], np.int64)
    return np.array(parameters[f"{prefix}_vec"], np.int64)


def bias_for(draft: Draft, bound: Array) -> Array | None:
    """Draw no bias, an ordinary one, or one for which accumulators are near or beyond the limits of INT32.

    Args:
        draft: the case.
        bound: the largest magnitude that the sum of each channel can have.
    """
    style = draft.number(0, 9)
    channels = len(bound)
    if style == 0:
        return None
    if style < 7:
        reach = max(int(bound.max()) // draft.pick(1, 4, 100), 1)
        array = draft.rng.integers(-reach, reach, channels, endpoint=True)
    elif style < 9:
        array = (I32.max - bound) * draft.rng.choice([-1, 1], channels)
    else:
        array = draft.rng.choice([I32.min, I32.max, I32.max - 5], channels)
    array = np.clip(array, I32.min, I32.max)
    return array.astype(np.int32)


def largest_sums(w: Array, w_zeros: Array, x_zero: int, x: DType) -> Array:
    """The largest magnitude of each output channel's sum; w has the output channels first."""
    reach = max(x.max - x_zero, x_zero - x.min)
    centred = w.reshape(len(w), -1).astype(np.int64) - w_zeros.reshape(-1, 1)
    return np.abs(centred).sum(axis=1) * reach


@dataclass(frozen=True)
class Window:
    """Extents and parameters of a convolution."""

    shape: tuple[int, int, int, int]
    channels: int
    kernel: tuple[int, int]
    parameters: dict[str, int]


def window(draft: Draft, *, style: str, transposed: bool = False) -> Window:
    """Geometry of a random convolution; ``style`` is dense, grouped, depthwise or large."""
    kernel_h, kernel_w = (draft.pick(1, 1, 2, 3, 3, 3, 4, 5, 6, 7) for _ in range(2))
    if draft.chance(0.6):
        kernel_w = kernel_h
    if style == "large":
        channels, out = draft.pick(64, 96, 129, 256, 320), draft.pick(48, 64, 100, 192, 257)
        kernel_h = kernel_w = draft.pick(1, 1, 3)
        groups = 1
    elif style == "depthwise":
        channels = out = groups = draft.pick(draft.small(70), draft.pick(3, 16, 17, 31, 32, 33, 48, 64, 65))
    elif style == "grouped":
        groups = draft.number(2, 6)
        channels, out = groups * draft.small(20), groups * draft.small(40)
    else:
        groups = 1
        channels, out = draft.small(70), draft.small(140)
    strides = [draft.pick(1, 1, 1, 2, 2, 3) for _ in range(2)]
    dilations = [draft.pick(1, 1, 1, 1, 2, 3) for _ in range(2)]
    kernel, extents, pads = (kernel_h, kernel_w), [], []
    most = 9 if channels * out > 3000 else 18
    for axis in range(2):
        reach = dilations[axis] * (kernel[axis] - 1) + 1
        extent = draft.pick(7, 9, 14) if style == "large" else draft.small(most)
        if transposed:
            extent = draft.small(8)
            whole = (extent - 1) * strides[axis] + reach
            before = draft.number(0, min(reach - 1, whole - 1))
            after = draft.number(1 - strides[axis], min(reach - 1, whole - 1 - before))
        else:
            before, after = (draft.number(0, reach - 1) if draft.chance(0.7) else 0 for _ in range(2))
            if draft.chance(0.03):
                before += draft.number(1, 5)  # windows entirely in the padding
            extent = max(extent, reach - before - after, 1)
        extents.append(extent)
        pads.append((before, after))
    batch = draft.pick(1, 1, 1, 2, 3)
    parameters = {
        "dh": dilations[0],
        "dw": dilations[1],
        "pad_h_t": pads[0][0],
        "pad_h_b": pads[0][1],
        "pad_w_l": pads[1][0],
        "pad_w_r": pads[1][1],
        "stride_h": strides[0],
        "stride_w": strides[1],
        "groups": groups,
    }
    return Window((batch, channels, extents[0], extents[1]), out, kernel, parameters)


def exact_convolution(draft: Draft, style: str, *, transposed: bool = False) -> Value:
    """conv_v2 or deconv_v2 of a graph input."""
    made = window(draft, style=style, transposed=transposed)
    x = draft.input(draft.pick(*BYTES), made.shape)
    return exact_product(draft, x, made, transposed=transposed)


def exact_convolution_of(draft: Draft, x: Value, style: str, channels: int) -> Value:
    """Add a conv_v2 of a computed value."""
    _, inputs, *extents = x.type.static_shape
    kernel, pads = [], []
    for extent in extents:
        before, after = draft.number(0, 2), draft.number(0, 2)
        kernel.append(draft.number(1, min(4, extent + before + after)))
        pads += [min(before, kernel[-1] - 1), min(after, kernel[-1] - 1)]
        kernel[-1] = min(kernel[-1], extent + pads[-1] + pads[-2])
    groups = inputs if style == "depthwise" else 1
    parameters = dict(zip(("pad_h_t", "pad_h_b", "pad_w_l", "pad_w_r"), pads, strict=True))
    parameters |= {"dh": 1, "dw": 1, "stride_h": draft.pick(1, 1, 2), "stride_w": draft.pick(1, 1, 2), "groups": groups}
    made = Window(x.type.static_shape, groups if groups > 1 else channels, (kernel[0], kernel[1]), parameters)
    return exact_product(draft, x, made)


def exact_product(draft: Draft, x: Value, made: Window, *, transposed: bool = False) -> Value:
    """conv_v2 or deconv_v2 with constant weights."""
    groups = made.parameters["groups"]
    first, second = (made.shape[1], made.channels) if transposed else (made.channels, made.shape[1])
    w = weights(draft, draft.pick(*BYTES), (first, second // groups, *made.kernel))
    izp = zeros_of(draft, "izp", x.dtype, made.shape[1], vectors=0.03)
    kzp = zeros_of(draft, "kzp", DType.of(w.dtype), made.channels)
    by_output = w
    if transposed:  # [in, out of a group, ...]: output channels first
        split = w.reshape(groups, first // groups, second // groups, *made.kernel)
        by_output = split.swapaxes(1, 2).reshape(second, first // groups, *made.kernel)
    x_zero = int(zero_values(izp, "izp")[0])
    bias = bias_for(draft, largest_sums(by_output, zero_values(kzp, "kzp"), x_zero, x.dtype))
    operands = [x, draft.constant(w)]
    if bias is not None:
        operands.append(draft.constant(bias.reshape(1, -1, 1, 1)))
    op = (DeconvV2 if transposed else ConvV2)(**made.parameters, **izp, **kzp, has_bias=bias is not None)
    return draft.add(op, *operands)


def after_sums(draft: Draft, sums: Value, *, per_channel: bool | None = None) -> None:
    """Add no epilogue, a requantization, or several operators; sometimes the accumulators are outputs too."""
    if draft.chance(0.08):
        return
    y = follow(draft, requantize(draft, sums, per_channel=per_channel))
    if draft.chance(0.04):
        draft.graph.output(sums)
        draft.graph.output(y)


@kind(3000)
def conv_v2(draft: Draft) -> None:
    after_sums(draft, exact_convolution(draft, "dense"))


@kind(1200)
def conv_v2_grouped(draft: Draft) -> None:
    after_sums(draft, exact_convolution(draft, "grouped"))


@kind(2000)
def conv_v2_depthwise(draft: Draft) -> None:
    after_sums(draft, exact_convolution(draft, "depthwise"))


@kind(200)
def conv_v2_large(draft: Draft) -> None:
    after_sums(draft, exact_convolution(draft, "large"))


@kind(150)
def conv_v2_winograd(draft: Draft) -> None:
    """Add a convolution whose shape lets every instruction set use the Winograd kernel, if its sums are bounded."""
    shape = (1, draft.pick(320, 384), draft.pick(20, 24), draft.pick(16, 20))
    names = ("pad_h_t", "pad_h_b", "pad_w_l", "pad_w_r")
    parameters = dict.fromkeys(names, 1) | dict.fromkeys(("dh", "dw", "stride_h", "stride_w", "groups"), 1)
    x = draft.input(draft.pick(*BYTES), shape)
    after_sums(draft, exact_product(draft, x, Window(shape, draft.pick(64, 80), (3, 3), parameters)))


@kind(1200)
def deconv_v2(draft: Draft) -> None:
    after_sums(draft, exact_convolution(draft, draft.pick("dense", "grouped", "depthwise"), transposed=True))


@kind(1200)
def matrix_mul_v2(draft: Draft) -> None:
    """Add a constant right operand."""
    rank = draft.pick(2, 2, 2, 3)
    m, k, n = draft.small(70), draft.small(draft.pick(60, 700)), draft.small(draft.pick(60, 300))
    is_transposed = draft.chance(0.5)
    x = draft.input(draft.pick(*BYTES), (m, k) if rank == 2 else (1, m, k))
    w = weights(draft, draft.pick(*BYTES), (n, k))
    lzp = zeros_of(draft, "lzp", x.dtype, m, vectors=0.03)
    rzp = zeros_of(draft, "rzp", DType.of(w.dtype), n)
    bias = bias_for(draft, largest_sums(w, zero_values(rzp, "rzp"), int(zero_values(lzp, "lzp")[0]), x.dtype))
    right = np.ascontiguousarray(w if is_transposed else w.T)
    operands = [x, draft.constant(right if rank == 2 else right[np.newaxis])]
    operands += [] if bias is None else [draft.constant(bias)]
    op = MatrixMulV2(has_bias=bias is not None, is_right_trans=is_transposed, **lzp, **rzp)
    after_sums(draft, draft.add(op, *operands), per_channel=None if rank == 2 else False)


@kind(800)
def matrix_mul_v2_two_operands(draft: Draft) -> None:
    """Batched matmuls of two computed operands, in every transposition."""
    rank = draft.pick(2, 3, 3, 4, 4, 5)
    batch = tuple(draft.number(1, 3) for _ in range(rank - 2))
    m, k, n = draft.small(50), draft.small(100), draft.small(50)
    left, right = draft.chance(0.3), draft.chance(0.5)
    a = draft.input(draft.pick(*BYTES), (*batch, *((k, m) if left else (m, k))))
    b = draft.input(draft.pick(*BYTES), (*batch, *((n, k) if right else (k, n))))
    zeros = zeros_of(draft, "lzp", a.dtype, m, vectors=0.1) | zeros_of(draft, "rzp", b.dtype, n, vectors=0.1)
    sums = draft.add(MatrixMulV2(is_left_trans=left, is_right_trans=right, **zeros), a, b)
    after_sums(draft, sums, per_channel=False if draft.chance(0.8) else None)


@kind(600)
def fc_int(draft: Draft) -> None:
    batch, m, k, n = draft.pick(1, 1, 2), draft.small(30), draft.small(300), draft.small(150)
    is_transposed = draft.chance(0.5)
    x = draft.input(draft.pick(*BYTES), (batch, m, k))
    w = weights(draft, draft.pick(*BYTES), (n, k))
    izp = zeros_of(draft, "izp", x.dtype, m, vectors=0.03)
    kzp = zeros_of(draft, "kzp", DType.of(w.dtype), n)
    bias = bias_for(draft, largest_sums(w, zero_values(kzp, "kzp"), int(zero_values(izp, "izp")[0]), x.dtype))
    operands = [x, draft.constant(np.ascontiguousarray(w if is_transposed else w.T))]
    operands += [] if bias is None else [draft.constant(bias)]
    op = FcInt(has_bias=bias is not None, weight_trans=is_transposed, **izp, **kzp)
    after_sums(draft, draft.add(op, *operands), per_channel=False)


# The three calculation modes


def scale_for(draft: Draft, bound: int, out: DType) -> float:
    """A scale that uses the range of the result, a power of two, or an extreme one."""
    style = draft.number(0, 9)
    useful = 2.0 ** draft.number(4, out.bits + 1) / max(bound, 1) * draft.pick(1, 4, 30)
    if style < 5:
        return float(np.float32(useful * draft.rng.uniform(0.3, 1.2)))
    if style < 8:
        return float(np.float32(draft.pick(1.0, 1.5, 1.0078125) * 2.0 ** round(np.log2(useful))))
    return draft.pick(1.0, 2.0, 0.5, 1.0 / 3.0, 1.0000001, 127.0, 1e-9, 2.0**-40, 3e6)


def mode_bias(draft: Draft, mode: QCalMode, channels: int, bound: int, *, is_matrix: bool) -> Array | None:
    """A bias of a type that the mode takes."""
    legal = [None, I16, U16] if mode is QCalMode.LowPrecisionSymmetric else [None, I16, U16, I32, I32]
    if mode is not QCalMode.LowPrecisionSymmetric and not is_matrix:
        legal.append(F32)
    dtype = draft.pick(*legal)
    if dtype is None:
        return None
    if dtype is F32:
        return (draft.rng.standard_normal(channels) * bound / 4).astype(np.float32)
    if dtype is I32 and draft.chance(0.7):
        return draft.rng.integers(-bound, bound, channels, endpoint=True).astype(np.int32)
    return draft.data(dtype, (channels,))


def calculation_mode(draft: Draft, made: Window | None, mode: QCalMode, *, transposed: bool = False) -> None:
    """Conv, deconv or, without a window, matrix_mul in one of the modes."""
    draft.chip = draft.pick(Chip.BM1684, Chip.BM1686)
    x_dtype = draft.pick(*BYTES)
    if made is None:
        k, channels = draft.small(draft.pick(60, 700)), draft.small(200)
        x = draft.input(x_dtype, (draft.small(40), k))
        by_output = weights(draft, draft.pick(*BYTES), (channels, k))
        w = np.ascontiguousarray(by_output.T)
    else:
        groups, channels = made.parameters["groups"], made.channels
        first, second = (made.shape[1], channels) if transposed else (channels, made.shape[1])
        x = draft.input(x_dtype, made.shape)
        by_output = w = weights(draft, draft.pick(*BYTES), (first, second // groups, *made.kernel))
    zeros = {}
    if mode is QCalMode.HighPrecisionAsymmetric:
        zeros = {
            "left_zero_point": zero_point(draft, x.dtype),
            "right_zero_point": zero_point(draft, DType.of(w.dtype)),
            "output_zero_point": draft.pick(0, 3, -128, 127, 255),
        }
    out = draft.pick(*BYTES) if mode is QCalMode.LowPrecisionSymmetric else draft.pick(I8, I8, U8, I16, U16)
    bound = int(largest_sums(by_output, np.zeros(1, np.int64), 0, x.dtype).max(initial=1))
    bias = mode_bias(draft, mode, channels, bound, is_matrix=made is None)
    operands = [x, draft.constant(w)]
    if bias is not None:
        operands.append(draft.constant(bias.reshape((1, -1) if made is None else (1, -1, 1, 1))))
    parameters = {"scale": scale_for(draft, bound, out), "mode": mode, "out_dtype": out} | zeros
    op = MatrixMul(**parameters) if made is None else (Deconv if transposed else Conv)(**made.parameters, **parameters)
    follow(draft, draft.add(op, *operands))


@kind(1000)
def conv_mode_0(draft: Draft) -> None:
    calculation_mode(draft, window(draft, style=draft.pick("dense", "grouped", "depthwise")), QCalMode(0))


@kind(1000)
def conv_mode_1(draft: Draft) -> None:
    calculation_mode(draft, window(draft, style=draft.pick("dense", "grouped", "depthwise")), QCalMode(1))


@kind(500)
def conv_mode_2(draft: Draft) -> None:
    calculation_mode(draft, window(draft, style=draft.pick("dense", "grouped", "depthwise")), QCalMode(2))


@kind(500)
def deconv_mode_0(draft: Draft) -> None:
    made = window(draft, style=draft.pick("dense", "grouped", "depthwise"), transposed=True)
    calculation_mode(draft, made, QCalMode(0), transposed=True)


@kind(900)
def matrix_mul_modes(draft: Draft) -> None:
    calculation_mode(draft, None, draft.pick(*QCalMode))
