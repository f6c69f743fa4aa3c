"""Lowerings of normalizations, averages and resizing in floating point, which are computed in FLOAT32.

The device may round their results differently. Averages in 16 bits would have errors of up to 17 units in the last
place in the vendor's simulator.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence

import numpy as np

from tpuconvert.exporters.lowerings import NoExactForm
from tpuconvert.exporters.tpu_mlir.dialect import Tensor
from tpuconvert.exporters.tpu_mlir.forms.pooling import window_of
from tpuconvert.exporters.tpu_mlir.forms.window import Window
from tpuconvert.exporters.tpu_mlir.lowering import Lowering, static_shape
from tpuconvert.exporters.tpu_mlir.registry import lowers_floats
from tpuconvert.schema.graph.graph import Node
from tpuconvert.schema.ops.interpolate import Interpolate, InterpolateMode, PlatForm
from tpuconvert.schema.ops.normalization import GroupNorm, LayerNorm, RmsNorm
from tpuconvert.schema.ops.pool import Pool, PoolType
from tpuconvert.schema.ops.reduce import Reduce, ReduceMethodType
from tpuconvert.schema.ops.softmax import Softmax
from tpuconvert.schema.types import Array

_REDUCTIONS = {
    ReduceMethodType.REDUCE_MEAN: "ReduceMean",
    ReduceMethodType.REDUCE_SUM: "ReduceSum",
    ReduceMethodType.REDUCE_MAX: "ReduceMax",
    ReduceMethodType.REDUCE_MIN: "ReduceMin",
}


@lowers_floats(Softmax)
def softmax(op: Softmax, node: Node, d: Lowering) -> None:
    """Lower a softmax."""
    y = node.output
    d.add_floats("tpu.Softmax", [d.floats(node.inputs[0], "f32")], y, "f32", axis=op.axis % y.rank)


@lowers_floats(LayerNorm)
def layer_norm(op: LayerNorm, node: Node, d: Lowering) -> None:
    """Lower a normalization over the axes from ``axis`` on."""
    x, scale, bias = (*node.inputs, None, None)[:3]
    assert x is not None
    shape, axis = static_shape(x), op.axis % x.rank
    broadcast = (*(1,) * axis, *shape[axis:])
    operands = [d.floats(x, "f32"), *(None if v is None else d.floats(v, "f32", broadcast) for v in (scale, bias))]
    d.add_floats(
        "tpu.LayerNorm", operands, node.output, "f32", axis=axis, eps=op.epsilon, normalized_shape=shape[axis:]
    )


@lowers_floats(RmsNorm)
def rms_norm(op: RmsNorm, node: Node, d: Lowering) -> None:
    """Lower a division by the root mean square over the last axis."""
    x, scale = (*node.inputs, None)[:2]
    assert x is not None
    if op.axis % x.rank != x.rank - 1:
        raise NoExactForm(f"it normalizes from axis {op.axis} on, expected the last axis")
    operands = [d.floats(x, "f32"), None if scale is None else d.floats(scale, "f32")]
    d.add_floats("tpu.RMSNorm", operands, node.output, "f32", eps=op.epsilon)


@lowers_floats(GroupNorm)
def group_norm(op: GroupNorm, node: Node, d: Lowering) -> None:
    """Lower a normalization over groups of channels."""
    x, scale, bias = (*node.inputs, None, None)[:3]
    assert x is not None
    broadcast = (1, static_shape(x)[1], *(1,) * (x.rank - 2))
    operands = [d.floats(x, "f32"), *(None if v is None else d.floats(v, "f32", broadcast) for v in (scale, bias))]
    d.add_floats("tpu.GroupNorm", operands, node.output, "f32", num_groups=op.groups, eps=op.epsilon)


@lowers_floats(Reduce)
def reduce(op: Reduce, node: Node, d: Lowering) -> None:
    """Lower a mean, sum, maximum or minimum along axes.

    The compiler aborts, or computes other results, for axes with others between them: one operation per run of axes.
    """
    x, mode = node.inputs[0], _REDUCTIONS.get(op.method)
    assert x is not None
    if mode is None:
        raise NoExactForm(f"the tpu dialect has no {op.method.name}")
    y, result, shape = node.output, d.floats(x, "f32"), [*static_shape(x)]
    for axes in reversed(_runs_of_axes({axis % x.rank for axis in op.axis_list}, shape)):
        for axis in axes:
            shape[axis] = 1
        name = y.name if tuple(shape) == static_shape(y) else f"{y.name}_along_{axes[0]}"
        result = d.module.add("tpu.Reduce", [result], shape, "f32", name, axes=axes, keepdims=True, mode=mode)
    d.define(y, d.as_kind(d.reshape(result, static_shape(y), y.name), d.kind))


def _runs_of_axes(reduced: Collection[int], shape: Sequence[int]) -> list[list[int]]:
    """Return the reduced axes in runs without another axis of several elements between them."""
    runs: list[list[int]] = []
    is_open = False
    for axis, extent in enumerate(shape):
        if extent == 1:
            continue
        if axis not in reduced:
            is_open = False
        elif is_open:
            runs[-1] = [*range(runs[-1][0], axis + 1)]
        else:
            runs.append([axis])
            is_open = True
    return runs


@lowers_floats(Pool)
def pool(op: Pool, node: Node, d: Lowering) -> None:
    """Lower a maximum or an average over windows."""
    x, y = node.inputs[0], node.output
    assert x is not None
    window = window_of(op, node).with_least_strides(static_shape(x)[2:], static_shape(y)[2:])
    is_average = op.pooling_type is not PoolType.MAX
    if is_average and (counts := op.element_counts(static_shape(x))).min() != counts.max():
        _uneven_average(node, d, window, counts)
        return
    kind = "f32" if is_average else ""
    d.add_floats(
        "tpu.Pool2D",
        [d.floats(x, kind)],
        y,
        kind,
        kernel_shape=window.kernel,
        strides=window.strides,
        pads=window.pads,
        pool_mode="Avg" if is_average else "Max",
        count_include_pad=is_average,  # all windows have equal numbers of elements
    )


def _uneven_average(node: Node, d: Lowering, window: Window, counts: Array) -> None:
    """Append an average of windows with different numbers of elements: their sums times one factor per position."""
    x, y = node.inputs[0], node.output
    channels, shape = static_shape(y)[1], static_shape(y)
    ones = d.module.weight(np.ones((channels, 1, *window.kernel), np.float32), "f32", f"{y.name}_filter")
    zeros = d.module.weight(np.zeros((1, channels, 1, 1), np.float32), "f32", f"{y.name}_bias")
    sums = d.module.add(
        "tpu.Conv2D",
        [d.floats(x, "f32"), ones, zeros],
        shape,
        "f32",
        f"{y.name}_sums",
        kernel_shape=window.kernel,
        strides=window.strides,
        dilations=(1, 1),
        pads=window.pads,
        group=channels,
    )
    factors = d.module.weight((1 / counts).astype(np.float32).reshape(1, 1, *shape[2:]), "f32", f"{y.name}_factors")
    d.add_floats("tpu.Mul", [sums, factors], y, "f32")


@lowers_floats(Interpolate)
def interpolate(op: Interpolate, node: Node, d: Lowering) -> None:
    """Lower a resize of the axes 2 and 3.

    The dialect's linear interpolation is right with the two coordinates that have a name here. If the factor is not a
    whole number, the compiler needs a kernel that it compiles on the user's machine. All others are one product per
    axis.
    """
    x, y = node.inputs[0], node.output
    assert x is not None
    (height, width), (rows, columns) = static_shape(x)[2:], static_shape(y)[2:]
    coordinates = "align_corners" if op.align_corners else "half_pixel" if op.half_pixel_centers else ""
    is_linear = op.method is InterpolateMode.BILINEAR and op.platform is PlatForm.TENSORFLOW
    if is_linear and coordinates and not (rows % height or columns % width):
        scales = {"scale_h": rows / height, "scale_w": columns / width}
        operand = d.floats(x, "f32")
        d.add_floats("tpu.Interp", [operand], y, "f32", mode="linear", coord_mode=coordinates, **scales)
        return
    along = _resize_last_axis(d, d.floats(x, "f32"), _weights_of_axis(op, width, columns), f"{y.name}_columns")
    down = _resize_last_axis(d, _transposed(d, along), _weights_of_axis(op, height, rows), f"{y.name}_rows")
    d.add_floats("tpu.Permute", [down], y, "f32", order=(0, 1, 3, 2))


def _weights_of_axis(op: Interpolate, before: int, after: int) -> Array:
    """Return the weights [before, after] of the elements of an axis in its results."""
    column = np.eye(before, dtype=np.float32).reshape(1, before, before, 1)
    resized = dataclasses.replace(op, size=(after, 1), scale_factor=()).reference(column)[0]
    return np.asarray(resized.reshape(before, after))


def _transposed(d: Lowering, x: Tensor) -> Tensor:
    n, channels, height, width = x.shape
    shape, location = (n, channels, width, height), f"{x.location}_turned"
    return d.module.add("tpu.Permute", [x], shape, "f32", location, order=(0, 1, 3, 2))


def _resize_last_axis(d: Lowering, x: Tensor, weights: Array, location: str) -> Tensor:
    """Append a product of the last axis with weights [before, after]."""
    shape = (*x.shape[:-1], weights.shape[1])
    matrix = d.module.weight(weights, "f32", f"{location}_weights")
    return d.module.add("tpu.MatMul", [x, matrix], shape, "f32", location, round_mode="HalfAwayFromZero")
