"""Generated models of one quantized TFLite operator each, for comparison with the reference kernels.

A seed determines shapes, scales, zero points and options of a case. Scales have a wide range. Some are powers of
two, for which results are ties; some make the multiplier very small or greater than 1.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.support.tflite.models import S, T, single

Case = Callable[[np.random.Generator, str], S]

CASES: dict[str, tuple[Case, tuple[str, ...]]] = {}
"""Name -> function that builds a model from a generator and an integer type, and the types that it supports."""


@dataclass(frozen=True)
class Difference:
    """Allowed difference of a case from the reference kernel.

    Args:
        steps: largest difference.
        share: of the elements that may differ, at most.
        reason: why.
    """

    steps: int
    share: float
    reason: str


_DATA = "the kernel's multiplier depends on the data and is found by fixed-point iterations; computed in binary32"

EXCEPTIONS: dict[tuple[str, str], Difference] = {
    ("softmax", "INT8"): Difference(1, 0.001, "the kernel divides by fixed-point iterations; softmax_int in binary32"),
    ("softmax", "UINT8"): Difference(1, 0.001, "the kernel divides by fixed-point iterations; softmax_int in binary32"),
    ("log_softmax", "INT8"): Difference(8, 0.05, _DATA),
    ("log_softmax", "UINT8"): Difference(8, 0.05, _DATA),
    ("l2_normalization", "UINT8"): Difference(
        1, 0.05, "the kernel rounds twice with a multiplier that depends on the data"
    ),
    ("batch_matmul", "INT16"): Difference(1, 0.3, "the sum of 16-bit products leaves 32 bits; computed in binary32"),
}
"""Inexact cases by name and type."""

BYTES = ("INT8", "UINT8")
ALL = ("INT8", "UINT8", "INT16")
NUMPY = {"INT8": np.int8, "UINT8": np.uint8, "INT16": np.int16}


def case(*types: str) -> Callable[[Case], Case]:
    """Register a case for integer types."""

    def register(function: Case) -> Case:
        CASES[function.__name__] = (function, types)
        return function

    return register


def scale(g: np.random.Generator, around: float = 0.05) -> float:
    """A random scale: usually near ``around``, sometimes a power of two, for which results are ties."""
    if g.random() < 0.3:
        return float(2.0 ** np.round(np.log2(around) + g.integers(-1, 2)))
    return float(np.float32(around * np.exp(g.uniform(-1.2, 1.2))))


def zero(g: np.random.Generator, dtype: str) -> int:
    """A random zero point. 16-bit tensors are symmetric."""
    if dtype == "INT16":
        return 0
    limits = np.iinfo(NUMPY[dtype])
    if g.random() < 0.15:
        return int(g.choice([limits.min, limits.max]))
    return int(g.integers(limits.min, limits.max + 1))


def q(g: np.random.Generator, dtype: str, shape: tuple[int, ...], around: float = 0.05, name: str = "") -> T:
    """A random quantized tensor."""
    return T(name, shape, dtype, None, (scale(g, around),), (zero(g, dtype),))


def like(tensor: T, shape: tuple[int, ...]) -> T:
    """A tensor with the same quantization as another."""
    return T("", shape, tensor.type, None, tensor.scale, tensor.zero_point)


def extents(g: np.random.Generator, *limits: int) -> tuple[int, ...]:
    """Random extents."""
    return tuple(int(g.integers(1, limit + 1)) for limit in limits)


def activation(g: np.random.Generator) -> int:
    """Random activation: NONE, RELU, RELU_N1_TO_1 or RELU6."""
    return int(g.choice([0, 0, 1, 2, 3]))


# --- products ---------------------------------------------------------------------------------------------------------


def _weights(g: np.random.Generator, dtype: str, shape: tuple[int, ...], axis: int, per_axis: bool) -> T:
    count = shape[axis]
    if dtype == "UINT8":
        data = g.integers(0, 256, shape).astype(np.uint8)
        return T("w", data=data, scale=(scale(g, 0.02),), zero_point=(int(g.integers(1, 255)),))
    data = g.integers(-127, 128, shape).astype(np.int8)
    if not per_axis:
        return T("w", data=data, scale=(scale(g, 0.02),), zero_point=(0,))
    scales = tuple(scale(g, 0.02) for _ in range(count))
    return T("w", data=data, scale=scales, zero_point=(0,) * count, axis=axis)


def _bias(g: np.random.Generator, x: T, w: T, count: int) -> T:
    scales = tuple(float(np.float32(np.float32(x.scale[0]) * np.float32(s))) for s in w.scale)
    kind = np.int64 if x.type == "INT16" else np.int32
    data = g.integers(-20000, 20000, count).astype(kind)
    return T("b", data=data, scale=scales, zero_point=(0,) * len(scales))


def _product_scale(g: np.random.Generator, x: T, w: T, terms: int) -> float:
    """A scale for which results fill the range, or a multiple far from it."""
    spread = 12000.0 if x.type == "INT16" else 80.0
    largest = 127.0 if x.type != "UINT8" else 100.0
    around = float(np.mean(w.scale)) * x.scale[0] * largest * spread * np.sqrt(terms) / spread
    if x.type == "INT16":
        around *= 0.5
    if g.random() < 0.1:
        around *= 2.0 ** float(g.integers(-9, 8))
    return scale(g, around)


@case(*ALL)
def conv_2d(g: np.random.Generator, dtype: str) -> S:
    n, h, w, c = 1 + int(g.integers(2)), *extents(g, 9, 9), int(g.integers(1, 9))
    kh, kw, oc = *extents(g, min(h, 3), min(w, 3)), int(g.integers(1, 9))
    x = q(g, dtype, (n, h, w, c), 0.05 if dtype != "INT16" else 3e-4)
    weights = _weights(g, dtype, (oc, kh, kw, c), 0, g.random() < 0.6)
    y = T("", (), dtype, None, (_product_scale(g, x, weights, kh * kw * c),), (zero(g, dtype),))
    options = {
        "padding": int(g.integers(2)),
        "stride_h": int(g.integers(1, 3)),
        "stride_w": int(g.integers(1, 3)),
        "fused_activation_function": activation(g),
    }
    if g.random() < 0.25:
        options |= {"dilation_h_factor": 2, "dilation_w_factor": 2, "padding": 0, "stride_h": 1, "stride_w": 1}
    inputs = [x, weights, _bias(g, x, weights, oc)]
    return single("CONV_2D", inputs, [y], "Conv2DOptions", **options)


@case(*ALL)
def depthwise_conv_2d(g: np.random.Generator, dtype: str) -> S:
    h, w, c, multiplier = *extents(g, 9, 9, 6), int(g.integers(1, 4))
    kh, kw = extents(g, min(h, 3), min(w, 3))
    oc = c * multiplier
    x = q(g, dtype, (1, h, w, c), 0.05 if dtype != "INT16" else 3e-4)
    weights = _weights(g, dtype, (1, kh, kw, oc), 3, dtype != "UINT8")
    y = T("", (), dtype, None, (_product_scale(g, x, weights, kh * kw),), (zero(g, dtype),))
    stride = int(g.integers(1, 3))
    options = {
        "padding": int(g.integers(2)),
        "stride_h": stride,
        "stride_w": stride,
        "depth_multiplier": multiplier,
        "fused_activation_function": activation(g),
    }
    inputs = [x, weights, _bias(g, x, weights, oc)]
    return single("DEPTHWISE_CONV_2D", inputs, [y], "DepthwiseConv2DOptions", **options)


@case(*ALL)
def fully_connected(g: np.random.Generator, dtype: str) -> S:
    rows, ic, oc = extents(g, 4, 40, 12)
    x = q(g, dtype, (rows, ic), 0.05 if dtype != "INT16" else 3e-4)
    weights = _weights(g, dtype, (oc, ic), 0, dtype == "INT8" and g.random() < 0.4)
    y = T("", (rows, oc), dtype, None, (_product_scale(g, x, weights, ic),), (zero(g, dtype),))
    inputs = [x, weights, _bias(g, x, weights, oc)]
    options = {"fused_activation_function": activation(g)}
    return single("FULLY_CONNECTED", inputs, [y], "FullyConnectedOptions", **options)


@case("INT16")
def conv_with_32_bit_sums(g: np.random.Generator, dtype: str) -> S:
    """Random value of the option that makes bias and sum of 16-bit layers 32 bits wide."""
    c, oc = extents(g, 8, 8)
    x = q(g, dtype, (1, 5, 5, c), 3e-4)
    w = _weights(g, dtype, (oc, 1, 1, c), 0, True)
    y = T("", (), dtype, None, (_product_scale(g, x, w, c),), (0,))
    wide = _bias(g, x, w, oc)
    bias = T("b", data=wide.array.astype(np.int32), scale=wide.scale, zero_point=wide.zero_point)
    options = {"stride_h": 1, "stride_w": 1, "quantized_bias_type": 2}
    return single("CONV_2D", [x, w, bias], [y], "Conv2DOptions", **options)


@case("INT8", "UINT8", "INT16")
def transpose_conv(g: np.random.Generator, dtype: str) -> S:
    h, w, c, oc = *extents(g, 5, 5), *extents(g, 6, 6)
    kh, kw, stride = *extents(g, 3, 3), int(g.integers(1, 3))
    padding = int(g.integers(2))
    height, width = (h * stride, w * stride) if padding == 0 else ((h - 1) * stride + kh, (w - 1) * stride + kw)
    x = q(g, dtype, (1, h, w, c), 0.05 if dtype != "INT16" else 3e-4)
    weights = _weights(g, dtype, (oc, kh, kw, c), 0, dtype != "UINT8")
    y = T("", (1, height, width, oc), dtype, None, (_product_scale(g, x, weights, c),), (zero(g, dtype),))
    shape = T("shape", data=np.asarray([1, height, width, oc], np.int32))
    options = {"padding": padding, "stride_h": stride, "stride_w": stride}
    inputs = [shape, weights, x, _bias(g, x, weights, oc)]
    return single("TRANSPOSE_CONV", inputs, [y], "TransposeConvOptions", **options)


@case("INT8", "INT16")
def batch_matmul(g: np.random.Generator, dtype: str) -> S:
    n, m, k, p = extents(g, 3, 6, 16, 6)
    around = 0.05 if dtype == "INT8" else 3e-4
    adj_x, adj_y = (bool(g.integers(2)) for _ in range(2))
    a = q(g, dtype, (n, k, m) if adj_x else (n, m, k), around)
    b = q(g, dtype, (n, p, k) if adj_y else (n, k, p), around)
    spread = 50 if dtype == "INT8" else 12000
    y = T("", (n, m, p), dtype, None, (scale(g, a.scale[0] * b.scale[0] * spread * np.sqrt(k)),), (zero(g, dtype),))
    return single("BATCH_MATMUL", [a, b], [y], "BatchMatMulOptions", adj_x=adj_x, adj_y=adj_y)


# --- two operands -----------------------------------------------------------------------------------------------------


def _pair(g: np.random.Generator) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    n, h, w, c = extents(g, 2, 5, 5, 9)
    full = (n, h, w, c)
    other = [full, full, (1, 1, 1, c), (n, h, w, 1), (c,)][int(g.integers(5))]
    shapes = (full, other) if g.random() < 0.7 else (other, full)
    return *shapes, full


def _sum(name: str, g: np.random.Generator, dtype: str) -> S:
    first, second, full = _pair(g)
    around = 0.05 if dtype != "INT16" else 3e-4
    a, b, y = (q(g, dtype, shape, around) for shape in (first, second, full))
    if g.random() < 0.2:
        b = like(a, second)
        if g.random() < 0.5:
            y = like(a, full)
    options: dict[str, Any] = {"fused_activation_function": activation(g)}
    if dtype == "INT16":
        options["pot_scale_int16"] = False
    return single(name, [a, b], [y], f"{name.capitalize()}Options", **options)


@case(*ALL)
def add(g: np.random.Generator, dtype: str) -> S:
    return _sum("ADD", g, dtype)


@case(*ALL)
def sub(g: np.random.Generator, dtype: str) -> S:
    return _sum("SUB", g, dtype)


@case("INT16")
def add_powers_of_two(g: np.random.Generator, dtype: str) -> S:
    """The older form of 16-bit addition: scales are powers of two, operands are shifted."""
    name = str(g.choice(["ADD", "SUB"]))
    n, h, w, c = extents(g, 2, 4, 4, 8)
    shift = [0, 0]
    shift[int(g.integers(2))] = int(g.integers(0, 4))
    y = T("", (n, h, w, c), dtype, None, (2.0**-10,), (0,))
    a, b = (T("", (n, h, w, c), dtype, None, (2.0 ** (-10 - s),), (0,)) for s in shift)
    if g.random() < 0.5:
        data = g.integers(-(2**15), 2**15, (n, h, w, c)).astype(np.int16)
        a, b = (dataclasses.replace(a, data=data), b) if g.random() < 0.5 else (a, dataclasses.replace(b, data=data))
    return single(name, [a, b], [y], f"{name.capitalize()}Options", pot_scale_int16=True)


@case(*ALL)
def mul(g: np.random.Generator, dtype: str) -> S:
    first, second, full = _pair(g)
    around = 0.05 if dtype != "INT16" else 3e-4
    a, b = (q(g, dtype, shape, around) for shape in (first, second))
    spread = 60 if dtype != "INT16" else 20000
    y = T("", full, dtype, None, (scale(g, a.scale[0] * b.scale[0] * spread),), (zero(g, dtype),))
    return single("MUL", [a, b], [y], "MulOptions", fused_activation_function=activation(g))


@case("INT8")
def squared_difference(g: np.random.Generator, dtype: str) -> S:
    first, second, full = _pair(g)
    a, b = (q(g, dtype, shape) for shape in (first, second))
    y = T("", full, dtype, None, (scale(g, max(a.scale[0], b.scale[0]) ** 2 * 100),), (zero(g, dtype),))
    return single("SQUARED_DIFFERENCE", [a, b], [y], "SquaredDifferenceOptions")


@case(*ALL)
def maximum(g: np.random.Generator, dtype: str) -> S:
    first, second, full = _pair(g)
    a = q(g, dtype, first)
    return single("MAXIMUM", [a, like(a, second)], [like(a, full)], "MaximumMinimumOptions")


@case(*ALL)
def minimum(g: np.random.Generator, dtype: str) -> S:
    first, second, full = _pair(g)
    a = q(g, dtype, first)
    return single("MINIMUM", [a, like(a, second)], [like(a, full)], "MaximumMinimumOptions")


@case(*BYTES)
def prelu(g: np.random.Generator, dtype: str) -> S:
    h, w, c = extents(g, 5, 5, 9)
    x, y = q(g, dtype, (1, h, w, c)), q(g, dtype, (1, h, w, c))
    data = g.integers(0, 256, (1, 1, c)).astype(np.uint8).view(NUMPY[dtype])
    slope = T("slope", data=data, scale=(scale(g, 0.005),), zero_point=(zero(g, dtype),))
    return single("PRELU", [x, slope], [y])


# --- unary operators --------------------------------------------------------------------------------------------------


def _unary(name: str, g: np.random.Generator, x: T, y_scale: float, y_zero: int, table: str = "", **fields: Any) -> S:
    return single(name, [x], [T("", x.shape, x.type, None, (y_scale,), (y_zero,))], table, **fields)


def _plane(g: np.random.Generator, dtype: str, around: float = 0.05) -> T:
    return q(g, dtype, (1, 16, 16, 1), around)


@case(*ALL)
def logistic(g: np.random.Generator, dtype: str) -> S:
    x = _plane(g, dtype, 0.05 if dtype != "INT16" else 2.0**-12)
    y_scale = 1 / 256 if dtype != "INT16" else 1 / 32768
    return _unary("LOGISTIC", g, x, y_scale, {"INT8": -128}.get(dtype, 0))


@case(*ALL)
def tanh(g: np.random.Generator, dtype: str) -> S:
    x = _plane(g, dtype, 0.03 if dtype != "INT16" else 2.0**-12)
    y_scale = 1 / 128 if dtype != "INT16" else 1 / 32768
    return _unary("TANH", g, x, y_scale, {"UINT8": 128}.get(dtype, 0))


@case(*BYTES)
def hard_swish(g: np.random.Generator, dtype: str) -> S:
    x = _plane(g, dtype)
    return _unary("HARD_SWISH", g, x, float(np.float32(x.scale[0] * g.uniform(0.3, 3))), zero(g, dtype))


@case(*ALL)
def leaky_relu(g: np.random.Generator, dtype: str) -> S:
    x = _plane(g, dtype)
    alpha = float(np.float32(g.choice([0.01, 0.1, 0.2, 0.3, 0.5, 1.5, -0.25])))
    return _unary("LEAKY_RELU", g, x, scale(g, x.scale[0]), zero(g, dtype), "LeakyReluOptions", alpha=alpha)


@case(*ALL)
def relu(g: np.random.Generator, dtype: str) -> S:
    x = _plane(g, dtype)
    return _unary("RELU", g, x, scale(g, x.scale[0]), zero(g, dtype))


@case(*ALL)
def relu6(g: np.random.Generator, dtype: str) -> S:
    x = _plane(g, dtype, 0.05 if dtype != "INT16" else 3e-4)
    return _unary("RELU6", g, x, scale(g, x.scale[0]), zero(g, dtype))


@case(*BYTES)
def relu_n1_to_1(g: np.random.Generator, dtype: str) -> S:
    x = _plane(g, dtype)
    return _unary("RELU_N1_TO_1", g, x, scale(g, x.scale[0]), zero(g, dtype))


@case(*BYTES)
def relu_0_to_1(g: np.random.Generator, dtype: str) -> S:
    x = _plane(g, dtype)
    return _unary("RELU_0_TO_1", g, x, scale(g, x.scale[0]), zero(g, dtype))


@case(*BYTES)
def gelu(g: np.random.Generator, dtype: str) -> S:
    x = _plane(g, dtype)
    return _unary("GELU", g, x, scale(g, x.scale[0]), zero(g, dtype), "GeluOptions", approximate=bool(g.integers(2)))


@case("INT8", "INT16")
def exp(g: np.random.Generator, dtype: str) -> S:
    x = _plane(g, dtype, 0.02 if dtype == "INT8" else 1e-4)
    top = np.exp(min(x.scale[0] * (127 if dtype == "INT8" else 32767), 20))
    return _unary("EXP", g, x, scale(g, float(top) / (200 if dtype == "INT8" else 30000)), zero(g, dtype), "ExpOptions")


@case("INT8", "INT16")
def abs_(g: np.random.Generator, dtype: str) -> S:
    x = _plane(g, dtype)
    return _unary("ABS", g, x, scale(g, x.scale[0]), zero(g, dtype))


@case("INT8")
def rsqrt(g: np.random.Generator, dtype: str) -> S:
    """Scale and zero point of a range without negative values, for which the operator is undefined."""
    x = T("", (1, 16, 16, 1), dtype, None, (scale(g),), (-128,))
    return _unary("RSQRT", g, x, scale(g), zero(g, dtype))


@case("INT8", "INT16")
def log(g: np.random.Generator, dtype: str) -> S:
    x = _plane(g, dtype, 0.05 if dtype == "INT8" else 1e-3)
    return _unary("LOG", g, x, scale(g, 0.05 if dtype == "INT8" else 1e-3), zero(g, dtype))


# --- planes -----------------------------------------------------------------------------------------------------------


@case(*ALL)
def average_pool_2d(g: np.random.Generator, dtype: str) -> S:
    return _pool("AVERAGE_POOL_2D", g, dtype)


@case(*ALL)
def max_pool_2d(g: np.random.Generator, dtype: str) -> S:
    return _pool("MAX_POOL_2D", g, dtype)


def _pool(name: str, g: np.random.Generator, dtype: str) -> S:
    h, w, c = extents(g, 8, 8, 5)
    kernel = extents(g, h, w)
    x = q(g, dtype, (1, h, w, c))
    options = {
        "padding": int(g.integers(2)),
        "stride_h": int(g.integers(1, 4)),
        "stride_w": int(g.integers(1, 4)),
        "filter_height": kernel[0],
        "filter_width": kernel[1],
        "fused_activation_function": activation(g),
    }
    return single(name, [x], [like(x, ())], "Pool2DOptions", **options)


def _resize(name: str, g: np.random.Generator, dtype: str) -> S:
    h, w, c = extents(g, 6, 6, 4)
    size = tuple(int(n) for n in g.integers(1, 13, 2))
    if g.random() < 0.3:
        factor = int(g.integers(2, 4))
        size = (h * factor, w * factor)
    align, half = [(False, False), (True, False), (False, True)][int(g.integers(3))]
    x = q(g, dtype, (1, h, w, c))
    options = {"align_corners": align, "half_pixel_centers": half}
    sizes = T("size", data=np.asarray(size, np.int32))
    table = "ResizeBilinearOptions" if name == "RESIZE_BILINEAR" else "ResizeNearestNeighborOptions"
    return single(name, [x, sizes], [like(x, (1, *size, c))], table, **options)


@case("INT8", "UINT8", "INT16")
def resize_bilinear(g: np.random.Generator, dtype: str) -> S:
    return _resize("RESIZE_BILINEAR", g, dtype)


@case(*ALL)
def resize_nearest_neighbor(g: np.random.Generator, dtype: str) -> S:
    return _resize("RESIZE_NEAREST_NEIGHBOR", g, dtype)


def _reduce(name: str, g: np.random.Generator, dtype: str, same: bool) -> S:
    shape = extents(g, 2, 7, 7, 6)
    axes = [(1, 2), (1,), (3,), (2, 1), (0, 3), (-1,)][int(g.integers(6))]
    keep = bool(g.integers(2))
    x = q(g, dtype, shape, 0.05 if dtype != "INT16" else 1e-3)
    reduced = {axis % 4 for axis in axes}
    count = int(np.prod([shape[axis] for axis in reduced]))
    result = tuple(1 if i in reduced else e for i, e in enumerate(shape) if keep or i not in reduced)
    around = x.scale[0] * (np.sqrt(count) if name == "SUM" else 1)
    y = like(x, result) if same else T("", result, dtype, None, (scale(g, around),), (zero(g, dtype),))
    return single(name, [x, T("axes", data=np.asarray(axes, np.int32))], [y], "ReducerOptions", keep_dims=keep)


@case(*ALL)
def mean(g: np.random.Generator, dtype: str) -> S:
    return _reduce("MEAN", g, dtype, g.random() < 0.3)


@case("UINT8")
def sum_(g: np.random.Generator, dtype: str) -> S:
    return _reduce("SUM", g, dtype, False)


@case(*ALL)
def reduce_max(g: np.random.Generator, dtype: str) -> S:
    return _reduce("REDUCE_MAX", g, dtype, True)


@case(*ALL)
def reduce_min(g: np.random.Generator, dtype: str) -> S:
    return _reduce("REDUCE_MIN", g, dtype, True)


@case(*ALL)
def softmax(g: np.random.Generator, dtype: str) -> S:
    rows, columns = int(g.integers(1, 60)), int(g.integers(1, 40))
    if dtype == "INT16" and g.random() < 0.2:  # the sum of the exponentials leaves the exact range of float32
        rows, columns = int(g.integers(1, 3)), int(g.integers(513, 3000))
    x = q(g, dtype, (rows, columns), 0.07 if dtype != "INT16" else 3e-4)
    beta = float(g.choice([1.0, 1.0, 0.5, 2.0]))
    y_scale = 1 / 256 if dtype != "INT16" else 1 / 32768
    return _unary("SOFTMAX", g, x, y_scale, {"INT8": -128}.get(dtype, 0), "SoftmaxOptions", beta=beta)


@case(*BYTES)
def log_softmax(g: np.random.Generator, dtype: str) -> S:
    x = q(g, dtype, extents(g, 30, 20), 0.07)
    return _unary("LOG_SOFTMAX", g, x, 16 / 256, {"INT8": 127}.get(dtype, 255))


@case(*BYTES)
def l2_normalization(g: np.random.Generator, dtype: str) -> S:
    x = q(g, dtype, extents(g, 2, 4, 4, 12))
    return _unary("L2_NORMALIZATION", g, x, 1 / 128, {"UINT8": 128}.get(dtype, 0), "L2NormOptions")


# --- moving and rescaling ---------------------------------------------------------------------------------------------


@case(*ALL)
def concatenation(g: np.random.Generator, dtype: str) -> S:
    n, h, w, _ = extents(g, 2, 4, 4, 1)
    axis = int(g.choice([3, 1, -1]))
    parts = []
    for _ in range(int(g.integers(2, 5))):
        shape = [n, h, w, 3]
        shape[axis] = int(g.integers(1, 5))
        parts.append(q(g, dtype, tuple(shape)))
    if dtype != "UINT8":  # the kernel of other types requires one scale
        parts = [like(parts[0], part.shape) for part in parts]
    total = [n, h, w, 3]
    total[axis] = sum(part.shape[axis] for part in parts)
    y = like(parts[0], tuple(total)) if dtype != "UINT8" else q(g, dtype, tuple(total))
    return single("CONCATENATION", parts, [y], "ConcatenationOptions", axis=axis)


@case(*ALL)
def quantize(g: np.random.Generator, dtype: str) -> S:
    target = str(
        g.choice({"INT8": ["INT8", "UINT8", "INT16"], "UINT8": ["INT8", "UINT8"]}.get(dtype, ["INT8", "INT16"]))
    )
    x = _plane(g, dtype)
    around = x.scale[0] * {"INT8": 1, "UINT8": 1, "INT16": 1 / 200}[target] * (200 if dtype == "INT16" else 1)
    return single("QUANTIZE", [x], [T("", x.shape, target, None, (scale(g, around),), (zero(g, target),))])


@case(*ALL)
def quantize_reals(g: np.random.Generator, dtype: str) -> S:
    y = _plane(g, dtype, 0.02 if dtype != "INT16" else 1e-4)
    return single("QUANTIZE", [T("", (1, 16, 16, 1), "FLOAT32")], [y])


@case(*ALL)
def dequantize(g: np.random.Generator, dtype: str) -> S:
    return single("DEQUANTIZE", [_plane(g, dtype)], [T("", (1, 16, 16, 1), "FLOAT32")])


@case(*ALL)
def pad(g: np.random.Generator, dtype: str) -> S:
    h, w, c = extents(g, 5, 5, 4)
    paddings = g.integers(0, 3, (4, 2)).astype(np.int32)
    x = q(g, dtype, (1, h, w, c))
    shape = tuple(int(e + p.sum()) for e, p in zip((1, h, w, c), paddings, strict=True))
    return single("PAD", [x, T("paddings", data=paddings)], [like(x, shape)])


@case(*ALL)
def pack(g: np.random.Generator, dtype: str) -> S:
    h, w = extents(g, 5, 5)
    x = q(g, dtype, (h, w))
    count = int(g.integers(2, 4))
    return single(
        "PACK", [like(x, (h, w))] * count, [like(x, (count, h, w))], "PackOptions", values_count=count, axis=0
    )


@case(*ALL)
def unpack(g: np.random.Generator, dtype: str) -> S:
    h, w = extents(g, 4, 5)
    x = q(g, dtype, (h, w))
    return single("UNPACK", [x], [like(x, (w,))] * h, "UnpackOptions", num=h, axis=0)
