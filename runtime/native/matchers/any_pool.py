"""Integer pooling that the fast kernel does not take: INT16 averages, positions of maxima, volumes."""

from __future__ import annotations

from typing import Any

from tpuconvert.runtime.native.builder.builder import Builder, Group
from tpuconvert.runtime.native.builder.storage import Stored, row_major
from tpuconvert.runtime.native.matchers.any_conv import spatial
from tpuconvert.runtime.native.matchers.any_elements import ANY_TYPES, readable, steps
from tpuconvert.runtime.native.matchers.matcher import GENERAL, Site, ends_with, first_operand
from tpuconvert.schema.graph.graph import Node
from tpuconvert.schema.ops.pool3d_int import Pool3dInt
from tpuconvert.schema.ops.pool_int import PoolInt, PoolQuantMode


@ends_with(
    "pool_int",
    "pool3d_int",
    kernels=("any_pool",),
    dtypes="INT8, UINT8, INT16",
    conditions="what the other matchers and kernels of the operator decline",
    priority=GENERAL,
)
def any_pool(node: Node, site: Site) -> Group | None:
    """Match an integer pooling by itself."""
    op = node.op
    if not isinstance(op, (PoolInt, Pool3dInt)):
        return None
    return Group((node,), lambda builder: _emit(builder, node, op))


def _emit(builder: Builder, node: Node, op: PoolInt | Pool3dInt) -> None:
    x, y = first_operand(node), node.outputs[0]
    kernel, strides, pads = _windows(op)
    source, target = readable(builder, x), builder.write(y, row_major(y.rank))
    results = [target]
    fields: dict[str, Any] = {}
    if len(node.outputs) > 1:
        places = builder.write(node.outputs[1], row_major(y.rank))
        results.append(places)
        fields["places"] = _tensor(builder, places)
    batch, channels, *extents = builder.shape(x)
    spec = builder.native.AnyPoolSpec(
        source=_tensor(builder, source),
        result=_tensor(builder, target),
        batch=batch,
        channels=channels,
        extents=spatial(extents, 1),
        out_extents=spatial(builder.shape(y)[2:], 1),
        kernel=spatial(kernel, 1),
        strides=spatial(strides, 1),
        pads=spatial(pads, 0),
        is_maximum=not op.is_avg_pooling,
        divides=op.quant_mode is PoolQuantMode.DIVIDE,
        scale=op.scale,
        shift=op.rshift,
        low=y.dtype.min,
        high=y.dtype.max,
        **fields,
    )
    builder.step("any_pool", spec, [source], results)


def _windows(op: PoolInt | Pool3dInt) -> tuple[list[int], list[int], list[int]]:
    """Return kernel extents, strides and leading pads along the spatial axes."""
    if isinstance(op, PoolInt):
        return [op.kernel_h, op.kernel_w], [op.stride_h, op.stride_w], [op.pad_h_t, op.pad_w_l]
    kernel, strides = [op.kernel_t, op.kernel_h, op.kernel_w], [op.stride_t, op.stride_h, op.stride_w]
    return kernel, strides, [op.pad_t_0, op.pad_h_0, op.pad_w_0]


def _tensor(builder: Builder, stored: Stored) -> Any:
    strides = steps(stored)
    axes = [*strides[:2], *spatial(strides[2:], 0)]
    return builder.native.AnyTensor(place=builder.place(stored), type=ANY_TYPES[stored.dtype], strides=axes)
