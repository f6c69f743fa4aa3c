"""Attention and MultiHeadAttention of the domain com.microsoft."""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numpy as np

from tpuconvert.frontends import emit
from tpuconvert.frontends.onnx import element_types
from tpuconvert.frontends.onnx.attention import attend, merge_heads, split_heads
from tpuconvert.frontends.onnx.matmul import matmul_values
from tpuconvert.frontends.onnx.microsoft import DOMAIN
from tpuconvert.frontends.onnx.node import OnnxNode, Result, onnx_op
from tpuconvert.schema.errors import UNSUPPORTED_ATTRIBUTE
from tpuconvert.schema.graph import Graph, Value
from tpuconvert.schema.ops.attention import Attention
from tpuconvert.schema.ops.compare import Gt


class _Heads(NamedTuple):
    """Query, key and value as [batch, heads, sequence, size]."""

    q: Value
    k: Value
    v: Value


def _attention(node: OnnxNode, g: Graph, heads: _Heads, mask: Value | None, bias_at: int) -> Value:
    """``softmax(q @ k' * scale + mask + bias) @ v``, as [batch, sequence, heads * size]."""
    _, _, rows, size = emit.extents(heads.q)
    columns = emit.extents(heads.k)[2]
    masks = [] if mask is None else [mask]
    if node.has_input(bias_at):
        masks.append(emit.floats(node.input(bias_at)))
    if node.attr("unidirectional", 0):
        ahead = np.arange(columns)[None, :] - np.arange(rows)[:, None] - (columns - rows)
        masks.append(emit.float_constant(g, np.where(ahead > 0, -np.inf, 0.0), "mask"))
    every = functools.reduce(functools.partial(emit.add, g), masks) if masks else None
    scale = node.attr("scale", 0.0) or 1 / math.sqrt(size)
    return merge_heads(g, attend(node, g, Attention(scale), (heads.q, heads.k, heads.v), every))


def _padding(node: OnnxNode, g: Graph, index: int, batch: int, columns: int) -> Value | None:
    """Return the additive mask for the scores. The input has 0 or 1 per key, or the number of valid keys."""
    if not node.has_input(index):
        return None
    shape, mask = node.shape(index), emit.as_float(g, node.input(index))
    low = node.attr("mask_filter_value", -10000.0)
    if shape == (batch, columns):
        kept = emit.reshape(g, mask, (batch, 1, 1, columns))
    elif shape == (batch,):
        mask = emit.as_computed(g, mask)
        places = emit.float_constant(g, np.arange(columns).reshape(1, 1, 1, columns), "places")
        kept = g.add(Gt(), emit.reshape(g, mask, (batch, 1, 1, 1)), places)
    else:
        raise node.fail(
            UNSUPPORTED_ATTRIBUTE, f"a mask of shape {list(shape)}", f"supported: {[batch, columns]} and {[batch]}"
        )
    return emit.muls(g, emit.rsubs(g, 1, kept), low)


def _append_to_past(g: Graph, past: Value | None, x: Value) -> Value:
    return x if past is None else emit.concat(g, [past, x], 2)


@onnx_op("Attention", since=1, domain=DOMAIN)
def attention(node: OnnxNode, g: Graph) -> list[Result]:
    """Multi-head attention whose query, key and value are one matmul of the input."""
    node.refuse_attr("do_rotary", 0)
    node.refuse_attr("past_present_share_buffer", 0)
    if node.attr("rotary_embedding_dim", 0) or node.has_input(6):
        raise node.fail(UNSUPPORTED_ATTRIBUTE, "rotary embedding or a shared buffer", "supported: neither")
    heads = node.required_attr("num_heads", 1)
    x, w = emit.floats(node.input(0)), emit.floats(node.input(1))
    batch = node.shape(0)[0]
    width = node.shape(1)[1]
    sizes = node.ints_attr("qkv_hidden_sizes") or (width // 3,) * 3
    if sum(sizes) != width or len(sizes) != 3 or any(size % heads for size in sizes):
        raise node.invalid(f"num_heads={heads}, sizes {list(sizes)} for a weight {list(node.shape(1))}")
    y, shape = matmul_values(node, g, x, node.shape(0), w, node.shape(1))
    y = emit.reshape(g, y, shape)
    if node.has_input(2):
        y = emit.add(g, y, emit.floats(node.input(2)))
    starts = (0, sizes[0], sizes[0] + sizes[1])
    q, k, v = (
        split_heads(g, emit.slice_axis(g, y, 2, start, start + size), heads)
        for start, size in zip(starts, sizes, strict=True)
    )
    if node.has_input(4):
        _, _, _, length, size = node.shape(4)
        past = emit.floats(node.input(4))
        old = [emit.reshape(g, emit.slice_axis(g, past, 0, n, n + 1), (batch, heads, length, size)) for n in (0, 1)]
        k, v = _append_to_past(g, old[0], k), _append_to_past(g, old[1], v)
    mask = _padding(node, g, 3, batch, emit.extents(k)[2])
    results = [node.result(_attention(node, g, _Heads(q, k, v), mask, 5))]
    if len(node.outputs_used) > 1 and node.outputs_used[1]:
        parts = [emit.reshape(g, part, (1, *emit.extents(part))) for part in (k, v)]
        results.append(node.result(emit.concat(g, parts, 0)))
    return results


@onnx_op("MultiHeadAttention", since=1, domain=DOMAIN)
def multi_head_attention(node: OnnxNode, g: Graph) -> list[Result]:
    """Multi-head attention of separate query, key and value."""
    if not (node.has_input(1) and node.has_input(2)) or node.has_input(8) or node.has_input(9):
        raise node.fail(UNSUPPORTED_ATTRIBUTE, "packed operands or a shared buffer", "supported: query, key and value")
    if any(node.rank(index) != 3 for index in range(3)):
        raise node.fail(UNSUPPORTED_ATTRIBUTE, "operands of rank 4 or 5", "supported: [batch, sequence, width]")
    heads = node.required_attr("num_heads", 1)
    widths = [node.shape(index)[2] for index in range(3)]
    if heads < 1 or any(width % heads for width in widths):
        raise node.invalid(f"num_heads={heads} for widths {widths}")
    values, start = [], 0
    for index, width in enumerate(widths):
        x = emit.floats(node.input(index))
        if node.has_input(3):
            x = emit.add(g, x, emit.slice_axis(g, emit.floats(node.input(3)), 0, start, start + width))
        values.append(split_heads(g, x, heads))
        start += width
    q, k, v = values
    if node.has_input(6) != node.has_input(7):
        raise node.invalid("has only one of past_key and past_value")
    if node.has_input(6):
        k, v = _append_to_past(g, emit.floats(node.input(6)), k), _append_to_past(g, emit.floats(node.input(7)), v)
    mask = _padding(node, g, 4, node.shape(0)[0], emit.extents(k)[2])
    y = _attention(node, g, _Heads(q, k, v), mask, 5)
    return [node.result(x, element_types.FLOAT) for x in (y, k, v)]
