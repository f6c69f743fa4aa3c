"""Operators that compute: products, functions, arithmetic, reductions, pooling, resizing, requantization."""

from __future__ import annotations

import math

import numpy as np

from tests.support.tflite.chains.builder import Chain
from tests.support.tflite.chains.registry import ALL, ANY_RANK, BYTES, step
from tests.support.tflite.integer_cases import _bias, _product_scale, _weights, scale, zero


def _product(
    c: Chain, x: int, weights_shape: tuple[int, ...], axis: int, terms: int, per_axis: bool
) -> tuple[int, int, float]:
    one = c.tensors[x]
    weights = _weights(c.g, one.type, weights_shape, axis, per_axis)
    bias = _bias(c.g, one, weights, weights_shape[axis])
    return c.stored(weights), c.stored(bias), _product_scale(c.g, one, weights, terms)


def _windows(extent: int, kernel: int, stride: int, padding: int, dilation: int = 1) -> int:
    reach = (kernel - 1) * dilation + 1
    return -(-extent // stride) if padding == 0 else (extent - reach) // stride + 1


@step(*ALL, ranks=(4,), weight=2)
def conv_2d(c: Chain, x: int) -> None:
    n, h, w, depth = c.shape(x)
    kh, kw, oc = c.integer(1, min(h, 3)), c.integer(1, min(w, 3)), c.integer(1, 6)
    weights, bias, around = _product(c, x, (oc, kh, kw, depth), 0, kh * kw * depth, c.chance(0.6))
    padding, stride, one = c.integer(0, 1), c.integer(1, 2), c.tensors[x]
    shape = n, _windows(h, kh, stride, padding), _windows(w, kw, stride, padding), oc
    y = c.tensor(shape, one.type, around, zero(c.g, one.type))
    options = {"padding": padding, "stride_h": stride, "stride_w": stride, "fused_activation_function": c.activation()}
    if padding == 0 and stride == 1 and c.chance(0.3):
        options |= {"dilation_h_factor": 2, "dilation_w_factor": c.integer(1, 2)}
    c.operator("CONV_2D", [x, weights, bias], [y], "Conv2DOptions", **options)


@step(*ALL, ranks=(4,), weight=1.5)
def depthwise_conv_2d(c: Chain, x: int) -> None:
    n, h, w, depth = c.shape(x)
    multiplier = c.pick((1, 1, 2))
    if depth * multiplier > 24:
        return
    kh, kw = c.integer(1, min(h, 3)), c.integer(1, min(w, 3))
    one = c.tensors[x]
    weights, bias, around = _product(c, x, (1, kh, kw, depth * multiplier), 3, kh * kw, one.type != "UINT8")
    padding, stride = c.integer(0, 1), c.integer(1, 2)
    shape = n, _windows(h, kh, stride, padding), _windows(w, kw, stride, padding), depth * multiplier
    y = c.tensor(shape, one.type, around, zero(c.g, one.type))
    options = {"padding": padding, "stride_h": stride, "stride_w": stride, "depth_multiplier": multiplier}
    activation = c.activation()
    c.operator(
        "DEPTHWISE_CONV_2D",
        [x, weights, bias],
        [y],
        "DepthwiseConv2DOptions",
        **options,
        fused_activation_function=activation,
    )


@step(*ALL, ranks=(2, 3, 4), weight=1.5)
def fully_connected(c: Chain, x: int) -> None:
    *rows, depth = c.shape(x)
    one, oc = c.tensors[x], c.integer(1, 6)
    per_axis = one.type == "INT8" and c.chance(0.4)
    weights, bias, around = _product(c, x, (oc, depth), 0, depth, per_axis)
    keep = c.chance(0.6)
    shape = (*rows, oc) if keep else (math.prod(rows), oc)
    y = c.tensor(shape, one.type, around, zero(c.g, one.type))
    c.operator(
        "FULLY_CONNECTED",
        [x, weights, bias],
        [y],
        "FullyConnectedOptions",
        keep_num_dims=keep,
        fused_activation_function=c.activation(),
    )


@step(*ALL, ranks=(4,), weight=0.7)
def transpose_conv(c: Chain, x: int) -> None:
    n, h, w, depth = c.shape(x)
    kh, kw, oc, stride, padding = c.integer(1, 3), c.integer(1, 3), c.integer(1, 4), c.integer(1, 2), c.integer(0, 1)
    rows, columns = (h * stride, w * stride) if padding == 0 else ((h - 1) * stride + kh, (w - 1) * stride + kw)
    if n != 1 or not c.fits((rows, columns, oc)):
        return
    one = c.tensors[x]
    weights, _, around = _product(c, x, (oc, kh, kw, depth), 0, kh * kw * depth, one.type != "UINT8")
    shape = (1, rows, columns, oc)
    y = c.tensor(shape, one.type, around, zero(c.g, one.type))
    c.operator(
        "TRANSPOSE_CONV",
        [c.integers(*shape), weights, x],
        [y],
        "TransposeConvOptions",
        padding=padding,
        stride_h=stride,
        stride_w=stride,
    )


def _pool(c: Chain, x: int, name: str) -> None:
    n, h, w, depth = c.shape(x)
    kh, kw = c.integer(1, h), c.integer(1, w)
    padding, sh, sw = c.integer(0, 1), c.integer(1, 3), c.integer(1, 3)
    y = c.copied(x, (n, _windows(h, kh, sh, padding), _windows(w, kw, sw, padding), depth))
    options = {"padding": padding, "stride_h": sh, "stride_w": sw, "filter_height": kh, "filter_width": kw}
    c.operator(name, [x], [y], "Pool2DOptions", **options, fused_activation_function=c.activation())


@step(*ALL, ranks=(4,))
def average_pool_2d(c: Chain, x: int) -> None:
    _pool(c, x, "AVERAGE_POOL_2D")


@step(*ALL, ranks=(4,))
def max_pool_2d(c: Chain, x: int) -> None:
    _pool(c, x, "MAX_POOL_2D")


def _resize(c: Chain, x: int, name: str, table: str) -> None:
    n, h, w, depth = c.shape(x)
    size = (h * c.integer(1, 2), w * c.integer(1, 2)) if c.chance(0.4) else (c.integer(1, 8), c.integer(1, 8))
    if not c.fits((n, *size, depth)):
        return
    align, half = c.pick(((False, False), (True, False), (False, True)))
    y = c.copied(x, (n, *size, depth))
    c.operator(name, [x, c.integers(*size)], [y], table, align_corners=align, half_pixel_centers=half)


@step(*ALL, ranks=(4,))
def resize_bilinear(c: Chain, x: int) -> None:
    _resize(c, x, "RESIZE_BILINEAR", "ResizeBilinearOptions")


@step(*ALL, ranks=(4,))
def resize_nearest_neighbor(c: Chain, x: int) -> None:
    _resize(c, x, "RESIZE_NEAREST_NEIGHBOR", "ResizeNearestNeighborOptions")


# --- functions of one element -----------------------------------------------------------------------------------------


def _unary(c: Chain, x: int, name: str, y: int, table: str = "", **options: object) -> None:
    c.operator(name, [x], [y], table, **options)


def _fixed(c: Chain, x: int, step_8: float, zeros: dict[str, int], step_16: float = 1 / 32768) -> int:
    dtype = c.tensors[x].type
    return c.tensor(c.shape(x), dtype, step_16 if dtype == "INT16" else step_8, zeros.get(dtype, 0))


def _same_or_rescaled(c: Chain, x: int) -> int:
    return c.like(x, c.shape(x)) if c.chance(0.4) else c.rescaled(x, c.shape(x))


@step(*ALL, weight=1.5)
def relu(c: Chain, x: int) -> None:
    _unary(c, x, "RELU", _same_or_rescaled(c, x))


@step(*ALL)
def relu6(c: Chain, x: int) -> None:
    _unary(c, x, "RELU6", _same_or_rescaled(c, x))


@step(*BYTES, weight=0.7)
def relu_n1_to_1(c: Chain, x: int) -> None:
    _unary(c, x, "RELU_N1_TO_1", _same_or_rescaled(c, x))


@step(*BYTES, weight=0.7)
def relu_0_to_1(c: Chain, x: int) -> None:
    _unary(c, x, "RELU_0_TO_1", _same_or_rescaled(c, x))


@step(*ALL, weight=1.5)
def logistic(c: Chain, x: int) -> None:
    _unary(c, x, "LOGISTIC", _fixed(c, x, 1 / 256, {"INT8": -128}))


@step(*ALL)
def tanh(c: Chain, x: int) -> None:
    _unary(c, x, "TANH", _fixed(c, x, 1 / 128, {"UINT8": 128}))


@step(*BYTES)
def hard_swish(c: Chain, x: int) -> None:
    _unary(c, x, "HARD_SWISH", _same_or_rescaled(c, x), "HardSwishOptions")


@step(*ALL)
def leaky_relu(c: Chain, x: int) -> None:
    alpha = float(np.float32(c.pick((0.1, 0.3, 0.25, -0.2, 1.5))))
    _unary(c, x, "LEAKY_RELU", _same_or_rescaled(c, x), "LeakyReluOptions", alpha=alpha)


@step(*BYTES, weight=0.7)
def gelu(c: Chain, x: int) -> None:
    _unary(c, x, "GELU", _same_or_rescaled(c, x), "GeluOptions", approximate=c.chance(0.5))


@step("INT8", "INT16", weight=0.5, name="ABS")
def abs_(c: Chain, x: int) -> None:
    _unary(c, x, "ABS", _same_or_rescaled(c, x), "AbsOptions")


@step("INT8", "INT16", weight=0.5)
def exp(c: Chain, x: int) -> None:
    one = c.tensors[x]
    limits = np.iinfo(one.type.lower())
    top = math.exp(min(one.scale[0] * (limits.max - one.zero_point[0]), 4))  # the kernels overflow at huge scales
    _unary(c, x, "EXP", c.rescaled(x, c.shape(x), top / (limits.max * 1.5)), "ExpOptions")


@step("INT8", "INT16", weight=0.5)
def log(c: Chain, x: int) -> None:
    _unary(c, x, "LOG", c.rescaled(x, c.shape(x), 0.05 if c.tensors[x].type == "INT8" else 1e-3))


@step("INT16", ranks=(1, 2, 3, 4), weight=0.7)
def softmax(c: Chain, x: int) -> None:
    y = c.tensor(c.shape(x), "INT16", 1 / 32768, 0)
    _unary(c, x, "SOFTMAX", y, "SoftmaxOptions", beta=1.0)


@step(*ALL, weight=2)
def quantize(c: Chain, x: int) -> None:
    one = c.tensors[x]
    targets = {"INT8": ("INT8", "INT8", "UINT8", "INT16"), "UINT8": ("INT8", "UINT8")}
    dtype = c.pick(targets.get(one.type, ("INT8", "INT16")))
    ratio = {"INT16": 1 / 200}.get(dtype, 1) * (200 if one.type == "INT16" else 1)
    _unary(c, x, "QUANTIZE", c.rescaled(x, c.shape(x), one.scale[0] * ratio, dtype), "QuantizeOptions")


@step(*ALL, weight=0.5)
def dequantize(c: Chain, x: int) -> None:
    _unary(c, x, "DEQUANTIZE", c.plain(c.shape(x), "FLOAT32"), "DequantizeOptions")


@step(*BYTES, weight=0.5, name="DEQUANTIZE and QUANTIZE")
def requantize_through_float(c: Chain, x: int) -> None:
    """Dequantize, move the floats or not, and quantize again."""
    real = c.plain(c.shape(x), "FLOAT32")
    c.operator("DEQUANTIZE", [x], [real], "DequantizeOptions")
    if c.chance(0.5):
        moved = c.plain((math.prod(c.shape(x)),), "FLOAT32")
        c.operator("RESHAPE", [real, c.integers(-1)], [moved], "ReshapeOptions", new_shape=(-1,))
        real = moved
    c.operator("QUANTIZE", [real], [c.rescaled(x, c.shape(real))], "QuantizeOptions")


@step("INT8", weight=0.5)
def sqrt(c: Chain, x: int) -> None:
    """The kernel rejects negative operands: only of a result that has none."""
    lowest = c.tensors[x].zero_point[0] == -128
    if lowest:
        _unary(c, x, "SQRT", c.rescaled(x, c.shape(x)))


@step("UINT8", weight=0.5)
def div(c: Chain, x: int) -> None:
    """Divide by a constant without zeros; the kernel aborts at a division by zero."""
    one = c.tensors[x]
    other = c.divisor(one, c.shape(x)[-1:])
    y = c.rescaled(x, c.shape(x), one.scale[0] / c.tensors[other].scale[0] / 20)
    c.operator("DIV", [x, other], [y], "DivOptions", fused_activation_function=c.activation())


# --- arithmetic -------------------------------------------------------------------------------------------------------


def _second(c: Chain, x: int, *, same_scale: bool = False) -> int:
    """Another tensor of the shape, the same one, or a constant that broadcasts."""
    if c.chance(0.1):
        return x
    other = c.other(x, same_scale=same_scale)
    if other is not None and c.chance(0.8):
        return other
    shape, one = c.shape(x), c.tensors[x]
    kinds = [shape, shape[-1:], (1,) * len(shape), (*shape[:-1], 1)]
    return c.constant(one, c.pick(kinds), None if same_scale else scale(c.g, one.scale[0]))


def _sum(c: Chain, x: int, name: str, table: str) -> None:
    one, other = c.tensors[x], _second(c, x)
    around = float(np.hypot(one.scale[0], c.tensors[other].scale[0]))
    pair = [x, other] if c.chance(0.6) else [other, x]
    options = {"pot_scale_int16": c.chance(0.3)} if one.type == "INT16" else {}
    y = c.rescaled(x, c.shape(x), around)
    c.operator(name, pair, [y], table, fused_activation_function=c.activation(), **options)


@step(*ALL, weight=2)
def add(c: Chain, x: int) -> None:
    _sum(c, x, "ADD", "AddOptions")


@step(*ALL)
def sub(c: Chain, x: int) -> None:
    _sum(c, x, "SUB", "SubOptions")


@step(*ALL, weight=1.5)
def mul(c: Chain, x: int) -> None:
    one, other = c.tensors[x], _second(c, x)
    spread = 60 if one.type != "INT16" else 15000
    y = c.rescaled(x, c.shape(x), one.scale[0] * c.tensors[other].scale[0] * spread)
    c.operator("MUL", [x, other], [y], "MulOptions", fused_activation_function=c.activation())


@step(*BYTES, weight=0.5, name="EQUAL and others")
def comparison(c: Chain, x: int) -> None:
    """The result is Boolean, which no further operator takes. The kernel has no result for scales of 1 or more."""
    names = {"EQUAL": "EqualOptions", "GREATER": "GreaterOptions", "LESS_EQUAL": "LessEqualOptions"}
    name = c.pick(list(names))
    pair = [x, _second(c, x)]
    if any(c.tensors[index].scale[0] >= 1 for index in pair):
        return
    c.operator(name, pair, [c.plain(c.shape(x), "BOOL")], names[name])


@step(*ALL)
def maximum(c: Chain, x: int) -> None:
    c.operator("MAXIMUM", [x, _second(c, x, same_scale=True)], [c.copied(x, c.shape(x))], "MaximumMinimumOptions")


@step(*ALL)
def minimum(c: Chain, x: int) -> None:
    c.operator("MINIMUM", [x, _second(c, x, same_scale=True)], [c.copied(x, c.shape(x))], "MaximumMinimumOptions")


@step("INT8", weight=0.7)
def squared_difference(c: Chain, x: int) -> None:
    one, other = c.tensors[x], _second(c, x)
    y = c.rescaled(x, c.shape(x), max(one.scale[0], c.tensors[other].scale[0]) ** 2 * 100)
    c.operator("SQUARED_DIFFERENCE", [x, other], [y], "SquaredDifferenceOptions")


@step(*BYTES, ranks=(2, 3, 4), weight=0.7)
def prelu(c: Chain, x: int) -> None:
    slope = c.constant(c.tensors[x], (1,) * (len(c.shape(x)) - 2) + c.shape(x)[-1:], scale(c.g, 0.01))
    c.operator("PRELU", [x, slope], [_same_or_rescaled(c, x)])


@step("INT8", ranks=(2, 3, 4), weight=0.9)
def batch_matmul(c: Chain, x: int) -> None:
    """Two tensors, or a constant. The batches of both operands are equal."""
    *batch, rows, depth = c.shape(x)
    one, is_left, is_turned, around = c.tensors[x], c.chance(0.7), c.chance(0.3), 0.02
    columns = c.integer(1, 5)
    if is_left:
        shape, inner, result = (depth, columns), depth, (*batch, rows, columns)
    else:
        shape, inner, result = (columns, rows), rows, (*batch, columns, depth)
    wanted = (*batch, *(shape[::-1] if is_turned else shape))
    other = next((index for index in reversed(c.results) if c.is_shape(index, one.type, wanted)), None)
    if other is None or c.chance(0.3):
        other = c.constant(one, wanted, scale(c.g, 0.02))
    else:
        around = c.tensors[other].scale[0]
    y = c.rescaled(x, result, one.scale[0] * around * 60 * math.sqrt(inner))
    options = {"adj_y" if is_left else "adj_x": is_turned}
    c.operator("BATCH_MATMUL", [x, other] if is_left else [other, x], [y], "BatchMatMulOptions", **options)


# --- reductions -------------------------------------------------------------------------------------------------------


def _reduce(c: Chain, x: int, name: str, same: bool) -> None:
    shape = c.shape(x)
    axes = sorted({c.integer(0, len(shape) - 1) for _ in range(c.integer(1, 2))})
    keep = c.chance(0.5) or len(axes) == len(shape)
    result = [1 if i in axes else extent for i, extent in enumerate(shape) if keep or i not in axes]
    count = math.prod(shape[axis] for axis in axes)
    around = c.tensors[x].scale[0] * (math.sqrt(count) if name == "SUM" else 1)
    y = c.like(x, result) if same else c.rescaled(x, result, around)
    named = [axis if c.chance(0.7) else axis - len(shape) for axis in axes]
    c.operator(name, [x, c.integers(*named)], [y], "ReducerOptions", keep_dims=keep)


@step(*ALL, weight=1.5)
def mean(c: Chain, x: int) -> None:
    _reduce(c, x, "MEAN", c.chance(0.4))


@step("UINT8", weight=0.5, name="SUM")
def sum_(c: Chain, x: int) -> None:
    _reduce(c, x, "SUM", False)


@step(*ALL)
def reduce_max(c: Chain, x: int) -> None:
    _reduce(c, x, "REDUCE_MAX", True)


@step(*ALL, weight=0.7)
def reduce_min(c: Chain, x: int) -> None:
    _reduce(c, x, "REDUCE_MIN", True)


@step(*BYTES, ranks=ANY_RANK, weight=0.4)
def arg_max(c: Chain, x: int) -> None:
    shape = c.shape(x)
    axis = c.integer(0, len(shape) - 1)
    if len(shape) > 1:
        result = c.plain(shape[:axis] + shape[axis + 1 :], "INT32")
        c.operator("ARG_MAX", [x, c.integers(axis, shape=())], [result], "ArgMaxOptions", output_type=2)
