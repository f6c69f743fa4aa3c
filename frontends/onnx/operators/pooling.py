"""Maximum, average and Lp pooling over windows of one, two or three axes, or over whole planes."""

from __future__ import annotations

import math

import numpy as np

from tpuconvert.frontends import emit, open_extents
from tpuconvert.frontends.cannot_convert import CannotConvertError
from tpuconvert.frontends.onnx.file import element_types
from tpuconvert.frontends.onnx.node import OnnxNode, Result, onnx_op
from tpuconvert.frontends.onnx.operators.convolution import (
    Window,
    as_line,
    as_plane,
    convolve,
    read_window,
    resolved_pads,
)
from tpuconvert.frontends.open_extents import OpenExtentError, open_within
from tpuconvert.frontends.registry import Kind
from tpuconvert.schema.errors import INVALID_NODE, UNSUPPORTED_ATTRIBUTE, UNSUPPORTED_TYPE
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops import formulas
from tpuconvert.schema.ops.host.unpool import HostMaxPositions, HostMaxUnpool
from tpuconvert.schema.ops.pad import Pad
from tpuconvert.schema.ops.pool import Pool, PoolType
from tpuconvert.schema.ops.reduce import ReduceMethodType
from tpuconvert.schema.types import DType, Scalar


def _window(node: OnnxNode, dilations_since: int) -> Window:
    rank = node.rank(0)
    kernel = node.required_attr("kernel_shape", (1,))
    if len(kernel) != rank - 2 or not 3 <= rank <= 5:
        raise node.fail(
            UNSUPPORTED_ATTRIBUTE,
            f"an input of rank {rank} with kernel_shape {list(kernel)}",
            "supported: one to three spatial axes",
        )
    window = read_window(node, kernel, has_dilations=node.version >= dilations_since)
    pads = resolved_pads(window, node.shape(0)[2:])
    for pair, size, dilation in zip(pads, kernel, window.dilations, strict=True):
        if min(pair) < 0 or max(pair) > (size - 1) * dilation:
            raise node.invalid(f"pads {pads} with kernel_shape {list(kernel)}")
    return Window(window.kernel, window.strides, window.dilations, pads, "NOTSET")


def pool(
    g: Graph, kind: PoolType, x: Value, window: Window, *, ceil_mode: bool = False, count_padding: bool = False
) -> Value:
    """Add a pooling without dilations over one to three axes.

    Three axes are pooled in two steps: the maximum, the sum and the number of elements of a box are separable.
    """
    axes = len(window.kernel)
    if axes == 1:
        flat = Window((1, *window.kernel), (1, *window.strides), (1, 1), ((0, 0), *window.pads), "NOTSET")
        return as_line(g, pool(g, kind, as_plane(g, x), flat, ceil_mode=ceil_mode, count_padding=count_padding))
    if axes == 3:
        n, c, d, h, w = emit.extents(x)
        plane = Window(window.kernel[1:], window.strides[1:], (1, 1), window.pads[1:], "NOTSET")
        depth = Window((window.kernel[0], 1), (window.strides[0], 1), (1, 1), (window.pads[0], (0, 0)), "NOTSET")
        y = emit.reshape(g, x, (n, c * d, h, w))
        y = pool(g, kind, y, plane, ceil_mode=ceil_mode, count_padding=count_padding)
        oh, ow = emit.extents(y)[2:]
        y = emit.reshape(g, y, (n, c, d, oh * ow))
        y = pool(g, kind, y, depth, ceil_mode=ceil_mode, count_padding=count_padding)
        return emit.reshape(g, y, (n, c, emit.extents(y)[2], oh, ow))
    (top, bottom), (left, right) = window.pads
    op = Pool(
        kernel_h=window.kernel[0],
        kernel_w=window.kernel[1],
        stride_h=window.strides[0],
        stride_w=window.strides[1],
        pad_h=top,
        pad_w=left,
        pad_h_offset=bottom - top,
        pad_w_offset=right - left,
        pooling_type=kind,
        is_ceil_mode=ceil_mode,
        is_ave_count_zero_pad=count_padding,
        ensure_pool_image=ceil_mode,
    )
    return g.add(op, x)


def _ceil_mode(node: OnnxNode, since: int) -> bool:
    return bool(node.attr("ceil_mode", 0)) if node.version >= since else False


@onnx_op("MaxPool", since=1, kind=Kind.DIRECT, limits="one to three spatial axes; the host computes Indices")
def max_pool(node: OnnxNode, g: Graph) -> list[Result]:
    """Maximum of each window, and the position of the first maximum."""
    tensor = node.tensor(0)
    x = emit.as_float(g, node.dequantized_input(0))
    is_column_major = bool(node.attr("storage_order", 0)) if node.version >= 8 else False
    window, ceil_mode = _window(node, 10), _ceil_mode(node, 10)
    if set(window.dilations) == {1}:
        y = pool(g, PoolType.MAX, x, window, ceil_mode=ceil_mode)
    else:
        y = _dilated_max(g, x, window, ceil_mode)
    results = []
    if len(node.outputs_used) > 1 and node.outputs_used[1]:
        before = tuple(pair[0] for pair in window.pads)
        op = HostMaxPositions(
            kernel=window.kernel,
            strides=window.strides,
            dilations=window.dilations,
            pads=before,
            is_column_major=is_column_major,
        )
        results = [node.result(g.add(op, x, y), element_types.INT64)]
    if tensor.quant is None:
        y = emit.cast(g, y, tensor.element.graph)
    return [node.result(y, tensor.element, quant=tensor.quant), *results]


@onnx_op("MaxUnpool", since=9, kind=Kind.HOST, limits="output_shape is constant or the shape of a tensor")
def max_unpool(node: OnnxNode, g: Graph) -> Value:
    """Write the maxima to their positions in a larger tensor; other elements are 0."""
    kernel, axes = node.required_attr("kernel_shape", (1,)), node.rank(0) - 2
    strides, pads = node.ints_attr("strides") or (1,) * axes, node.ints_attr("pads") or (0,) * (2 * axes)
    if not 1 <= axes <= 3 or not len(kernel) == len(strides) == axes or len(pads) != 2 * axes:
        raise node.invalid(f"kernel_shape {list(kernel)} for the input {list(node.shape(0))}")
    sizes: tuple[int, ...] = ()
    operands = [emit.floats(node.input(0)), node.input(1)]
    if node.has_input(2):
        target = node.ints(2)
        if len(target) != axes + 2 or any(str(a) != str(b) for a, b in zip(target, node.shape(0)[:2], strict=False)):
            raise node.invalid(f"output_shape {list(target)} for the input {list(node.shape(0))}")
        sizes = target[2:]
        if extent := open_within(sizes):
            extents = open_extents.to_shape(sizes)
            alike = [value for value in g.values if value.shape[2:] == extents and not value.is_constant]
            if not alike:
                raise OpenExtentError(extent)
            operands.append(alike[0])
            sizes = ()
    totals = tuple(pads[k] + pads[axes + k] for k in range(axes))
    return g.add(HostMaxUnpool(kernel=kernel, strides=strides, pads=totals, sizes=sizes), *operands)


def _count(extent: int, pads: tuple[int, int], reach: int, stride: int, ceil_mode: bool) -> int:
    """Number of windows on an axis; with ``ceil_mode`` the last one may extend past the data, but not begin there."""
    room = extent + sum(pads) - reach
    if room < 0:
        raise CannotConvertError(INVALID_NODE, f"a window of {reach} elements over {extent + sum(pads)}")
    count = (math.ceil(room / stride) if ceil_mode else room // stride) + 1
    if ceil_mode and (count - 1) * stride >= extent + pads[0]:
        count -= 1
    return count


def _dilated_max(g: Graph, x: Value, window: Window, ceil_mode: bool) -> Value:
    """Compute a dilated max pooling, axis by axis, as the maximum of shifted slices: one per element of the window."""
    for axis, (size, stride, dilation, (before, after)) in enumerate(
        zip(window.kernel, window.strides, window.dilations, window.pads, strict=True)
    ):
        extent = emit.extents(x)[2 + axis]
        reach = (size - 1) * dilation + 1
        count = _count(extent, (before, after), reach, stride, ceil_mode)
        needed = max((count - 1) * stride + reach - extent - before, 0)
        if before or needed:
            paddings = [0] * (2 * x.rank)
            paddings[2 * (2 + axis)], paddings[2 * (2 + axis) + 1] = before, needed
            x = g.add(Pad(Scalar.f32(-np.inf), tuple(paddings)), x)
        shifted = [
            emit.slice_axis(g, x, 2 + axis, k * dilation, k * dilation + (count - 1) * stride + 1, stride)
            for k in range(size)
        ]
        x = shifted[0]
        for other in shifted[1:]:
            x = emit.binary(g, "max", x, other)
    return x


@onnx_op("AveragePool", since=1, kind=Kind.DIRECT, limits="one to three spatial axes")
def average_pool(node: OnnxNode, g: Graph) -> Value:
    """Mean of each window, with or without the padding."""
    return average_pool_of(node, g, emit.floats(node.input(0)), node.version)


def average_pool_of(node: OnnxNode, g: Graph, x: Value, version: int) -> Value:
    """Pool ``x`` with the attributes of the node as in opset ``version``."""
    is_own_domain = not node.proto.domain
    window = _window(node, 19)
    ceil_mode = _ceil_mode(node, 10 if is_own_domain else 1)
    count_padding = bool(node.attr("count_include_pad", 0)) if version >= 7 or not is_own_domain else False
    if set(window.dilations) == {1}:
        return pool(g, PoolType.AVE, x, window, ceil_mode=ceil_mode, count_padding=count_padding)
    return _dilated_average(node, g, x, window, ceil_mode, count_padding)


def _dilated_average(node: OnnxNode, g: Graph, x: Value, window: Window, ceil_mode: bool, count_padding: bool) -> Value:
    """Dilated average pooling: the sum of each window divided by its number of elements."""
    sums = _window_sums(node, g, x, window, ceil_mode)
    counts = np.ones((), np.float32)
    node.budget((*emit.extents(sums)[2:], max(window.kernel)), 8, "number of elements")
    for axis, extent in enumerate(emit.extents(x)[2:]):
        before, after = window.pads[axis]
        low, high = (-before, extent + after) if count_padding else (0, extent)
        starts = np.arange(emit.extents(sums)[2 + axis])[:, None] * window.strides[axis] - before
        taps = starts + np.arange(window.kernel[axis]) * window.dilations[axis]
        counts = np.multiply.outer(counts, ((taps >= low) & (taps < high)).sum(1).astype(np.float32))
    return emit.div(g, sums, emit.float_constant(g, counts[None, None], "count"))


def _window_sums(node: OnnxNode, g: Graph, x: Value, window: Window, ceil_mode: bool) -> Value:
    """Sum of each window, as a depthwise convolution with ones."""
    channels, *extents = emit.extents(x)[1:]
    node.budget((channels, 1, *window.kernel), 4, "weight")
    weight = np.ones((channels, 1, *window.kernel), np.float32)
    pads = []
    for axis, extent in enumerate(extents):
        before, stride = window.pads[axis][0], window.strides[axis]
        reach = (window.kernel[axis] - 1) * window.dilations[axis] + 1
        count = _count(extent, window.pads[axis], reach, stride, ceil_mode)
        pads.append((before, max((count - 1) * stride + reach - extent - before, 0)))
    return convolve(g, x, g.constant(weight, name="window"), None, window, tuple(pads), channels)


def power_of_magnitude(node: OnnxNode, g: Graph, x: Value, p: float) -> Value:
    """``|x| ** p``."""
    if x.dtype is not DType.FLOAT32 or p < 1:
        raise node.fail(UNSUPPORTED_TYPE, f"p={p}", "supported: p of 1 and more")
    if p == 1:
        return formulas.absolute(g, x)
    if p == 2:
        return formulas.square(g, x)
    return formulas.exp(g, emit.muls(g, formulas.ln(g, formulas.absolute(g, x)), p))


def root(g: Graph, x: Value, p: float) -> Value:
    """``x ** (1 / p)``, the inverse of ``power_of_magnitude``."""
    if p == 1:
        return x
    return formulas.sqrt(g, x) if p == 2 else formulas.exp(g, emit.muls(g, formulas.ln(g, x), 1 / p))


@onnx_op("LpPool", since=2, limits="one to three spatial axes; p of 1 and more")
def lp_pool(node: OnnxNode, g: Graph) -> Value:
    """p-norm of each window."""
    p = float(node.attr("p", 2))
    window, ceil_mode = _window(node, 18), _ceil_mode(node, 18)
    powers = power_of_magnitude(node, g, emit.floats(node.input(0)), p)
    if set(window.dilations) != {1} or ceil_mode:
        return root(g, _window_sums(node, g, powers, window, ceil_mode), p)
    means = pool(g, PoolType.AVE, powers, window, count_padding=True)
    return root(g, emit.muls(g, means, math.prod(window.kernel)), p)


@onnx_op("GlobalLpPool", since=2)
def global_lp_pool(node: OnnxNode, g: Graph) -> Value:
    """p-norm of each channel."""
    p = float(node.attr("p", 2))
    powers = power_of_magnitude(node, g, emit.floats(node.input(0)), p)
    return root(g, emit.total(g, powers, range(2, node.rank(0))), p)


@onnx_op("GlobalAveragePool", "GlobalMaxPool", since=1, kind=Kind.DIRECT)
def global_average_or_max_pool(node: OnnxNode, g: Graph) -> Value:
    """Mean or maximum of each channel."""
    x = emit.floats(node.input(0))
    if x.rank < 3:
        raise node.invalid(f"an input of rank {node.rank(0)} has no spatial axes")
    return global_pool(g, PoolType.MAX if node.op_type == "GlobalMaxPool" else PoolType.AVE, x)


def global_pool(g: Graph, kind: PoolType, x: Value) -> Value:
    """Reduce each channel to its mean or maximum."""
    if x.rank == 4:
        return g.add(Pool(kernel_h=1, kernel_w=1, stride_h=1, stride_w=1, pooling_type=kind, is_global_pooling=True), x)
    method = ReduceMethodType.REDUCE_MEAN if kind is PoolType.AVE else ReduceMethodType.REDUCE_MAX
    return emit.reduce(g, method, x, range(2, x.rank))
