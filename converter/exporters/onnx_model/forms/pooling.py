"""Lowerings of pooling operators and reductions."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tpuconvert.exporters.lowerings import NoExactForm
from tpuconvert.exporters.onnx_model.forms.data_movement import take
from tpuconvert.exporters.onnx_model.integers import round_shift, saturate, widen
from tpuconvert.exporters.onnx_model.lowering import Argument, Lowering, extents, scalar
from tpuconvert.exporters.onnx_model.registry import lowers
from tpuconvert.schema.arithmetic.fixed_point import RoundingMode
from tpuconvert.schema.arithmetic.pooling import Span, window_counts
from tpuconvert.schema.definition.extents import normalize_axes
from tpuconvert.schema.graph.graph import Node, Value
from tpuconvert.schema.ops.pool import Pool, PoolType
from tpuconvert.schema.ops.pool_int import PoolInt, PoolQuantMode
from tpuconvert.schema.ops.reduce import Reduce, ReduceMethodType
from tpuconvert.schema.types import EXACT_FLOAT32, Array, DType


class Windows(NamedTuple):
    """Pooling windows of an image: geometry per axis, and trailing padding that the source declares."""

    down: Span
    along: Span
    after: tuple[int, int] = (0, 0)

    @property
    def kernel(self) -> tuple[int, int]:
        """Rows and columns of a window."""
        return self.down.size, self.along.size

    @property
    def strides(self) -> tuple[int, int]:
        """Strides along rows and columns."""
        return self.down.stride, self.along.stride

    @property
    def is_global(self) -> bool:
        """True if there is one window, which covers the image."""
        return self.down.is_whole and self.along.is_whole


def crop_and_pads(d: Lowering, x: Argument, windows: Windows) -> tuple[Argument, tuple[int, int, int, int]]:
    """Remove rows and columns that no window reaches. Return the tensor and the pads: top, left, bottom, right."""
    ends, trailing = [], []
    for span in (windows.down, windows.along):
        needed = (span.count - 1) * span.stride + span.size - span.before
        ends.append(min(needed, span.extent))
        trailing.append(max(needed - span.extent, 0))
    if ends != [windows.down.extent, windows.along.extent]:
        x = take(d, x, [0, 0], ends, [2, 3])
    return x, (windows.down.before, windows.along.before, *trailing)  # type: ignore[return-value]  # two trailing pads


def lower_maximum(d: Lowering, x: Value, y: Value, windows: Windows) -> None:
    """Lower a maximum. Each window must have an element of the image."""
    if not (windows.down.elements().all() and windows.along.elements().all()):
        raise NoExactForm("a window contains only padding")
    wide = x.dtype in (DType.INT16, DType.UINT16)
    data, pads = crop_and_pads(d, d.add("Cast", x, to=np.float32) if wide else x, windows)
    pooled = d.add("MaxPool", data, kernel_shape=windows.kernel, strides=windows.strides, pads=pads)
    d.define(y, d.add("Cast", pooled, to=y.dtype.numpy) if wide else pooled)


def window_sums(d: Lowering, x: Value, windows: Windows) -> str:
    """Return exact sums of integer windows as INT32: a reduction, or a float32 convolution with weights of 1.

    The magnitudes of the sums are below 2^24, so that float32 is exact.
    """
    if math.prod(windows.kernel) * 2**x.dtype.bits > EXACT_FLOAT32:
        raise NoExactForm(f"sums of {math.prod(windows.kernel)} elements exceed 24 bits")
    if windows.is_global:
        return d.add("ReduceSum", d.add("Cast", x, to=np.int32), np.array([2, 3], np.int64), keepdims=1)
    data, pads = crop_and_pads(d, d.add("Cast", x, to=np.float32), windows)
    (channels,) = extents(x, 1)
    ones = d.constant(np.ones((channels, 1, *windows.kernel), np.float32))
    sums = d.add("Conv", data, ones, group=channels, kernel_shape=windows.kernel, strides=windows.strides, pads=pads)
    return d.add("Cast", sums, to=np.int32)


def divide_half_away(d: Lowering, sums: str, counts: Array, y: Value, kind: type[np.generic] = np.int32) -> None:
    """Divide integers and round to nearest, ties away from zero: ``trunc((2 * sum + sign(sum) * n) / (2 * n))``."""
    divisor = counts.astype(kind)
    signed = d.add("Mul", d.add("Sign", sums), divisor)
    doubled = d.add("Add", d.add("Mul", sums, scalar(2, kind)), signed)
    d.define(y, saturate(d, d.add("Div", doubled, (2 * divisor).astype(kind)), y.dtype, of=kind))


def _common(counts: Array) -> Array:
    """Return counts as a scalar if all are equal."""
    return counts.reshape(-1)[0] if (counts == counts.flat[0]).all() else counts


@lowers(PoolInt)
def integer_pool(op: PoolInt, node: Node, d: Lowering) -> None:
    """Lower an integer pooling: a maximum, or an average over the elements inside the image."""
    x, y = node.inputs[0], node.outputs[0]
    assert x is not None
    (h, w), (oh, ow) = extents(x, 2, 3), extents(y, 2, 3)
    windows = Windows(
        Span(h, oh, op.kernel_h, op.stride_h, op.pad_h_t), Span(w, ow, op.kernel_w, op.stride_w, op.pad_w_l)
    )
    if not op.is_avg_pooling:
        if any(value.uses or d.graph.is_output(value) for value in node.outputs[1:]):
            raise NoExactForm("its second result, the positions of the maxima, is used")
        lower_maximum(d, x, y, windows)
        return
    sums = window_sums(d, x, windows)
    if op.quant_mode is PoolQuantMode.DIVIDE:
        divide_half_away(d, sums, _common(window_counts(windows.down, windows.along)), y)
        return
    product = d.add("Mul", widen(d, sums), scalar(op.scale, np.int64))
    largest = abs(op.scale) * math.prod(windows.kernel) * 2**x.dtype.bits
    rounded = round_shift(d, product, np.asarray(op.rshift, np.int64), RoundingMode.HALF_UP, largest)
    d.define(y, saturate(d, rounded, y.dtype))


@lowers(Pool)
def pool(op: Pool, node: Node, d: Lowering) -> None:
    """Lower a maximum or average pooling of floats or integers."""
    x, y = node.inputs[0], node.output
    assert x is not None
    (h, w), (oh, ow) = extents(x, 2, 3), extents(y, 2, 3)
    if op.is_global_pooling:
        windows = Windows(Span(h, 1, h, 1, 0), Span(w, 1, w, 1, 0))
    else:
        windows = Windows(
            Span(h, oh, op.kernel_h, op.stride_h, op.pad_h),
            Span(w, ow, op.kernel_w, op.stride_w, op.pad_w),
            (op.pad_h + op.pad_h_offset, op.pad_w + op.pad_w_offset),
        )
    if op.pooling_type is PoolType.MAX:
        lower_maximum(d, x, y, windows)
        return
    counts = window_counts(windows.down, windows.along, windows.after, with_padding=op.is_ave_count_zero_pad)
    if x.dtype.is_integer:
        divide_half_away(d, window_sums(d, x, windows), _common(np.maximum(counts, 1)), y)
        return
    if windows.is_global:
        _mean(d, x, y)
        return
    data, pads = crop_and_pads(d, x, windows)
    if any(pad >= size for pad, size in zip(pads, windows.kernel * 2, strict=True)):
        raise NoExactForm("a window contains only padding")
    average = d.add(
        "AveragePool", data, kernel_shape=windows.kernel, strides=windows.strides, pads=pads, count_include_pad=1
    )
    size = math.prod(windows.kernel)
    if (counts != size).any():
        average = d.add("Mul", average, (size / np.maximum(counts, 1)).astype(np.float32))
    d.define(y, d.mark_rounded(average))


def _mean(d: Lowering, x: Value, y: Value) -> None:
    wide = d.wide_floats(x)
    d.define(y, d.narrow_floats(d.add("ReduceMean", wide, np.array([2, 3], np.int64), keepdims=1)))


@lowers(Reduce)
def reduce(op: Reduce, node: Node, d: Lowering) -> None:
    """Lower a reduction along axes."""
    x, y = node.inputs[0], node.output
    assert x is not None
    axes = normalize_axes(op.name, op.axis_list[: op.axis_num], x.type)
    name = {"MEAN": "Mean", "SUM": "Sum", "MAX": "Max", "MIN": "Min", "PROD": "Prod"}[op.method.name[7:]]
    if not axes:
        d.define(y, d.add("Identity", x))
        return
    keeps = int(op.keep_dims or len(axes) == x.rank)
    listed = np.array(axes, np.int64)
    if x.dtype.is_float:
        tensor = d.narrow_floats(d.add(f"Reduce{name}", d.wide_floats(x), listed, keepdims=keeps))
    elif op.method is ReduceMethodType.REDUCE_PROD:
        raise NoExactForm("a product of integers may exceed 64 bits")
    elif op.method is ReduceMethodType.REDUCE_MEAN:
        if len(axes) == x.rank and not op.keep_dims:
            raise NoExactForm("a mean of all axes without keep_dims")
        sums = d.add("ReduceSum", widen(d, x), listed, keepdims=keeps)
        divide_half_away(d, sums, np.asarray(math.prod(extents(x, *axes))), y, np.int64)
        return
    else:
        tensor = saturate(d, d.add(f"Reduce{name}", widen(d, x), listed, keepdims=keeps), y.dtype)
    if len(axes) == x.rank and not op.keep_dims:
        tensor = d.add("Reshape", tensor, np.array([1], np.int64))
    d.define(y, tensor)
