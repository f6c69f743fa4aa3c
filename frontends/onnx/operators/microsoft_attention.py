"""Attention, MultiHeadAttention and GroupQueryAttention of the domain com.microsoft."""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numpy as np

from tpuconvert.frontends import emit, open_extents
from tpuconvert.frontends.onnx.file import element_types
from tpuconvert.frontends.onnx.node import OnnxNode, Result, onnx_op
from tpuconvert.frontends.onnx.operators.attention import attend, merge_heads, repeat_heads, rotate_pairs, split_heads
from tpuconvert.frontends.onnx.operators.gather import select_by
from tpuconvert.frontends.onnx.operators.matmul import matmul_values
from tpuconvert.frontends.onnx.operators.microsoft import DOMAIN
from tpuconvert.schema.errors import UNSUPPORTED_ATTRIBUTE
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops.attention import Attention, causal_mask
from tpuconvert.schema.ops.compare import Gt
from tpuconvert.schema.ops.positions import Positions
from tpuconvert.schema.types import DType


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
    is_causal = bool(node.attr("unidirectional", 0))
    if is_causal and not (open_extents.is_open(rows) or open_extents.is_open(columns)):
        masks.append(emit.float_constant(g, causal_mask(rows, columns), "mask"))
        is_causal = False
    every = functools.reduce(functools.partial(emit.add, g), masks) if masks else None
    scale = node.attr("scale", 0.0) or 1 / math.sqrt(size)
    return merge_heads(g, attend(node, g, Attention(scale, is_causal), (heads.q, heads.k, heads.v), every))


def _padding(node: OnnxNode, g: Graph, index: int, batch: int, columns: int) -> Value | None:
    """Return the additive mask for the scores. The input has 0 or 1 per key, or the number of valid keys."""
    if not node.has_input(index):
        return None
    shape, mask = node.shape(index), emit.as_float(g, node.input(index))
    low = node.attr("mask_filter_value", -10000.0)
    if shape == (batch, columns):
        is_valid = emit.reshape(g, mask, (batch, 1, 1, columns))
    elif shape == (batch,):
        mask = emit.as_computed(g, mask)
        positions = emit.float_constant(g, np.arange(columns).reshape(1, 1, 1, columns), "places")
        is_valid = g.add(Gt(), emit.reshape(g, mask, (batch, 1, 1, 1)), positions)
    else:
        raise node.fail(
            UNSUPPORTED_ATTRIBUTE, f"a mask of shape {list(shape)}", f"supported: {[batch, columns]} and {[batch]}"
        )
    return emit.muls(g, emit.rsubs(g, 1, is_valid), low)


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
    if heads < 1 or sum(sizes) != width or len(sizes) != 3 or any(size % heads for size in sizes):
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


@onnx_op("GroupQueryAttention", since=1, domain=DOMAIN, limits="float caches, samples of equal length")
def group_query_attention(node: OnnxNode, g: Graph) -> list[Result]:
    """Causal attention with a cache, whose key and value heads are shared by query heads; optionally rotary.

    The samples of a batch have equal lengths: ``seqlens_k`` is ``total_sequence_length - 1`` for all of them.
    """
    heads, kv_heads = node.required_attr("num_heads", 1), node.required_attr("kv_num_heads", 1)
    for name, neutral in (("local_window_size", -1), ("smooth_softmax", 0), ("softcap", 0.0), ("qk_output", 0)):
        node.refuse_attr(name, neutral)
    for name in ("k_quant_type", "v_quant_type"):
        node.refuse_attr(name, "NONE")
    node.refuse_attr("kv_cache_bit_width", 0)
    if any(node.has_input(index) for index in (11, 12, 13)):
        raise node.fail(UNSUPPORTED_ATTRIBUTE, "head_sink or a quantized cache", "supported: neither")
    if node.has_input(3) != node.has_input(4):
        raise node.invalid("has only one of past_key and past_value")
    lengths = node.input(5)
    node.tensor(6)  # total_sequence_length is the extent of the present keys
    q, k, v = _grouped_operands(node, g, heads, kv_heads)
    is_interleaved = bool(node.attr("rotary_interleaved", 0))  # builders also write it without do_rotary
    if node.attr("do_rotary", 0):
        cos, sin = _rows_of_angles(node, g, q, lengths)
        q, k = (rotate_pairs(g, x, cos, sin, is_interleaved=is_interleaved) for x in (q, k))
    else:
        for index in (7, 8, 9):
            if node.has_input(index):
                node.tensor(index)
    q, k, v = (emit.permute(g, x, (0, 2, 1, 3)) for x in (q, k, v))
    if node.has_input(3):
        k, v = _append_to_past(g, emit.floats(node.input(3)), k), _append_to_past(g, emit.floats(node.input(4)), v)
    scale = node.attr("scale", 0.0) or 1 / math.sqrt(emit.extents(q)[3])
    bias = emit.floats(node.input(10)) if node.has_input(10) else None
    keys, values = (repeat_heads(node, g, x, heads) for x in (k, v))
    y = attend(node, g, Attention(scale, is_causal=True), (q, keys, values), bias)
    note = f"'{node.name}' (GroupQueryAttention) takes samples of equal length: seqlens_k is total_sequence_length - 1"
    if emit.extents(q)[0] != 1 and note not in g.notes:
        g.notes.append(note)
    return [node.result(x, element_types.FLOAT) for x in (merge_heads(g, y), k, v)]


def _grouped_operands(node: OnnxNode, g: Graph, heads: int, kv_heads: int) -> list[Value]:
    """Query, key and value as [batch, sequence, heads, size]; they may be packed into the first input."""
    if heads < 1 or kv_heads < 1 or heads % kv_heads:
        raise node.invalid(f"num_heads={heads}, kv_num_heads={kv_heads}")
    counts = (heads, kv_heads, kv_heads)
    packed = node.input(0)
    batch, sequence, width = node.shape(0)
    if node.has_input(1) and node.has_input(2):
        parts = [emit.floats(node.input(index)) for index in range(3)]
    elif node.has_input(1) or node.has_input(2) or width % sum(counts):
        raise node.invalid(f"packed operands of width {width} for {sum(counts)} heads")
    else:
        size = width // sum(counts)
        starts = (0, heads * size, (heads + kv_heads) * size)
        parts = [
            emit.slice_axis(g, emit.floats(packed), 2, start, start + count * size)
            for start, count in zip(starts, counts, strict=True)
        ]
    for part, count in zip(parts, counts, strict=True):
        if emit.extents(part)[2] % count:
            raise node.invalid(f"{count} heads for a width of {emit.extents(part)[2]}")
    return [
        emit.reshape(g, part, (batch, sequence, count, emit.extents(part)[2] // count))
        for part, count in zip(parts, counts, strict=True)
    ]


def _rows_of_angles(node: OnnxNode, g: Graph, q: Value, lengths: Value) -> list[Value]:
    """Cosines and sines [batch, sequence, 1, half] of the positions; the last position belongs to the last key."""
    batch, sequence = emit.extents(q)[:2]
    if node.has_input(9):
        rows = node.input(9)
    else:
        before = emit.reshape(g, g.add(Positions(1, is_reversed=True), q), (1, sequence))
        rows = emit.sub(g, emit.reshape(g, emit.cast(g, lengths, DType.INT32), (batch, 1)), before)
    rows = emit.reshape(g, rows, (batch * sequence,))
    tables = [emit.floats(node.input(index)) for index in (7, 8)]
    return [
        emit.reshape(g, select_by(g, table, 0, rows), (batch, sequence, 1, emit.extents(table)[1])) for table in tables
    ]
