"""Pooling, bilinear resizing and channel normalization of float images."""

from __future__ import annotations

import numpy as np

from tpuconvert.runtime.native.builder import Builder, Group
from tpuconvert.runtime.native.float_convolution import Image, geometry_of
from tpuconvert.runtime.native.groups import Site, ends_with
from tpuconvert.runtime.native.integer_convolution import Geometry
from tpuconvert.runtime.native.storage import channels_last
from tpuconvert.schema.graph import Node
from tpuconvert.schema.ops.batch_norm import BatchNorm
from tpuconvert.schema.ops.interpolate import Interpolate, InterpolateMode
from tpuconvert.schema.ops.normalization import Lrn
from tpuconvert.schema.ops.pool import Pool, PoolType
from tpuconvert.schema.pooling import Span, window_counts
from tpuconvert.schema.types import F32


@ends_with(
    "pool",
    kernels=("pool_float32",),
    dtypes="FLOAT32",
    conditions="always",
)
def pool(node: Node, site: Site) -> Group | None:
    """Match max and average pooling."""
    op, x, y = node.op, node.inputs[0], node.outputs[0]
    assert isinstance(op, Pool) and x is not None
    if x.dtype is not F32 or 0 in x.type.static_shape or 0 in y.type.static_shape:
        return None
    height, width = x.type.static_shape[2:]
    if op.is_global_pooling:
        down, along, after = Span(height, 1, height, 1, 0), Span(width, 1, width, 1, 0), (0, 0)
    else:
        down = Span(height, y.type.static_shape[2], op.kernel_h, op.stride_h, op.pad_h)
        along = Span(width, y.type.static_shape[3], op.kernel_w, op.stride_w, op.pad_w)
        after = op.pad_h + op.pad_h_offset, op.pad_w + op.pad_w_offset
    divisors: list[float] = []
    if op.pooling_type is PoolType.AVE:
        counts = window_counts(down, along, after, with_padding=op.is_ave_count_zero_pad)
        divisors = np.maximum(counts, 1).astype(np.float64).reshape(-1).tolist()

    def emit(builder: Builder) -> None:
        source = Image.of(builder.read(x, channels_last(4), dense=False))
        target = Image.of(builder.write(y, channels_last(4)))
        geometry = Geometry((down.stride, along.stride), pads=(down.before, along.before))
        found = geometry_of(builder, source, target, (down.size, along.size), geometry)
        spec = builder.native.PoolFloatSpec(
            input=source.place(builder), output=target.place(builder), geometry=found, divisors=divisors
        )
        builder.step("pool_float32", spec, (source.stored,), (target.stored,))

    return Group((node,), emit)


@ends_with(
    "interpolate",
    kernels=("resize_float32",),
    dtypes="FLOAT32",
    conditions="bilinear",
)
def interpolate(node: Node, site: Site) -> Group | None:
    """Match bilinear resizing."""
    op, x, y = node.op, node.inputs[0], node.outputs[0]
    assert isinstance(op, Interpolate) and x is not None
    if x.dtype is not F32 or op.method is not InterpolateMode.BILINEAR:
        return None
    if 0 in x.type.static_shape or 0 in y.type.static_shape:
        return None
    places = []
    for extent, count in zip(x.type.static_shape[2:], y.type.static_shape[2:], strict=True):
        low, high, weight = op.neighbours(extent, count)
        places.append(list(zip(low.tolist(), high.tolist(), weight.astype(np.float32).tolist(), strict=True)))

    def emit(builder: Builder) -> None:
        source = Image.of(builder.read(x, channels_last(4), dense=False))
        target = Image.of(builder.write(y, channels_last(4)))
        found = geometry_of(builder, source, target, (1, 1), Geometry())
        spec = builder.native.ResizeFloatSpec(
            input=source.place(builder),
            output=target.place(builder),
            geometry=found,
            rows=places[0],
            columns=places[1],
        )
        builder.step("resize_float32", spec, (source.stored,), (target.stored,))

    return Group((node,), emit)


@ends_with(
    "batch_norm",
    kernels=("batch_norm_float32",),
    dtypes="FLOAT32",
    conditions="constant statistics, scale and bias; only the first result is used",
)
def batch_norm(node: Node, site: Site) -> Group | None:
    """Match batch normalization with constant statistics and no other used results."""
    op, x, y = node.op, node.inputs[0], node.outputs[0]
    factors = node.inputs[1:]
    assert isinstance(op, BatchNorm) and x is not None
    is_constant = all(value is None or value.is_constant for value in factors)
    is_alone = not any(value.uses or site.graph.is_output(value) for value in node.outputs[1:])
    if x.dtype is not F32 or 0 in x.type.static_shape or not (op.use_global_stats and is_constant and is_alone):
        return None
    factor = 0.0 if op.scale == 0 else 1 / op.scale
    mean, variance, gamma, beta = (
        None if value is None else value.array.astype(np.float64) for value in (*factors, None, None)[:4]
    )
    assert mean is not None and variance is not None
    slope = 1 / np.sqrt(variance * factor + op.epsilon)
    slope = slope if gamma is None else slope * gamma
    shift = np.zeros_like(slope) if beta is None else beta

    def emit(builder: Builder) -> None:
        source, target = builder.read(x, channels_last(4)), builder.write(y, channels_last(4))
        spec = builder.native.BatchNormSpec(
            x=builder.place(source),
            y=builder.place(target),
            pixels=source.size // len(mean),
            mean=mean * factor,
            slope=slope,
            shift=shift,
        )
        builder.step("batch_norm_float32", spec, (source,), (target,))

    return Group((node,), emit)


@ends_with(
    "lrn",
    kernels=("lrn_float32",),
    dtypes="FLOAT32",
    conditions="always",
)
def lrn(node: Node, site: Site) -> Group | None:
    """Match local response normalization."""
    op, x, y = node.op, node.inputs[0], node.outputs[0]
    assert isinstance(op, Lrn) and x is not None
    if x.dtype is not F32 or 0 in x.type.static_shape:
        return None

    def emit(builder: Builder) -> None:
        order = (0, *range(2, x.rank), 1)
        source, target = builder.read(x, order), builder.write(y, order)
        channels = builder.shape(x)[1]
        spec = builder.native.LrnSpec(
            x=builder.place(source),
            y=builder.place(target),
            pixels=source.size // channels,
            channels=channels,
            size=op.size,
            alpha=op.alpha,
            beta=op.beta,
            bias=op.bias,
        )
        builder.step("lrn_float32", spec, (source,), (target,))

    return Group((node,), emit)
