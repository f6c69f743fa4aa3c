"""LinearAttention and CausalConvWithState: operators with a state that is both input and output."""

from __future__ import annotations

import math

import numpy as np

from tpuconvert.frontends import emit
from tpuconvert.frontends.onnx.node import OnnxNode, Result, onnx_op
from tpuconvert.frontends.onnx.operators.attention import merge_heads, split_heads
from tpuconvert.frontends.onnx.operators.matmul import batched_product
from tpuconvert.schema.errors import TOO_LARGE
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops import formulas
from tpuconvert.schema.ops.concat import Concat
from tpuconvert.schema.ops.convolution.conv import Conv
from tpuconvert.schema.ops.smooth_activation import Silu
from tpuconvert.schema.types import Array

_RULES = {"linear": (False, False), "gated": (True, False), "delta": (False, True), "gated_delta": (True, True)}
"""By update rule: True if the state decays, and True if the retrieved value is subtracted from the new value."""


@onnx_op("LinearAttention", since=27)
def linear_attention(node: OnnxNode, g: Graph) -> list[Result]:
    """Linear attention: a state [key, value] per head is updated by every token and multiplied by the query."""
    node.optional_attr("chunk_size")  # affects only the speed
    decays, is_delta = _RULES[node.choice("update_rule", "gated_delta", tuple(_RULES))]
    query_heads, heads = node.required_attr("q_num_heads", 1), node.required_attr("kv_num_heads", 1)
    batch, length, width = node.shape(0)
    if heads < 1 or query_heads < 1 or query_heads % heads or width % query_heads:
        raise node.invalid(f"q_num_heads={query_heads}, kv_num_heads={heads} for a width of {width}")
    if length > node.limits.max_unrolled_nodes:
        raise node.fail(TOO_LARGE, f"{length} tokens")
    q = _per_head(node, g, 0, query_heads)
    k, v = _per_head(node, g, 1, heads), _per_head(node, g, 2, heads)
    key_size, value_size = emit.extents(k)[3], emit.extents(v)[3]
    gate = formulas.exp(g, _per_head(node, g, 4, heads)) if decays else None
    rate = _rate(node, g, heads) if is_delta else None
    for index, is_read in ((4, decays), (5, is_delta)):
        if node.has_input(index) and not is_read:
            node.tensor(index)  # marks the input as read, because this update rule ignores it
    if node.has_input(3):
        state = emit.floats(node.input(3))
    else:
        node.budget((batch, heads, key_size, value_size), 8, "state")
        state = emit.float_constant(g, np.zeros((batch, heads, key_size, value_size)), "state")
    scale = node.attr("scale", 0.0) or 1 / math.sqrt(width // query_heads)
    q = emit.muls(g, q, scale)
    rows = []
    for token in range(length):
        key = emit.reshape(g, emit.slice_axis(g, k, 2, token, token + 1), (batch, heads, key_size, 1))
        value = emit.slice_axis(g, v, 2, token, token + 1)
        if gate is not None:
            now = emit.slice_axis(g, gate, 2, token, token + 1)
            state = emit.mul(g, state, emit.reshape(g, now, (batch, heads, emit.extents(now)[3], 1)))
        if rate is not None:
            held = emit.total(g, emit.mul(g, state, key), (2,))
            value = emit.mul(g, emit.sub(g, value, held), emit.slice_axis(g, rate, 2, token, token + 1))
        state = emit.add(g, state, emit.mul(g, key, value))
        rows.append(_read(node, g, emit.slice_axis(g, q, 2, token, token + 1), state, query_heads // heads))
    return [node.result(merge_heads(g, emit.concat(g, rows, 2))), node.result(state)]


def _per_head(node: OnnxNode, g: Graph, index: int, heads: int) -> Value:
    """Reshape [batch, length, heads * size] to [batch, heads, length, size]."""
    _, _, width = node.shape(index)
    if width % heads:
        raise node.invalid(f"input {index} has a width of {width} for {heads} heads")
    return split_heads(g, emit.floats(node.input(index)), heads)


def _rate(node: OnnxNode, g: Graph, heads: int) -> Value:
    """Update rate of each token: one per head, or one for all heads."""
    return _per_head(node, g, 5, heads if node.shape(5)[2] == heads else 1)


def _read(node: OnnxNode, g: Graph, query: Value, state: Value, sharing: int) -> Value:
    """Multiply queries [batch, heads * sharing, 1, key] by states; each state belongs to ``sharing`` query heads."""
    batch, all_heads, _, size = emit.extents(query)
    heads = all_heads // sharing
    y = batched_product(node, g, emit.reshape(g, query, (batch, heads, sharing, size)), state)
    return emit.reshape(g, y, (batch, all_heads, 1, emit.extents(state)[3]))


@onnx_op("CausalConvWithState", since=27)
def causal_conv(node: OnnxNode, g: Graph) -> list[Result | Array]:
    """Depthwise convolution over the state and the input; the last elements are the new state."""
    x = emit.floats(node.input(0))
    batch, channels, length = node.shape(0)
    size = node.shape(1)[-1]
    if node.shape(1) != (channels, 1, size):
        raise node.invalid(f"a weight {list(node.shape(1))} for {channels} channels")
    before = size - 1
    has_state = node.has_input(3) and before
    if node.has_input(3):
        node.tensor(3)
    joined = x
    if has_state:
        joined = g.add(Concat(2), emit.floats(node.input(3)), x)
    elif before:
        node.budget((batch, channels, before), 8, "state")
        zeros = emit.float_constant(g, np.zeros((batch, channels, before)), "state")
        joined = emit.concat(g, [zeros, x], 2)
    weight = emit.reshape(g, emit.floats(node.input(1)), (channels, 1, 1, size))
    bias = node.optional(2)
    operands = [emit.reshape(g, joined, (batch, channels, 1, before + length)), weight]
    if bias is not None:
        operands.append(emit.reshape(g, emit.floats(bias), (1, channels, 1, 1)))
    y = emit.reshape(g, g.add(Conv(groups=channels), *operands), (batch, channels, length))
    if node.choice("activation", "none", ("none", "silu", "swish")) != "none":
        y = g.add(Silu(), y)
    if not before:
        return [node.result(y), np.zeros((batch, channels, 0), np.float32)]
    return [node.result(y), node.result(emit.slice_axis(g, joined, 2, length, length + before))]
