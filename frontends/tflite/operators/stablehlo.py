"""StableHLO operators with named axes: dot, convolution, gather and dynamic slice."""

from __future__ import annotations

import math

import numpy as np

from tpuconvert.frontends import emit, functions
from tpuconvert.frontends.registry import Kind
from tpuconvert.frontends.tflite import layout
from tpuconvert.frontends.tflite.lowering import reshape
from tpuconvert.frontends.tflite.node import TfliteNode, tflite_op
from tpuconvert.frontends.tflite.operators.gather import (
    clamp_indices,
    gather,
    gather_at,
    insert_between,
    pad_or_crop,
    slice_box,
)
from tpuconvert.frontends.tflite.operators.scatter_update import box_elements, flat_indices, index_tuples
from tpuconvert.schema.errors import INVALID_NODE, UNSUPPORTED_ATTRIBUTE
from tpuconvert.schema.graph.graph import Graph, Value, static
from tpuconvert.schema.ops.batch_matmul import BatchMatmul
from tpuconvert.schema.ops.convolution.conv import Conv
from tpuconvert.schema.ops.convolution.conv3d import Conv3d
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul
from tpuconvert.schema.ops.permute import Permute

Order = tuple[int, ...]


def permute(g: Graph, x: Value, order: Order) -> Value:
    """Permute the axes; the value itself if the order is unchanged."""
    return x if order == tuple(range(len(order))) else g.add(Permute(order=order), x)


@tflite_op("STABLEHLO_DOT_GENERAL")
def dot_general(node: TfliteNode, g: Graph) -> Value:
    """Matmul over contracted axes; the result has the batch axes, then the free axes of the left and right operands."""
    node.ignore_option("precision_config")  # allows lower precision; computed in float32 here
    batch = node.option("lhs_batching_dimensions", ()), node.option("rhs_batching_dimensions", ())
    inner = node.option("lhs_contracting_dimensions", ()), node.option("rhs_contracting_dimensions", ())
    shapes = node.shape(0), node.shape(1)
    free = [[axis for axis in range(len(s)) if axis not in b + i] for s, b, i in zip(shapes, batch, inner, strict=True)]
    for named, shape in zip(zip(batch, inner, strict=True), shapes, strict=True):
        if any(not 0 <= axis < len(shape) for axis in named[0] + named[1]):
            raise node.fail(INVALID_NODE, f"axes {named} of {list(shape)}")
    extents = [[shapes[side][axis] for axis in axes] for axes_of in (batch, inner) for side, axes in enumerate(axes_of)]
    if extents[0] != extents[1] or extents[2] != extents[3]:
        raise node.fail(INVALID_NODE, f"{list(shapes[0])} times {list(shapes[1])}")
    count, depth = math.prod(extents[0]), math.prod(extents[2])
    rows, columns = (math.prod(shapes[side][axis] for axis in free[side]) for side in (0, 1))
    a = permute(g, emit.as_float(g, node.input(0)), (*batch[0], *free[0], *inner[0]))
    b = permute(g, emit.as_float(g, node.input(1)), (*batch[1], *inner[1], *free[1]))
    if count == 1:
        product = g.add(MatrixMul(), reshape(g, a, (rows, depth)), reshape(g, b, (depth, columns)))
    else:
        product = g.add(BatchMatmul(), reshape(g, a, (count, rows, depth)), reshape(g, b, (count, depth, columns)))
    left, right = ([shapes[side][axis] for axis in free[side]] for side in (0, 1))
    return emit.cast(g, reshape(g, product, (*extents[0], *left, *right)), node.input(0).dtype)


@tflite_op("STABLEHLO_CONVOLUTION", limits="one to three spatial axes, no batch groups")
def convolution(node: TfliteNode, g: Graph) -> Value:
    """Convolution with one to three spatial axes; options state the axis order, which is permuted to channels-first."""
    node.ignore_option("precision_config")  # allows lower precision; computed in float32 here
    node.refuse_option("batch_group_count", 1)
    spatial = len(node.option("input_spatial_dimensions", ()))
    if not 1 <= spatial <= 3 or node.rank(0) != spatial + 2 or node.rank(1) != spatial + 2:
        raise node.fail(UNSUPPORTED_ATTRIBUTE, f"{spatial} spatial axes", "supported: 1, 2 or 3")
    ones = (1,) * spatial
    strides, dilations = node.option("window_strides", ()) or ones, node.option("rhs_dilation", ()) or ones
    spreads, pads = node.option("lhs_dilation", ()) or ones, node.option("padding", ()) or (0,) * (2 * spatial)
    mirrored = node.option("window_reversal", ()) or (False,) * spatial
    if any(len(numbers) != spatial for numbers in (strides, dilations, spreads, mirrored)) or len(pads) != 2 * spatial:
        message = f"strides {list(strides)}, dilations, padding or reversal of a window with {spatial} axes"
        raise node.fail(INVALID_NODE, message)
    data, kernel, result = _axes(node)
    x = insert_between(g, permute(g, node.input(0), data), (1, 1, *spreads))
    w = permute(g, node.input(1), kernel)
    for axis, is_mirrored in enumerate(mirrored):
        if is_mirrored:
            w = gather_at(node, w, 2 + axis, np.arange(static(w.shape)[2 + axis])[::-1])
    if min(pads) < 0:  # a negative pad crops
        low, high = ([0, 0, *(min(n, 0) for n in pads[side::2])] for side in (0, 1))
        x, pads = pad_or_crop(g, x, low, high, 0.0), tuple(max(n, 0) for n in pads)
    y = _product(node, x, w, tuple(strides), tuple(dilations), tuple(pads))
    return permute(g, y, layout.inverse(result))


def _axes(node: TfliteNode) -> tuple[Order, Order, Order]:
    """Axes of data, kernel and result in channels-first order: N, C, spatial; O, I, spatial for the kernel."""
    orders = []
    for batch, feature, spatial in (
        ("input_batch_dimension", "input_feature_dimension", "input_spatial_dimensions"),
        ("kernel_output_feature_dimension", "kernel_input_feature_dimension", "kernel_spatial_dimensions"),
        ("output_batch_dimension", "output_feature_dimension", "output_spatial_dimensions"),
    ):
        axes = (node.option(batch), node.option(feature), *node.option(spatial, ()))
        if sorted(axes) != list(range(node.rank(0))):
            raise node.fail(INVALID_NODE, f"{batch}, {feature} and {spatial} name the axes {list(axes)}")
        orders.append(axes)
    return orders[0], orders[1], orders[2]


def _product(node: TfliteNode, x: Value, w: Value, strides: Order, dilations: Order, pads: Order) -> Value:
    """Convolve channels-first operands; one spatial axis is extended by a unit axis."""
    g, groups = node.graph, node.option("feature_group_count", 1)
    if len(strides) == 3:
        front, back, top, bottom, left, right = pads
        stride, dilation = (strides[0], strides[1], strides[2]), (dilations[0], dilations[1], dilations[2])
        return g.add(Conv3d(groups, dilation, (front, back, top, bottom, left, right), stride), x, w)
    if len(strides) == 1:
        n, c, length = static(x.shape)
        x, w = reshape(g, x, (n, c, 1, length)), reshape(g, w, (*static(w.shape)[:2], 1, static(w.shape)[2]))
        strides, dilations, pads = (1, *strides), (1, *dilations), (0, 0, *pads)
    y = g.add(functions.plane_convolution(Conv, strides, dilations, pads, groups), x, w)
    if node.rank(0) == 3:
        n, c, _, length = static(y.shape)
        return reshape(g, y, (n, c, length))
    return y


@tflite_op("STABLEHLO_DYNAMIC_SLICE", kind=Kind.DIRECT)
def dynamic_slice(node: TfliteNode, g: Graph) -> Value:
    """Slice a box, whose start is clamped such that the box fits; axes with a computed start are gathered."""
    shape, sizes = node.shape(0), node.option("slice_sizes", ())
    if len(sizes) != len(shape) or node.input_count != 1 + len(shape):
        raise node.fail(INVALID_NODE, f"slice_sizes {list(sizes)} for {list(shape)}")
    if any(not 1 <= size <= extent for size, extent in zip(sizes, shape, strict=True)):
        raise node.fail(INVALID_NODE, f"slice_sizes {list(sizes)} of {list(shape)}")
    x = node.input(0)
    for axis, (size, extent) in enumerate(zip(sizes, shape, strict=True)):
        if size == extent:
            continue
        if node.is_constant(1 + axis):
            start = min(max(node.one_int(1 + axis), 0), extent - size)
            ranges = [range(e) for e in static(x.shape)]
            ranges[axis] = range(start, start + size)
            x = slice_box(g, x, ranges)
        else:
            x = gather(g, x, clamp_indices(g, node.input(1 + axis), extent - size, size), axis)
    return x


@tflite_op("STABLEHLO_GATHER", limits="computed indices: whole slices of one axis")
def stablehlo_gather(node: TfliteNode, g: Graph) -> Value:
    """Gather boxes at constant indices, or slices of one axis at computed indices."""
    node.ignore_option("indices_are_sorted")  # affects only the speed
    offset, collapsed = node.option("offset_dims", ()), node.option("collapsed_slice_dims", ())
    axes, vector = node.option("start_index_map", ()), node.option("index_vector_dim")
    sizes = node.option("slice_sizes", ())
    shape, index_shape = node.shape(0), node.shape(1)
    batch = tuple(extent for axis, extent in enumerate(index_shape) if axis != vector)
    sliced = [axis for axis in range(len(shape)) if axis not in collapsed]
    depth = index_shape[vector] if 0 <= vector < len(index_shape) else 1
    fits = len(sizes) == len(shape) and len(axes) == depth and len(offset) == len(sliced)
    fits = fits and all(0 <= axis < len(shape) for axis in axes)
    if not fits or any(not 1 <= s <= e for s, e in zip(sizes, shape, strict=True)):
        raise node.fail(INVALID_NODE, f"slice_sizes {list(sizes)} of {list(shape)} at {list(index_shape)}")
    rank = len(batch) + len(offset)
    batch_axes = [axis for axis in range(rank) if axis not in offset]  # axes of the result
    if len(batch_axes) != len(batch):
        raise node.fail(INVALID_NODE, f"offset_dims {list(offset)}")
    if node.is_constant(1):
        return _known_boxes(node, batch, sliced, batch_axes)
    are_slices = all(
        size == (1 if axis in axes else extent) for axis, (size, extent) in enumerate(zip(sizes, shape, strict=True))
    )
    if len(axes) != 1 or tuple(collapsed) != tuple(axes) or not are_slices:
        text = "boxes at indices that depend on the model's inputs"
        raise node.fail(UNSUPPORTED_ATTRIBUTE, text, "supported: whole slices of one axis")
    first, x = axes[0], node.input(0)
    indices = clamp_indices(g, reshape(g, node.input(1), (math.prod(index_shape),)), shape[first] - 1)
    rows = gather(g, x, indices, first)
    taken = reshape(g, rows, (*shape[:first], *batch, *shape[first + 1 :]))
    now = [*range(first), *range(first + len(batch), rank)]  # axes of ``taken`` that are not batch axes
    order = [0] * rank
    for position, axis in enumerate(offset):
        order[axis] = now[position]
    for position, axis in enumerate(batch_axes):
        order[axis] = first + position
    return permute(g, taken, tuple(order))


def _known_boxes(node: TfliteNode, batch: Order, sliced: list[int], batch_axes: list[int]) -> Value:
    shape, sizes, axes = node.shape(0), node.option("slice_sizes", ()), node.option("start_index_map", ())
    vector, offset, indices = node.option("index_vector_dim"), node.option("offset_dims", ()), node.constant(1)
    extents = [0] * (len(batch) + len(offset))
    for axis, extent in zip(batch_axes, batch, strict=True):
        extents[axis] = extent
    for result_axis, axis in zip(offset, sliced, strict=True):
        extents[result_axis] = sizes[axis]
    node.check_size([len(shape), *extents])
    highest = [shape[axis] - sizes[axis] for axis in axes]
    starts = np.clip(index_tuples(indices, vector).astype(np.int64), 0, highest)
    inside = dict(zip(sliced, offset, strict=True))
    flat = flat_indices(node, box_elements(starts, axes, tuple(extents), batch_axes, inside, len(shape)).T, shape)
    x = reshape(node.graph, node.input(0), (math.prod(shape),))
    return reshape(node.graph, gather_at(node, x, 0, flat), extents)
