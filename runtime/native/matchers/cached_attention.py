"""Attention whose keys and values are caches that the session keeps."""

from __future__ import annotations

import math

from tpuconvert.runtime.native.builder.builder import Builder, Group
from tpuconvert.runtime.native.builder.cache_analysis import CachedHeads
from tpuconvert.runtime.native.builder.storage import Stored, row_major
from tpuconvert.runtime.native.matchers.matcher import Site, ends_with, order_for_permute
from tpuconvert.schema.graph.graph import Node, Value
from tpuconvert.schema.ops.attention import Attention


@ends_with(
    "attention",
    kernels=("cached_attention_float32",),
    dtypes="FLOAT32",
    conditions="keys and values are caches of the session, which no other operator uses",
    priority=10,
)
def cached_attention(node: Node, site: Site) -> Group | None:
    """Match an attention, the concats that append to its caches, and the nodes that repeat their heads."""
    heads = site.caches.get(node.output)
    if heads is None:
        return None
    is_precise = node in site.precise
    return Group(heads.nodes, lambda builder: _emit(builder, heads, is_precise=is_precise))


def _emit(builder: Builder, cache: CachedHeads, *, is_precise: bool) -> None:
    node = cache.node
    op, query = node.op, node.inputs[0]
    assert isinstance(op, Attention) and query is not None and cache.length is not None
    mask = node.inputs[3] if len(node.inputs) > 3 else None
    q, new_keys, new_values = (_rows(builder, value) for value in (query, cache.keys.new, cache.values.new))
    keys, values = (builder.outputs[use.output] for use in (cache.keys, cache.values))
    for use, stored in ((cache.keys, keys), (cache.values, values)):
        builder.alias(use.nodes[0].output, stored)
    masks = None if mask is None else builder.read(mask, row_major(4))
    result = builder.write(node.output, order_for_permute(node.output, builder.graph))
    batch, heads, rows, size = q.shape
    builder.kernel_step(
        "cached_attention_float32",
        "CachedAttentionSpec",
        {
            "queries": q,
            "new_keys": new_keys,
            "new_values": new_values,
            "length": builder.memory_of(cache.length),
            "masks": masks,
        },
        {"keys": keys, "values": values, "result": result},
        batch=batch,
        heads=heads,
        key_heads=keys.shape[1],
        rows=rows,
        size=size,
        value_size=values.shape[3],
        capacity=keys.shape[2],
        scale=1 / math.sqrt(size) if op.scale is None else op.scale,
        is_causal=op.is_causal,
        is_precise=is_precise,
        query_strides=q.strides[:3],
        key_strides=new_keys.strides[:3],
        value_strides=new_values.strides[:3],
        result_strides=result.strides[:3],
        mask_strides=None if masks is None else _broadcast_strides(masks),
    )


def _rows(builder: Builder, value: Value) -> Stored:
    """Return an operand whose rows are contiguous."""
    stored = builder.read(value, dense=False)
    return stored if stored.order[-1] == 3 else builder.read(value, row_major(4))


def _broadcast_strides(mask: Stored) -> list[int]:
    return [0 if extent == 1 else stride for extent, stride in zip(mask.shape[:3], mask.strides[:3], strict=True)]
