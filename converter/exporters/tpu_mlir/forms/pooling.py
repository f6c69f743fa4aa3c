"""Lowerings of pooling. An average is a depthwise conv with weights 1, divided by the requantization of its sums."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tpuconvert.exporters.lowerings import NoExactForm
from tpuconvert.exporters.tpu_mlir.dialect import Tensor
from tpuconvert.exporters.tpu_mlir.forms.linear import accumulate, can_fuse, convolve, pad_with
from tpuconvert.exporters.tpu_mlir.forms.requantization import Rescale, remove_twos, requantize
from tpuconvert.exporters.tpu_mlir.forms.window import Window
from tpuconvert.exporters.tpu_mlir.lowering import Lowering, static_shape
from tpuconvert.exporters.tpu_mlir.registry import lowers
from tpuconvert.schema.graph.graph import Node, Value
from tpuconvert.schema.ops.pool import Pool
from tpuconvert.schema.ops.pool_int import PoolInt
from tpuconvert.schema.types import Array, DType

LARGE_WINDOW = 256
"""Largest average that is a convolution. In the simulator averages of 400 elements are wrong on BM1688, and some of
3,136 elements abort the compilers, depending on the number of channels."""

MATRIX_ELEMENTS = 1 << 22
"""Limit of the product that computes larger averages."""


def average(node: Node, d: Lowering, window: Window, rescale: Rescale, round_mode: str = "HalfUp") -> None:
    """Append average pooling as ``round(sum * multiplier / 2^shift)``."""
    x, y = node.inputs[0], node.output
    assert x is not None
    channels = static_shape(x)[1]
    shape = static_shape(y)
    if math.prod(window.kernel) > LARGE_WINDOW:
        d.define(y, requantize(d, _sums_by_product(d, x, y, window), rescale, y, shape, round_mode=round_mode))
        return
    weights = np.ones((channels, 1, *window.kernel), np.int8)
    zero = np.zeros(channels, np.int64)
    window = window.with_least_strides(static_shape(x)[2:], shape[2:])
    operand, grouped = pad_with(d, d.tensor(x), window._replace(groups=channels), 0, y.name)
    if round_mode == "HalfUp" and can_fuse(rescale, y) and not (x.quant is not None and any(x.quant.zero_point)):
        d.define(
            y,
            convolve(
                d,
                "tpu.Conv2D",
                operand,
                weights,
                zero,
                grouped,
                (shape, d.element(y), y.name),
                rescale,
            ),
        )
        return
    total = accumulate(d, "tpu.Conv2D", operand, weights, zero, grouped, (shape, f"{y.name}_sum"))
    d.define(y, requantize(d, total, rescale, y, shape, round_mode=round_mode))


def _sums_by_product(d: Lowering, x: Value, y: Value, window: Window) -> Tensor:
    """Append the sums of the windows as a product of the rows of all elements with a matrix of zeros and ones."""
    extents, shape = static_shape(x)[2:], static_shape(y)
    count, results = math.prod(extents), math.prod(shape[2:])
    if count * results > MATRIX_ELEMENTS:
        raise NoExactForm(f"{results} averages of {math.prod(window.kernel)} elements of {count}")
    along_height, along_width = (_inside(window, axis, extents[axis], shape[2 + axis]) for axis in (0, 1))
    matrix = np.einsum("hp,wq->hwpq", along_height, along_width).reshape(count, results)
    rows = d.reshape(d.tensor(x), (*shape[:2], count), f"{y.name}_rows")
    ones = d.module.weight(matrix.astype(np.int8), "si8", f"{y.name}_windows")
    sums = d.module.add("tpu.MatMul", [rows, ones], (*shape[:2], results), "si32", f"{y.name}_row_sums")
    return d.reshape(sums, shape, f"{y.name}_sum")


def _inside(window: Window, axis: int, extent: int, results: int) -> Array:
    """Return which elements along height (axis 0) or width the window of each result has, [extent, results]."""
    first = np.arange(results) * window.strides[axis] - window.pads[axis]
    offsets = np.arange(extent)[:, None] - first
    inside: Array = (offsets >= 0) & (offsets < window.kernel[axis])
    return inside


def exact_quotient(count: int, channels: int) -> Rescale:
    """Return the requantization that divides a sum of ``count`` 8-bit integers by ``count``.

    With ``m = ceil(2^s / count)``, ``sum * m / 2^s`` exceeds the quotient in magnitude by less than
    ``255 * count / 2^s``. The distance of a quotient to the next tie is 0 or at least ``1 / (2 * count)``. The rounded
    results are therefore equal if ``510 * count^2 < 2^s``; ties of negative sums have to be rounded away from zero.
    """
    shift = 30 if 510 * count**2 < 2**30 else 30 + count.bit_length() - 1
    if 510 * count**2 >= 2**shift:
        raise NoExactForm(f"an average of {count} elements, expected fewer than {2**30 // 510}")
    multiplier, remaining = remove_twos(-(-(1 << shift) // count), -shift)
    return Rescale("MultiplierShift", (multiplier,) * channels, (remaining,) * channels, (0,) * channels)


@lowers(PoolInt)
def pool_int(op: PoolInt, node: Node, d: Lowering) -> None:
    """Lower a maximum, or a rounded average of windows without padding. Other integer pooling has no exact form."""
    x = node.inputs[0]
    assert x is not None
    if not op.is_avg_pooling:
        if any(value.uses or d.graph.is_output(value) for value in node.outputs[1:]):
            raise NoExactForm("it returns indices, expected one result")
        y = node.outputs[0]
        kernel, strides = (op.kernel_h, op.kernel_w), (op.stride_h, op.stride_w)
        maximum(x, y, d, Window(kernel, strides, pads=_whole_pads(x, y, kernel, strides, (op.pad_h_t, op.pad_w_l))))
        return
    raise_if_padded = [
        name for name in ("pad_h_t", "pad_h_b", "pad_w_l", "pad_w_r", "pad_h", "pad_w") if getattr(op, name, 0)
    ]
    if raise_if_padded or op.out_ceil_mode.name != "floor":
        raise NoExactForm("an average with padding, expected whole windows")
    channels = static_shape(x)[1]
    window = Window((op.kernel_h, op.kernel_w), (op.stride_h, op.stride_w))
    if op.quant_mode.name == "MULTIPLIER_SHIFT":
        multiplier, shift = remove_twos(op.scale, -op.rshift)
        average(
            node, d, window, Rescale("MultiplierShift", (multiplier,) * channels, (shift,) * channels, (0,) * channels)
        )
    else:
        average(
            node,
            d,
            window,
            exact_quotient(op.kernel_h * op.kernel_w, channels),
            "HalfAwayFromZero" if x.dtype.is_signed else "HalfUp",
        )


def window_of(op: Pool, node: Node) -> Window:
    """Return kernel, strides and pads of a pooling. Ceil mode can pad more elements than the attributes state."""
    x, y = node.inputs[0], node.output
    assert x is not None
    height, width = static_shape(x)[2:]
    kernel = (height, width) if op.is_global_pooling else (op.kernel_h, op.kernel_w)
    strides = (1, 1) if op.is_global_pooling else (op.stride_h, op.stride_w)
    leading = (0, 0) if op.is_global_pooling else (op.pad_h, op.pad_w)
    return Window(kernel, strides, pads=_whole_pads(x, y, kernel, strides, leading))


def _whole_pads(
    x: Value, y: Value, kernel: tuple[int, int], strides: tuple[int, int], leading: tuple[int, int]
) -> tuple[int, int, int, int]:
    """Return pads with the rows and columns that windows read past the end, which ceil mode can add to the padding."""
    sizes, out = static_shape(x)[2:], static_shape(y)[2:]
    trailing = tuple(
        max(0, (out[axis] - 1) * strides[axis] + kernel[axis] - sizes[axis] - leading[axis]) for axis in (0, 1)
    )
    return (*leading, trailing[0], trailing[1])


def maximum(x: Value, y: Value, d: Lowering, window: Window) -> None:
    """Append maximum pooling of integers.

    The compiler has none of 16 bits. They are dequantized to binary32 and quantized again: both roundings together are
    less than a hundredth of a step.
    """
    if y.dtype is DType.FLOAT32:
        raise NoExactForm("a maximum of floating-point values")
    attributes: dict[str, Any] = {
        "kernel_shape": window.kernel,
        "strides": window.strides,
        "pads": window.pads,
        "pool_mode": "Max",
    }
    tensor = d.tensor(x)
    if y.dtype is not DType.INT16:
        d.add("tpu.Pool2D", [tensor], y, **attributes)
        return
    if x.quant is None or x.quant != y.quant:
        raise NoExactForm("a maximum of 16 bits changes the scale, expected the same scale")
    number = d.module.add("tpu.Cast", [tensor], tensor.shape, "f32", f"{y.name}_f32")
    pooled = d.module.add(
        "tpu.Pool2D", [number], static_shape(y), "f32", f"{y.name}_max", is_exact=tensor.is_exact, **attributes
    )
    d.define(y, d.module.add("tpu.Cast", [pooled], static_shape(y), d.element(y), y.name))


@lowers(Pool)
def pool(op: Pool, node: Node, d: Lowering) -> None:
    """Lower pooling: maximum, or average of windows of equal size."""
    x, y = node.inputs[0], node.output
    assert x is not None
    if op.pooling_type.name == "MAX":
        maximum(x, y, d, window_of(op, node))
        return
    if y.dtype is DType.FLOAT32:
        raise NoExactForm("an average of floating-point values")
    window = window_of(op, node)
    round_mode = "HalfAwayFromZero" if x.dtype.is_signed else "HalfUp"
    counts = op.element_counts(static_shape(x))
    if np.ptp(counts) == 0:
        average(node, d, window, exact_quotient(int(counts.max()), static_shape(x)[1]), round_mode)
    else:
        uneven_average(node, d, window, counts, round_mode)


def uneven_average(node: Node, d: Lowering, window: Window, counts: Array, round_mode: str) -> None:
    """Append an average whose windows have different numbers of elements: one multiplier per position."""
    x, y = node.inputs[0], node.output
    assert x is not None
    multipliers, shift = quotient_multipliers(counts)
    channels, shape = static_shape(x)[1], static_shape(y)
    weights, zero = np.ones((channels, 1, *window.kernel), np.int8), np.zeros(channels, np.int64)
    operand, grouped = pad_with(d, d.tensor(x), window._replace(groups=channels), 0, y.name)
    total = accumulate(d, "tpu.Conv2D", operand, weights, zero, grouped, (shape, f"{y.name}_sum"))
    factor = d.module.weight(multipliers.reshape(1, 1, *counts.shape), "si32", f"{y.name}_factor")
    d.add("tpu.BinaryShift", [total, factor], y, mode="Mul", shift=-shift, round_mode=round_mode)


def quotient_multipliers(counts: Array) -> tuple[Array, int]:
    """Return multipliers and a shift that divide sums of 8-bit integers by numbers of elements.

    The error has the bound of ``exact_quotient``. Products of sums and multipliers are below 2^31.

    Args:
        counts: numbers of elements.

    Raises:
        NoExactForm: a number is above 90, for which there is no such shift.
    """
    largest = int(counts.max())
    shift = (510 * largest**2).bit_length()
    if 255 * (2**shift + largest) >= 2**31:
        raise NoExactForm(f"windows of up to {largest} elements with different divisors, expected up to 90")
    return -(-(1 << shift) // counts.astype(np.int64)), shift
