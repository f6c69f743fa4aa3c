"""Pooling, bilinear resizing and channel normalization of float images."""

from __future__ import annotations

from typing import Any

import numpy as np

from tpuconvert.runtime.native.builder.builder import Builder
from tpuconvert.runtime.native.builder.storage import channels_last
from tpuconvert.runtime.native.matchers.convolution import Geometry, Image, geometry_of
from tpuconvert.runtime.native.matchers.matcher import Site, computes, first_operand
from tpuconvert.runtime.native.matchers.pool import pool_windows
from tpuconvert.runtime.native.matchers.tables import check_table
from tpuconvert.schema.arithmetic.pooling import window_counts
from tpuconvert.schema.graph.graph import Node
from tpuconvert.schema.ops.batch_norm import BatchNorm
from tpuconvert.schema.ops.interpolate import Interpolate, InterpolateMode
from tpuconvert.schema.ops.normalization import Lrn
from tpuconvert.schema.ops.pool import Pool, PoolType
from tpuconvert.schema.types import F32


@computes("pool_float32", dtypes=(F32,))
def pool(builder: Builder, node: Node, op: Pool) -> None:
    """Max and average pooling."""
    x, y = first_operand(node), node.output
    down, along, after = pool_windows(op, x, y)
    divisors: list[float] = []
    if op.pooling_type is PoolType.AVE:
        check_table(down.count * along.count)
        counts = window_counts(down, along, after, with_padding=op.is_ave_count_zero_pad)
        divisors = np.maximum(counts, 1).astype(np.float64).reshape(-1).tolist()
    geometry = Geometry((down.stride, along.stride), pads=(down.before, along.before))
    _window_step(builder, node, "pool_float32", "PoolFloatSpec", (down.size, along.size), geometry, divisors=divisors)


@computes(
    "resize_float32",
    dtypes=(F32,),
    conditions="bilinear",
    when=lambda op, node, site: op.method is InterpolateMode.BILINEAR,
)
def interpolate(builder: Builder, node: Node, op: Interpolate) -> None:
    """Bilinear resizing."""
    places = []
    for extent, count in zip(builder.shape(first_operand(node))[2:], builder.shape(node.output)[2:], strict=True):
        check_table(count)
        low, high, weight = op.neighbours(extent, count)
        places.append(list(zip(low.tolist(), high.tolist(), weight.astype(np.float32).tolist(), strict=True)))
    rows, columns = places
    _window_step(builder, node, "resize_float32", "ResizeFloatSpec", (1, 1), Geometry(), rows=rows, columns=columns)


def _window_step(
    builder: Builder, node: Node, kernel: str, spec: str, window: tuple[int, int], geometry: Geometry, **fields: Any
) -> None:
    """Add the step of a kernel with sliding windows."""
    source = Image.of(builder.read(first_operand(node), channels_last(4), dense=False))
    target = Image.of(builder.write(node.output, channels_last(4)))
    step_geometry = geometry_of(builder, source, target, window, geometry)
    builder.kernel_step(
        kernel, spec, {"input": source.stored}, {"output": target.stored}, geometry=step_geometry, **fields
    )


def _has_constant_statistics(op: BatchNorm, node: Node, site: Site) -> bool:
    is_constant = all(value is None or value.is_constant for value in node.inputs[1:])
    return op.use_global_stats and is_constant and site.only_first_is_used(node)


@computes(
    "batch_norm_float32",
    dtypes=(F32,),
    conditions="constant statistics, scale and bias; only the first result is used",
    when=_has_constant_statistics,
)
def batch_norm(builder: Builder, node: Node, op: BatchNorm) -> None:
    """Batch normalization."""
    factor = 0.0 if op.scale == 0 else 1 / op.scale
    mean, variance, gamma, beta = (
        None if value is None else value.array.astype(np.float64) for value in (*node.inputs[1:], None, None)[:4]
    )
    assert mean is not None and variance is not None
    slope = 1 / np.sqrt(variance * factor + op.epsilon)
    source, target = (
        builder.read(first_operand(node), channels_last(4)),
        builder.write(node.outputs[0], channels_last(4)),
    )
    builder.kernel_step(
        "batch_norm_float32",
        "BatchNormSpec",
        {"x": source},
        {"y": target},
        pixels=source.size // len(mean),
        mean=mean * factor,
        slope=slope if gamma is None else slope * gamma,
        shift=np.zeros_like(slope) if beta is None else beta,
    )


@computes(
    "lrn_float32",
    dtypes=(F32,),
    conditions="alpha and bias are not negative",  # The kernel computes powers by logarithms.
    when=lambda op, node, site: op.alpha >= 0 and op.bias >= 0,
)
def lrn(builder: Builder, node: Node, op: Lrn) -> None:
    """Local response normalization."""
    x = first_operand(node)
    order, channels = (0, *range(2, x.rank), 1), builder.shape(x)[1]
    source, target = builder.read(x, order), builder.write(node.output, order)
    builder.kernel_step(
        "lrn_float32",
        "LrnSpec",
        {"x": source},
        {"y": target},
        pixels=source.size // channels,
        channels=channels,
        size=op.size,
        alpha=op.alpha,
        beta=op.beta,
        bias=op.bias,
    )
