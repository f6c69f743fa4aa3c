"""ConvTranspose and Col2Im.

One spatial axis is converted as two with height 1. With three axes, zeros are inserted between the elements of the
input, and a convolution with flipped weights follows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tpuconvert.frontends import emit
from tpuconvert.frontends.onnx.node import OnnxNode, Result, onnx_op
from tpuconvert.frontends.onnx.operators.convolution import (
    Window,
    add_convolution,
    as_line,
    as_plane,
    bias_of,
    check_channels,
    convolve,
    kernel_of,
    plane_parameters,
    read_window,
    split_total,
)
from tpuconvert.frontends.onnx.operators.matmul import matrix_product
from tpuconvert.frontends.registry import Kind
from tpuconvert.schema.errors import UNSUPPORTED_ATTRIBUTE
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops.convolution.deconv import Deconv
from tpuconvert.schema.ops.pad import Pad, PadType
from tpuconvert.schema.types import Scalar


@onnx_op("ConvTranspose", since=1, kind=Kind.DIRECT, limits="one to three spatial axes; with three a constant weight")
def conv_transpose(node: OnnxNode, g: Graph) -> Value:
    """Transposed convolution; weight [ic, oc/groups, ...].

    ``output_padding`` becomes a negative pad after the data; ``output_shape`` determines the pads.
    """
    x, w = emit.floats(node.input(0)), emit.floats(node.input(1), "its weight")
    groups = node.attr("group", 1)
    window = read_window(node, kernel_of(node))
    weight, extents = node.shape(1), node.shape(0)[2:]
    check_channels(node, node.shape(0)[1], weight, groups, transposed=True)
    bias = bias_of(node, g, node.optional(2), weight[1] * groups)
    pads = _transposed_pads(node, window, extents)
    if len(extents) == 3:
        return _insert_zeros_and_convolve(node, g, x, w, bias, window, pads, groups)
    line = len(extents) == 1
    parameters = plane_parameters(window.strides, window.dilations, pads, groups)
    # The TPU operator accepts negative pads only after the data, and only smaller than one stride.
    lowest = {"pad_h_t": 0, "pad_h_b": 1 - parameters["stride_h"], "pad_w_l": 0, "pad_w_r": 1 - parameters["stride_w"]}
    beyond = tuple(max(limit - parameters[side], 0) for side, limit in lowest.items())
    op = Deconv(**parameters | {side: max(parameters[side], limit) for side, limit in lowest.items()})
    if any(beyond):
        y = g.add(op, as_plane(g, x) if line else x, as_plane(g, w) if line else w)
        y = g.add(Pad(Scalar.f32(0), (0, 0, 0, 0, *beyond)), y)
        y = y if bias is None else emit.add(g, y, bias)
    else:
        y = add_convolution(g, op, as_plane(g, x) if line else x, as_plane(g, w) if line else w, bias)
    return as_line(g, y) if line else y


def _transposed_pads(node: OnnxNode, window: Window, extents: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Elements to crop before and after each axis of the full result; a negative number after adds elements."""
    axes = len(extents)
    extra = node.ints_attr("output_padding") or (0,) * axes
    output_shape = node.ints_attr("output_shape")
    if len(extra) != axes or (output_shape is not None and len(output_shape) not in (axes, axes + 2)):
        raise node.invalid(f"output_padding {list(extra)} or output_shape {output_shape} for {axes} axes")
    if any(not 0 <= more < max(s, d) for more, s, d in zip(extra, window.strides, window.dilations, strict=True)):
        raise node.invalid(f"output_padding {list(extra)} is not below the strides {list(window.strides)}")
    crops = []
    for axis, extent in enumerate(extents):
        stride = window.strides[axis]
        full = stride * (extent - 1) + (window.kernel[axis] - 1) * window.dilations[axis] + 1
        if output_shape is not None:
            total = full + extra[axis] - output_shape[-axes:][axis]
        elif window.auto_pad.startswith("SAME"):
            total = max(full + extra[axis] - extent * stride, 0)
        else:
            before, after = window.pads[axis]
            crops.append((before, after - extra[axis]))
            continue
        before, after = split_total(total, "SAME_UPPER" if window.auto_pad == "SAME_UPPER" else "SAME_LOWER")
        before, after = (max(before, 0), total - max(before, 0)) if total < 0 else (before, after)
        crops.append((before, after - extra[axis]))
    return tuple(crops)


def _insert_zeros_and_convolve(
    node: OnnxNode,
    g: Graph,
    x: Value,
    w: Value,
    bias: Value | None,
    window: Window,
    pads: tuple[tuple[int, int], ...],
    groups: int,
) -> Value:
    """Convert three spatial axes: insert zeros between the elements, then conv3d with flipped weights."""
    if not node.is_constant(1):
        raise node.fail(
            UNSUPPORTED_ATTRIBUTE,
            "a computed weight with three spatial axes",
            "supported: constant",
            needs=node.tensor(1),
        )
    for axis, stride in enumerate(window.strides):
        x = spread(g, x, 2 + axis, stride)
    ic, oc, *kernel = node.shape(1)
    flipped = np.flip(w.array, (2, 3, 4)).reshape(groups, ic // groups, oc, *kernel)
    flipped = flipped.transpose(0, 2, 1, 3, 4, 5).reshape(groups * oc, ic // groups, *kernel)
    weight = g.constant(np.ascontiguousarray(flipped), name=w.name)
    padding = tuple(
        ((k - 1) * d - before, (k - 1) * d - after)
        for k, d, (before, after) in zip(window.kernel, window.dilations, pads, strict=True)
    )
    plain = Window(window.kernel, (1, 1, 1), window.dilations, padding, "NOTSET")
    return convolve(g, x, weight, bias, plain, padding, groups)


def spread(g: Graph, x: Value, axis: int, stride: int) -> Value:
    """Insert ``stride - 1`` zeros between the elements of an axis."""
    if stride == 1:
        return x
    shape = emit.extents(x)
    wide = emit.reshape(g, x, (*shape[: axis + 1], 1, *shape[axis + 1 :]))
    paddings = [0] * (2 * wide.rank)
    paddings[2 * (axis + 1) + 1] = stride - 1
    padded = g.add(Pad(Scalar.f32(0), tuple(paddings), PadType.PAD_CONSTANT), wide)
    flat = emit.reshape(g, padded, (*shape[:axis], shape[axis] * stride, *shape[axis + 1 :]))
    return emit.slice_axis(g, flat, axis, 0, (shape[axis] - 1) * stride + 1)


@onnx_op("Col2Im", since=18, kind=Kind.DIRECT)
def col2im(node: OnnxNode, g: Graph) -> Result:
    """Two axes use a transposed convolution with one-hot kernels; other ranks use a matmul by a 0/1 matrix."""
    x = emit.floats(node.input(0))
    image, block = node.ints(1), node.ints(2)
    axes = len(image)
    strides, dilations = (node.ints_attr(name) or (1,) * axes for name in ("strides", "dilations"))
    pads = node.ints_attr("pads") or (0,) * (2 * axes)
    if not len(block) == len(strides) == len(dilations) == axes or len(pads) != 2 * axes or node.rank(0) != 3:
        raise node.invalid(f"block {list(block)}, strides, dilations or pads for the image {list(image)}")
    batch, rows, columns = node.shape(0)
    if not axes or min(*strides, *dilations, *block) < 1:
        raise node.invalid(f"block {list(block)}, strides {list(strides)} or dilations {list(dilations)} below 1")
    reach = [d * (k - 1) + 1 for d, k in zip(dilations, block, strict=True)]
    steps = [(image[k] + pads[k] + pads[k + axes] - reach[k]) // strides[k] + 1 for k in range(axes)]
    size = math.prod(block)
    if rows % size or min(steps) < 1 or math.prod(steps) != columns:
        raise node.invalid(f"columns {list(node.shape(0))} for blocks {list(block)} of the image {list(image)}")
    channels = rows // size
    after = [(steps[k] - 1) * strides[k] + reach[k] - pads[k] - image[k] for k in range(axes)]
    if axes == 2:
        kernels = np.tile(np.eye(size, dtype=np.float32).reshape(size, 1, *block), (channels, 1, 1, 1))
        sides = tuple((pads[k], after[k]) for k in range(2))
        op = Deconv(**plane_parameters(strides, dilations, sides, channels))
        plane = emit.reshape(g, x, (batch, rows, *steps))
        return node.result(g.add(op, plane, emit.float_constant(g, kernels, "kernels")))
    node.budget((size * columns, math.prod(image)), 4, "matrix of places")
    flat = emit.reshape(g, x, (batch * channels, size * columns))
    matrix = _places(image, block, steps, strides, dilations, pads)
    y = matrix_product(g, flat, emit.float_constant(g, matrix, "places"))
    return node.result(emit.reshape(g, y, (batch, channels, *image)))


def _places(
    image: tuple[int, ...],
    block: tuple[int, ...],
    steps: list[int],
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
    pads: tuple[int, ...],
) -> np.ndarray:
    """Matrix [elements of a block * blocks, elements of the image] with 1 at the image index of each element."""
    axes = len(image)
    grids = np.indices((*block, *steps)).reshape(2 * axes, -1)
    coordinates = [grids[axes + k] * strides[k] + grids[k] * dilations[k] - pads[k] for k in range(axes)]
    is_inside = np.all([(coordinates[k] >= 0) & (coordinates[k] < image[k]) for k in range(axes)], axis=0)
    index = np.ravel_multi_index(tuple(coordinates), image, mode="clip")
    matrix = np.zeros((grids.shape[1], math.prod(image)), np.float32)
    matrix[np.flatnonzero(is_inside), index[is_inside]] = 1
    return matrix
