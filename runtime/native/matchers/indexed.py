"""Operators with indices and regions that are computed at run time: scatter, and pooling over regions of interest."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from tpuconvert.runtime.native.builder.builder import Builder
from tpuconvert.runtime.native.builder.storage import row_major
from tpuconvert.runtime.native.matchers.any_elements import ANY_TYPES
from tpuconvert.runtime.native.matchers.matcher import Site, computes, operands_of
from tpuconvert.schema.graph.graph import Node
from tpuconvert.schema.ops.host.regions import RegionMode, RoiAlign, RoiMaxPool
from tpuconvert.schema.ops.host.scatter import HostScatterElements, HostScatterNd


def _fits(op: HostScatterElements, node: Node, site: Site) -> bool:
    data, indices, _ = operands_of(node)
    axis = op.axis % data.rank
    pairs = zip(indices.type.static_shape, data.type.static_shape, strict=True)
    return all(extent <= limit for other, (extent, limit) in enumerate(pairs) if other != axis)


@computes("scatter")
def scatter_nd(builder: Builder, node: Node, op: HostScatterNd) -> None:
    """Replace slices at computed indices of the leading axes, or combine them with updates."""
    data, indices, _ = operands_of(node)
    shape = builder.shape(data)
    depth = builder.shape(indices)[-1]
    steps = [prod(shape[axis + 1 :]) for axis in range(depth)]
    count = prod(builder.shape(indices)[:-1])
    _emit_scatter(builder, node, op, list(range(depth)), steps, count=count, block=prod(shape[depth:]))


@computes("scatter", conditions="indices are not larger than the data on other axes", when=_fits)
def scatter_elements(builder: Builder, node: Node, op: HostScatterElements) -> None:
    """Replace elements at computed indices of one axis, or combine them with updates."""
    data, indices, _ = operands_of(node)
    shape, axis = builder.shape(data), op.axis % data.rank
    steps = [prod(shape[other + 1 :]) for other in range(data.rank)]
    grids = np.indices(builder.shape(indices), sparse=True)
    offsets: Any = sum(
        grid * step for other, (grid, step) in enumerate(zip(grids, steps, strict=True)) if other != axis
    )
    offsets = np.broadcast_to(offsets, builder.shape(indices)).reshape(-1)
    count = prod(builder.shape(indices))
    _emit_scatter(builder, node, op, [axis], [steps[axis]], count=count, block=1, offsets=offsets.astype(np.int64))


def _emit_scatter(
    builder: Builder,
    node: Node,
    op: HostScatterNd | HostScatterElements,
    axes: list[int],
    steps: list[int],
    **fields: object,
) -> None:
    values = operands_of(node)
    data, indices, updates = (builder.read(value, row_major(value.rank)) for value in values)
    shape = builder.shape(values[0])
    builder.kernel_step(
        "scatter",
        "ScatterSpec",
        {"data": data, "indices": indices, "updates": updates},
        {"target": builder.write(node.outputs[0])},
        type=ANY_TYPES[values[0].dtype],
        elements=prod(shape),
        index_steps=steps,
        extents=[shape[axis] for axis in axes],
        axes=axes,
        reduction=op.reduction.value,
        name=op.name,
        **fields,
    )


@computes("regions")
def roi_align(builder: Builder, node: Node, op: RoiAlign) -> None:
    """Mean or maximum of bilinear samples in every cell of a region."""
    is_maximum = op.mode is RegionMode.MAXIMUM
    fields = {"sampling_ratio": op.sampling_ratio, "half_pixel": op.half_pixel, "is_maximum": is_maximum}
    _emit_regions(builder, node, op, ("source", "rois", "images"), **fields)


@computes("regions")
def roi_max_pool(builder: Builder, node: Node, op: RoiMaxPool) -> None:
    """Largest pixel in every cell of a region."""
    _emit_regions(builder, node, op, ("source", "rois"))


def _emit_regions(
    builder: Builder, node: Node, op: RoiAlign | RoiMaxPool, names: tuple[str, ...], **fields: object
) -> None:
    values = operands_of(node)
    reads = {name: builder.read(value, row_major(value.rank)) for name, value in zip(names, values, strict=True)}
    batch, channels, height, width = builder.shape(values[0])
    builder.kernel_step(
        "regions",
        "RegionSpec",
        dict(reads),
        {"target": builder.write(node.outputs[0])},
        batch=batch,
        channels=channels,
        height=height,
        width=width,
        regions=builder.shape(values[1])[0],
        out_height=op.output_height,
        out_width=op.output_width,
        scale=op.spatial_scale,
        **fields,
    )
