"""Scaled dot-product attention with heads, masks and a cache of past keys and values."""

from __future__ import annotations

import math

import numpy as np

from tpuconvert.frontends import emit
from tpuconvert.frontends.onnx import elements
from tpuconvert.frontends.onnx.node import OnnxNode, Result, onnx_op
from tpuconvert.frontends.onnx.products import batched_product
from tpuconvert.schema.errors import INVALID_NODE, UNSUPPORTED_ATTRIBUTE
from tpuconvert.schema.graph import Graph, Value
from tpuconvert.schema.op import Op
from tpuconvert.schema.ops import formulas
from tpuconvert.schema.ops.compare import Eqs, Ge, Gt, Le
from tpuconvert.schema.ops.concat import Concat
from tpuconvert.schema.ops.copy import Constdata
from tpuconvert.schema.ops.pad import Pad
from tpuconvert.schema.ops.reduce import ReduceMethodType
from tpuconvert.schema.ops.selection import ConditionSelect
from tpuconvert.schema.ops.softmax import Softmax
from tpuconvert.schema.types import Array, DType, Scalar

_LOWEST = float(np.finfo(np.float32).min)


def _heads(node: OnnxNode, g: Graph, index: int, attribute: str) -> Value:
    """An input as [batch, heads, sequence, size]."""
    x = emit.floats(node.input(index))
    if node.rank(index) == 4:
        return x
    if node.rank(index) != 3:
        raise node.fail(INVALID_NODE, f"input {index} has rank {node.rank(index)}")
    batch, sequence, width = node.shape(index)
    heads = node.required_attr(attribute, 1)
    if heads < 1 or width % heads:
        raise node.fail(INVALID_NODE, f"{attribute}={heads} for a width of {width}")
    return emit.permute(g, emit.reshape(g, x, (batch, sequence, heads, width // heads)), (0, 2, 1, 3))


def _with_past(node: OnnxNode, g: Graph, index: int, x: Value) -> Value:
    return g.add(Concat(2), emit.floats(node.input(index)), x) if node.has_input(index) else x


def _repeated(node: OnnxNode, g: Graph, x: Value, heads: int) -> Value:
    """Every key or value head for each of the query heads that share it."""
    batch, own, sequence, size = emit.extents(x)
    if own == heads:
        return x
    if heads % own:
        raise node.fail(INVALID_NODE, f"{heads} query heads for {own} key heads")
    wide = emit.expand(
        g, emit.reshape(g, x, (batch, own, 1, sequence, size)), (batch, own, heads // own, sequence, size)
    )
    return emit.reshape(g, wide, (batch, heads, sequence, size))


@onnx_op("Attention", since=23)
def attention(node: OnnxNode, g: Graph) -> list[Result]:
    """softmax(softcap(q k' * scale) + mask) v, per head."""
    if node.has_input(6) and node.has_input(4):
        raise node.fail(INVALID_NODE, "has both past_key and nonpad_kv_seqlen")
    node.optional_attr("softmax_precision")  # everything is computed in float32
    q = _heads(node, g, 0, "q_num_heads")
    k = _with_past(node, g, 4, _heads(node, g, 1, "kv_num_heads"))
    v = _with_past(node, g, 5, _heads(node, g, 2, "kv_num_heads"))
    for name in ("q_num_heads", "kv_num_heads"):
        node.optional_attr(name)
    batch, heads, rows, size = emit.extents(q)
    past = node.shape(4)[2] if node.has_input(4) else 0
    columns = emit.extents(k)[2]
    scale = node.attr("scale", 1 / math.sqrt(size))
    root = float(np.float32(math.sqrt(abs(scale))))
    keys = emit.permute(g, emit.muls(g, _repeated(node, g, k, heads), root), (0, 1, 3, 2))
    raw = batched_product(node, g, emit.muls(g, q, math.copysign(root, scale)), keys)
    cap = node.attr("softcap", 0.0)
    capped = raw if cap <= 0 else emit.muls(g, formulas.tanh(g, emit.divs(g, raw, cap)), cap)
    masked, is_masked = _masked(node, g, capped, (batch, heads, rows, columns), past)
    probabilities = _guarded_softmax(g, masked) if is_masked else g.add(Softmax(3), masked)
    y = batched_product(node, g, probabilities, _repeated(node, g, v, heads))
    if node.rank(0) == 3:
        width = emit.extents(y)[3]
        y = emit.reshape(g, emit.permute(g, y, (0, 2, 1, 3)), (batch, rows, heads * width))
    mode = node.attr("qk_matmul_output_mode", 0)
    if not 0 <= mode <= 3:
        raise node.fail(UNSUPPORTED_ATTRIBUTE, f"qk_matmul_output_mode={mode}", "supported: 0 to 3")
    return [node.result(x) for x in (y, k, v, (raw, capped, masked, probabilities)[mode])]


def _masked(node: OnnxNode, g: Graph, scores: Value, shape: tuple[int, int, int, int], past: int) -> tuple[Value, bool]:
    """Scores with what may not be attended at minus infinity, and whether a whole row might be."""
    rows, columns = shape[2:]
    is_masked = False
    if node.has_input(3):
        is_masked = True
        mask = emit.floats(node.input(3))
        is_truth = node.element(3) is elements.BOOL
        missing = columns - emit.extents(mask)[-1]
        if missing > 0:
            paddings = (0,) * (2 * mask.rank - 1) + (missing,)
            mask = g.add(Pad(Scalar.f32(0 if is_truth else -math.inf), paddings), mask)
        if is_truth:
            low = emit.float_constant(g, np.full(1, -np.inf), "minus_infinity")
            scores = g.add(ConditionSelect(), emit.expand(g, mask, shape), scores, low)
        else:
            scores = emit.add(g, scores, mask)
    left, right = (node.attr(n, -1) if node.version >= 25 else -1 for n in ("left_window_size", "right_window_size"))
    is_causal = bool(node.attr("is_causal", 0))
    if node.has_input(6):
        return _without_padding(node, g, scores, shape, (left, 0 if is_causal else right)), True
    if not is_causal and left < 0 and right < 0:
        return scores, is_masked
    node.budget((rows, columns), 8, "mask")
    ahead = np.arange(columns)[None, :] - (np.arange(rows)[:, None] + past)
    allowed = np.ones((rows, columns), bool)
    if is_causal:
        allowed &= ahead <= 0
    if left >= 0:
        allowed &= -ahead <= left
    if right >= 0:
        allowed &= ahead <= right
    if not allowed.all():
        bias = np.where(allowed, np.float32(0), np.float32(-np.inf))
        scores = emit.add(g, scores, emit.float_constant(g, bias, "mask"))
        is_masked = is_masked or not allowed.any(1).all()
    return scores, is_masked


def _without_padding(
    node: OnnxNode, g: Graph, scores: Value, shape: tuple[int, int, int, int], window: tuple[int, int]
) -> Value:
    """Scores with only the first keys of each sample, as many as an input says, and of them those of the window.

    The last query stands at the last of these keys. A bound of -1 leaves its side of the window open.
    """
    batch, _, rows, columns = shape
    lengths = node.input(6)
    if lengths.dtype is not DType.INT32 or node.shape(6) != (batch,):
        raise node.fail(INVALID_NODE, f"nonpad_kv_seqlen is {node.element(6)} {list(node.shape(6))}")
    node.budget((rows, columns), 8, "mask")
    counts = g.add(Constdata(), lengths) if lengths.is_constant else lengths
    counts = emit.reshape(g, emit.as_float(g, counts), (batch, 1, 1, 1))
    key = np.arange(columns)[None, None, None, :]
    at_end = key - np.arange(rows)[None, None, :, None] + rows  # the number of keys for which this key is the query's
    left, right = window
    allowed = _compared(g, Gt(), counts, key)
    if right >= 0:
        allowed = emit.mul(g, allowed, _compared(g, Ge(), counts, at_end - right))
    if left >= 0:
        allowed = emit.mul(g, allowed, _compared(g, Le(), counts, at_end + left))
    low = emit.float_constant(g, np.full(1, -np.inf), "minus_infinity")
    return g.add(ConditionSelect(), emit.expand(g, allowed, shape), scores, low)


def _compared(g: Graph, op: Op, counts: Value, numbers: Array) -> Value:
    return g.add(op, counts, emit.float_constant(g, numbers, "positions"))


def _guarded_softmax(g: Graph, x: Value) -> Value:
    """Softmax along the last axis in which a row of minus infinities becomes zeros."""
    largest = emit.maxs(g, emit.reduce(g, ReduceMethodType.REDUCE_MAX, x, (x.rank - 1,)), _LOWEST)
    powers = formulas.exp(g, emit.sub(g, x, largest))
    sums = emit.total(g, powers, (x.rank - 1,))
    return emit.div(g, powers, emit.add(g, sums, g.add(Eqs(Scalar.f32(0)), sums)))
