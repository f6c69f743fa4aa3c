"""Sampling at data-dependent coordinates: RoiAlign, MaxRoiPool, DeformConv."""

from __future__ import annotations

import math

import numpy as np

from tpuconvert.frontends import emit
from tpuconvert.frontends.onnx.node import OnnxNode, Result, onnx_op
from tpuconvert.frontends.onnx.operators.convolution import Window, read_window, resolved_pads
from tpuconvert.frontends.onnx.operators.grid_sample import SampledAxis, weighted_picks
from tpuconvert.frontends.registry import Kind
from tpuconvert.schema.errors import UNSUPPORTED_ATTRIBUTE, UNSUPPORTED_TYPE
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.ops.convolution.conv import Conv
from tpuconvert.schema.ops.host.regions import RegionMode, RoiAlign, RoiMaxPool
from tpuconvert.schema.types import DType


@onnx_op("RoiAlign", since=10, kind=Kind.HOST)
def roi_align(node: OnnxNode, g: Graph) -> Result:
    """Bilinear samples of the cells of regions; a host operator."""
    images = node.input(2)
    if images.dtype is not DType.INT32:
        raise node.fail(UNSUPPORTED_TYPE, f"its batch indices are {node.element(2)}", "supported: int32, int64")
    half_pixel = False
    if node.version >= 16:
        modes = ("half_pixel", "output_half_pixel")
        half_pixel = node.choice("coordinate_transformation_mode", "half_pixel", modes) == "half_pixel"
    op = RoiAlign(
        output_height=node.attr("output_height", 1),
        output_width=node.attr("output_width", 1),
        sampling_ratio=node.attr("sampling_ratio", 0),
        spatial_scale=node.attr("spatial_scale", 1.0),
        mode=RegionMode.AVERAGE if node.choice("mode", "avg", ("avg", "max")) == "avg" else RegionMode.MAXIMUM,
        half_pixel=half_pixel,
    )
    return node.result(g.add(op, emit.floats(node.input(0)), emit.floats(node.input(1)), images))


@onnx_op("MaxRoiPool", since=1, kind=Kind.HOST)
def max_roi_pool(node: OnnxNode, g: Graph) -> Result:
    """Maximum of each cell of a region; a host operator."""
    height, width = node.required_attr("pooled_shape", (1, 1))
    op = RoiMaxPool(output_height=height, output_width=width, spatial_scale=node.attr("spatial_scale", 1.0))
    return node.result(g.add(op, emit.floats(node.input(0)), emit.floats(node.input(1))))


@onnx_op("DeformConv", since=19)
def deform_conv(node: OnnxNode, g: Graph) -> Result:
    """Deformable convolution: bilinear samples of each tap at its offset, then a 1x1 convolution."""
    if node.rank(0) != 4 or node.rank(1) != 4:
        raise node.fail(UNSUPPORTED_ATTRIBUTE, f"an input of rank {node.rank(0)}", "supported: images")
    batch, channels, *extents = node.shape(0)
    outputs, per_group, *kernel = node.shape(1)
    groups, offset_groups = node.attr("group", 1), node.attr("offset_group", 1)
    node.optional_attr("kernel_shape")
    window = read_window(node, kernel)
    pads, taps = resolved_pads(window, extents), math.prod(kernel)
    sizes = [
        (extent + sum(pad) - (size - 1) * dilation - 1) // stride + 1
        for extent, pad, size, stride, dilation in zip(
            extents, pads, kernel, window.strides, window.dilations, strict=True
        )
    ]
    if (
        groups < 1
        or offset_groups < 1
        or per_group * groups != channels
        or outputs % groups
        or channels % offset_groups
        or node.shape(2) != (batch, offset_groups * taps * 2, *sizes)
        or (node.has_input(4) and node.shape(4) != (batch, offset_groups * taps, *sizes))
    ):
        raise node.invalid(f"offsets {list(node.shape(2))} do not match the weight {list(node.shape(1))}")
    count = taps * math.prod(sizes)
    node.budget((batch, count), 8, "coordinates")
    image = emit.permute(g, emit.floats(node.input(0)), (0, 2, 3, 1))
    offsets = emit.as_computed(g, emit.floats(node.input(2)))
    moved = emit.reshape(g, offsets, (batch, offset_groups, taps, 2, math.prod(sizes)))
    mask = emit.as_computed(g, emit.floats(node.input(4))) if node.has_input(4) else None
    starts = np.repeat(np.arange(batch) * math.prod(extents), count)
    start = g.constant(starts.astype(np.int32), name="offset") if batch > 1 else None
    width = channels // offset_groups
    columns = []
    for group in range(offset_groups):
        own = emit.slice_axis(g, moved, 1, group, group + 1)
        coordinates = [
            emit.add(
                g,
                emit.reshape(g, emit.slice_axis(g, own, 3, axis, axis + 1), (batch * count,)),
                emit.float_constant(g, np.tile(_base(axis, kernel, sizes, window, pads), batch), "coordinates"),
            )
            for axis in range(2)
        ]
        lines = [
            SampledAxis(extent, True, "zeros").taps(g, coordinate, "linear")
            for extent, coordinate in zip(extents, coordinates, strict=True)
        ]
        rows = weighted_picks(g, emit.slice_axis(g, image, 3, group * width, (group + 1) * width), lines, start)
        if mask is not None:
            weight = emit.slice_axis(g, mask, 1, group * taps, (group + 1) * taps)
            rows = emit.mul(g, rows, emit.reshape(g, weight, (batch * count, 1)))
        samples = emit.permute(g, emit.reshape(g, rows, (batch, taps, math.prod(sizes), width)), (0, 3, 1, 2))
        columns.append(emit.reshape(g, samples, (batch, width * taps, *sizes)))
    x = emit.concat(g, columns, 1)
    weight = emit.reshape(g, emit.floats(node.input(1)), (outputs, per_group * taps, 1, 1))
    operands = [x, weight]
    if node.has_input(3):
        operands.append(emit.reshape(g, emit.floats(node.input(3)), (1, outputs, 1, 1)))
    return node.result(g.add(Conv(groups=groups), *operands))


def _base(
    axis: int, kernel: list[int], sizes: list[int], window: Window, pads: tuple[tuple[int, int], ...]
) -> np.ndarray:
    """Coordinates of the taps along an axis without offsets: [taps * rows * columns]."""
    grids = np.indices((*kernel, *sizes)).reshape(4, -1)
    return np.asarray(
        grids[2 + axis] * window.strides[axis] + grids[axis] * window.dilations[axis] - pads[axis][0], np.float32
    )
