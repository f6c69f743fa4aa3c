"""Scaled dot-product attention with heads, masks and a cache of past keys and values; RotaryEmbedding."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tpuconvert.frontends import emit, open_extents
from tpuconvert.frontends.onnx.file import element_types
from tpuconvert.frontends.onnx.node import OnnxNode, Result, onnx_op
from tpuconvert.frontends.onnx.operators.data_movement import gather_slices
from tpuconvert.frontends.onnx.operators.gather import computed_index, from_front, select_by
from tpuconvert.frontends.onnx.operators.matmul import batched_product, check_batch
from tpuconvert.frontends.registry import Kind
from tpuconvert.schema.definition.op import Op
from tpuconvert.schema.errors import UNSUPPORTED_ATTRIBUTE
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops import formulas
from tpuconvert.schema.ops.attention import Attention
from tpuconvert.schema.ops.compare import Eqs, Ge, Gt, Le
from tpuconvert.schema.ops.concat import Concat
from tpuconvert.schema.ops.pad import Pad
from tpuconvert.schema.ops.reduce import ReduceMethodType
from tpuconvert.schema.ops.selection import ConditionSelect
from tpuconvert.schema.ops.softmax import Softmax
from tpuconvert.schema.types import Array, DType, Scalar

_LOWEST = float(np.finfo(np.float32).min)


def _heads(node: OnnxNode, g: Graph, index: int, attribute: str) -> Value:
    """Return an input as [batch, heads, sequence, size]."""
    x = emit.floats(node.input(index))
    if node.rank(index) == 4:
        return x
    if node.rank(index) != 3:
        raise node.invalid(f"input {index} has rank {node.rank(index)}")
    width = node.shape(index)[2]
    heads = node.required_attr(attribute, 1)
    if heads < 1 or width % heads:
        raise node.invalid(f"{attribute}={heads} for a width of {width}")
    return split_heads(g, x, heads)


def split_heads(g: Graph, x: Value, heads: int) -> Value:
    """Reshape and permute [batch, sequence, heads * size] to [batch, heads, sequence, size]."""
    batch, sequence, width = emit.extents(x)
    return emit.permute(g, emit.reshape(g, x, (batch, sequence, heads, width // heads)), (0, 2, 1, 3))


def merge_heads(g: Graph, x: Value) -> Value:
    """Inverse of ``split_heads``."""
    batch, heads, sequence, size = emit.extents(x)
    return emit.reshape(g, emit.permute(g, x, (0, 2, 1, 3)), (batch, sequence, heads * size))


def _with_past(node: OnnxNode, g: Graph, index: int, x: Value) -> Value:
    return g.add(Concat(2), emit.floats(node.input(index)), x) if node.has_input(index) else x


def repeat_heads(node: OnnxNode, g: Graph, x: Value, heads: int) -> Value:
    """Repeat each key or value head for the query heads that share it."""
    batch, own, sequence, size = emit.extents(x)
    if own == heads:
        return x
    if own < 1 or heads % own:
        raise node.invalid(f"{heads} query heads for {own} key heads")
    wide = emit.expand(
        g, emit.reshape(g, x, (batch, own, 1, sequence, size)), (batch, own, heads // own, sequence, size)
    )
    return emit.reshape(g, wide, (batch, heads, sequence, size))


@onnx_op("Attention", since=23, kind=Kind.DIRECT)
def attention(node: OnnxNode, g: Graph) -> list[Result]:
    """``softmax(softcap(q @ k' * scale) + mask) @ v``, per head."""
    if node.has_input(6) and node.has_input(4):
        raise node.invalid("has both past_key and nonpad_kv_seqlen")
    node.optional_attr("softmax_precision")  # no effect: everything is computed in float32
    q = _heads(node, g, 0, "q_num_heads")
    k = _with_past(node, g, 4, _heads(node, g, 1, "kv_num_heads"))
    v = _with_past(node, g, 5, _heads(node, g, 2, "kv_num_heads"))
    for name in ("q_num_heads", "kv_num_heads"):
        node.optional_attr(name)
    batch, heads, rows, size = emit.extents(q)
    past = node.shape(4)[2] if node.has_input(4) else 0
    columns = emit.extents(k)[2]
    is_causal = _has_dynamic_causal_mask(node, rows, columns, past)
    mask = _mask(node, g, (batch, heads, rows, columns), past, is_causal=is_causal)
    scale, cap = node.attr("scale", 1 / math.sqrt(size)), node.attr("softcap", 0.0)
    mode = node.attr("qk_matmul_output_mode", 0)
    if not 0 <= mode <= 3:
        raise node.fail(UNSUPPORTED_ATTRIBUTE, f"qk_matmul_output_mode={mode}", "supported: 0 to 3")
    keys, values = (repeat_heads(node, g, x, heads) for x in (k, v))
    scores: Value | None = None
    if cap <= 0 and not any(node.outputs_used[3:]):
        y = attend(node, g, Attention(scale, is_causal), (q, keys, values), mask)
    elif is_causal:
        message = "softcap or scores as an output, with a causal mask of dynamic extents"
        raise node.fail(UNSUPPORTED_ATTRIBUTE, message, "supported: softcap with static shapes (--input-shapes)")
    else:
        y, scores = _attend_decomposed(node, g, (q, keys, values), mask, scale, cap, mode)
    y = merge_heads(g, y) if node.rank(0) == 3 else y
    return [node.result(x) for x in (y, k, v, scores or y)]  # without scores, the fourth output is unused


def _has_dynamic_causal_mask(node: OnnxNode, rows: int, columns: int, past: int) -> bool:
    """Return True if the node has a causal mask that no constant can be, because its extents are symbolic."""
    if not node.attr("is_causal", 0) or node.has_input(6):
        return False
    if not (open_extents.is_open(rows) or open_extents.is_open(columns)):
        return False
    is_aligned = open_extents.to_shape((columns,)) == open_extents.to_shape((past + rows,))
    return is_aligned and not any(node.attr(f"{side}_window_size", -1) >= 0 for side in ("left", "right"))


def attend(node: OnnxNode, g: Graph, op: Attention, operands: Sequence[Value], mask: Value | None) -> Value:
    """Add the attention operator for query, key and value of rank 4, and a mask of any rank."""
    check_batch(node, emit.extents(operands[0])[:-2])
    if mask is None:
        return g.add(op, *operands)
    return g.add(op, *operands, emit.reshape(g, mask, (1,) * (4 - mask.rank) + emit.extents(mask)))


def _attend_decomposed(
    node: OnnxNode, g: Graph, operands: Sequence[Value], mask: Value | None, scale: float, cap: float, mode: int
) -> tuple[Value, Value]:
    """Decompose an attention with a softcap, or whose scores are an output.

    Also return the scores of the given ``qk_matmul_output_mode``.
    """
    q, k, v = operands
    root = float(np.float32(math.sqrt(abs(scale))))
    keys = emit.permute(g, emit.muls(g, k, root), (0, 1, 3, 2))
    raw = batched_product(node, g, emit.muls(g, q, math.copysign(root, scale)), keys)
    capped = raw if cap <= 0 else emit.muls(g, formulas.tanh(g, emit.divs(g, raw, cap)), cap)
    masked = capped if mask is None else emit.add(g, capped, mask)
    is_guarded = mask is not None and not (mask.is_constant and (mask.array.max(axis=-1) > -math.inf).all())
    probabilities = _guarded_softmax(g, masked) if is_guarded else g.add(Softmax(3), masked)
    return batched_product(node, g, probabilities, v), (raw, capped, masked, probabilities)[mode]


def _mask(node: OnnxNode, g: Graph, shape: tuple[int, int, int, int], past: int, *, is_causal: bool) -> Value | None:
    """Sum of all additive masks of the node, which are minus infinity where a query does not attend to a key.

    Args:
        node: the operator.
        g: the graph.
        shape: shape of the scores: batch, heads, queries, keys.
        past: number of cached keys, which precede the first query.
        is_causal: True if the attention operator hides later keys, so that no mask has to.
    """
    masks = [_given_mask(node, g, shape[3])] if node.has_input(3) else []
    left, right = (node.attr(n, -1) if node.version >= 25 else -1 for n in ("left_window_size", "right_window_size"))
    if node.attr("is_causal", 0) and not is_causal:
        right = 0
    if node.has_input(6):
        masks.append(_key_count_mask(node, g, shape, (left, right)))
    elif left >= 0 or right >= 0:
        masks += _window_mask(node, g, shape[2:], past, (left, right))
    if not masks:
        return None
    return masks[0] if len(masks) == 1 else emit.add(g, *masks)


def _given_mask(node: OnnxNode, g: Graph, keys: int) -> Value:
    """Additive mask from input 3, which is a bias or a Boolean mask; keys beyond its last axis are hidden."""
    mask = emit.floats(node.input(3))
    is_boolean = node.element(3) is element_types.BOOL
    if is_boolean:
        mask = _hide(g, mask)
    columns = emit.extents(mask)[-1]
    missing = 0 if open_extents.is_open(columns) or open_extents.is_open(keys) else keys - columns
    if missing > 0:
        mask = g.add(Pad(Scalar.f32(-math.inf), (0,) * (2 * mask.rank - 1) + (missing,)), mask)
    return mask


def _hide(g: Graph, visible: Value) -> Value:
    """``where(visible, 0, -inf)``: additive mask of a Boolean tensor."""
    if visible.is_constant:
        return emit.float_constant(g, np.where(visible.array > 0, 0, -np.inf), visible.name)
    zero, low = (
        emit.float_constant(g, np.zeros(1), "zero"),
        emit.float_constant(g, np.full(1, -np.inf), "minus_infinity"),
    )
    return g.add(ConditionSelect(), visible, zero, low)


def _window_mask(node: OnnxNode, g: Graph, shape: tuple[int, int], past: int, window: tuple[int, int]) -> list[Value]:
    """Mask of keys outside a window around the query's position; empty if all keys are inside.

    The window is (left, right); -1 means no bound on this side.
    """
    (rows, columns), (left, right) = shape, window
    node.budget((rows, columns), 8, "mask")
    ahead = np.arange(columns)[None, :] - (np.arange(rows)[:, None] + past)
    allowed = np.ones((rows, columns), bool)
    if left >= 0:
        allowed &= -ahead <= left
    if right >= 0:
        allowed &= ahead <= right
    return [] if allowed.all() else [emit.float_constant(g, np.where(allowed, np.float32(0), -np.inf), "mask")]


def _key_count_mask(node: OnnxNode, g: Graph, shape: tuple[int, int, int, int], window: tuple[int, int]) -> Value:
    """Mask of keys beyond the number of keys of each sample (input 6), and of keys outside a window.

    The last query is at the position of the sample's last key. The window is (left, right); -1 means no bound.
    """
    batch, _, rows, columns = shape
    lengths = node.input(6)
    if lengths.dtype is not DType.INT32 or node.shape(6) != (batch,):
        raise node.invalid(f"nonpad_kv_seqlen is {node.element(6)} {list(node.shape(6))}")
    node.budget((rows, columns), 8, "mask")
    counts = emit.as_computed(g, lengths)
    counts = emit.reshape(g, emit.as_float(g, counts), (batch, 1, 1, 1))
    key = np.arange(columns)[None, None, None, :]
    at_end = key - np.arange(rows)[None, None, :, None] + rows  # key count for which key and query have one position
    left, right = window
    allowed = _compare(g, Gt(), counts, key)
    if right >= 0:
        allowed = emit.mul(g, allowed, _compare(g, Ge(), counts, at_end - right))
    if left >= 0:
        allowed = emit.mul(g, allowed, _compare(g, Le(), counts, at_end + left))
    return _hide(g, allowed)


def _compare(g: Graph, op: Op, counts: Value, numbers: Array) -> Value:
    return g.add(op, counts, emit.float_constant(g, numbers, "positions"))


def _guarded_softmax(g: Graph, x: Value) -> Value:
    """Softmax along the last axis; the result for a row of minus infinities is zero instead of NaN."""
    largest = emit.maxs(g, emit.reduce(g, ReduceMethodType.REDUCE_MAX, x, (x.rank - 1,)), _LOWEST)
    powers = formulas.exp(g, emit.sub(g, x, largest))
    sums = emit.total(g, powers, (x.rank - 1,))
    return emit.div(g, powers, emit.add(g, sums, g.add(Eqs(Scalar.f32(0)), sums)))


@onnx_op("RotaryEmbedding", since=23)
def rotary_embedding(node: OnnxNode, g: Graph) -> Result:
    """``(x1 cos - x2 sin, x1 sin + x2 cos)`` of pairs (x1, x2) of the first elements of each head."""
    return rotate(node, g, cos_at=1, sin_at=2, positions_at=3)


def rotate(node: OnnxNode, g: Graph, cos_at: int, sin_at: int, positions_at: int) -> Result:
    """Convert a rotary embedding; the variants of the operator have their inputs in different orders."""
    x = emit.floats(node.input(0))
    shape = node.shape(0)
    heads = node.attr("num_heads", 0)
    if len(shape) == 3:
        heads = heads or _heads_of(node, shape[2], cos_at)
        if heads < 1 or shape[2] % heads:
            raise node.invalid(f"num_heads={heads} for a width of {shape[2]}")
        x = emit.reshape(g, x, (shape[0], shape[1], heads, shape[2] // heads))
    elif len(shape) == 4:
        x = emit.permute(g, x, (0, 2, 1, 3))
    else:
        raise node.invalid(f"an input of rank {len(shape)}")
    batch, sequence, _, size = emit.extents(x)
    turned = node.attr("rotary_embedding_dim", 0) or size
    if turned % 2 or not 2 <= turned <= size:
        raise node.invalid(f"rotary_embedding_dim={turned} of {size}")
    cos, sin = (_angles(node, g, index, positions_at, (batch, sequence, turned // 2)) for index in (cos_at, sin_at))
    y = rotate_pairs(g, x, cos, sin, is_interleaved=bool(node.attr("interleaved", 0)))
    y = emit.reshape(g, y, shape) if len(shape) == 3 else emit.permute(g, y, (0, 2, 1, 3))
    return node.result(y)


def rotate_pairs(g: Graph, x: Value, cos: Value, sin: Value, *, is_interleaved: bool) -> Value:
    """Rotate pairs of the first elements of each head.

    Args:
        g: the graph.
        x: [batch, sequence, heads, size].
        cos: cosines [batch, sequence, 1, number of pairs].
        sin: sines of the same shape.
        is_interleaved: True if the elements of a pair are adjacent.
    """
    size, half = emit.extents(x)[3], emit.extents(cos)[3]
    turned = 2 * half
    if is_interleaved:
        first, second = emit.slice_axis(g, x, 3, 0, turned - 1, 2), emit.slice_axis(g, x, 3, 1, turned, 2)
    else:
        first, second = emit.slice_axis(g, x, 3, 0, half), emit.slice_axis(g, x, 3, half, turned)
    real = emit.sub(g, emit.mul(g, first, cos), emit.mul(g, second, sin))
    imaginary = emit.add(g, emit.mul(g, first, sin), emit.mul(g, second, cos))
    parts = [_interleave(g, real, imaginary)] if is_interleaved else [real, imaginary]
    if turned < size:
        parts.append(emit.slice_axis(g, x, 3, turned, size))
    return emit.concat(g, parts, 3)


def _heads_of(node: OnnxNode, width: int, cos_at: int) -> int:
    """Number of heads if the attribute is missing: the width divided by the rotated width; 0 in the default domain."""
    half = node.shape(cos_at)[-1]
    return width // (2 * half) if node.proto.domain and half else 0


def _interleave(g: Graph, a: Value, b: Value) -> Value:
    """Interleave the elements of two tensors along the last axis."""
    shape = emit.extents(a)
    pairs = g.add(Concat(len(shape)), *(emit.reshape(g, x, (*shape, 1)) for x in (a, b)))
    return emit.reshape(g, pairs, (*shape[:-1], 2 * shape[-1]))


def _angles(node: OnnxNode, g: Graph, index: int, positions_at: int, expected: tuple[int, int, int]) -> Value:
    """Sines or cosines as [batch, sequence, 1, half]; an input with positions selects rows of the cache."""
    cache = emit.floats(node.input(index))
    batch, sequence, half = expected
    if node.has_input(positions_at):
        rows = node.shape(index)[0]
        if node.proto.domain and node.shape(positions_at) == (1,):  # only the first token's position is given
            first = int(node.scalar(positions_at))
            if not 0 <= first <= rows - sequence:
                raise node.invalid(f"positions from {first} on in a cache of {rows}")
            part = emit.reshape(g, emit.slice_axis(g, cache, 0, first, first + sequence), (1, sequence, half))
            return emit.reshape(g, emit.expand(g, part, expected), (batch, sequence, 1, half))
        if node.rank(index) != 2 or node.shape(positions_at) != (batch, sequence):
            raise node.invalid(f"input {index} or the positions do not fit {list(expected)}")
        if node.is_constant(positions_at):
            cache = gather_slices(g, cache, 0, from_front(node, node.constant(positions_at), rows).reshape(-1))
        else:
            cache = select_by(g, cache, 0, computed_index(node, g, positions_at, rows))
        cache = emit.reshape(g, cache, (batch, sequence, emit.extents(cache)[-1]))
    if emit.extents(cache) != expected:
        raise node.invalid(f"input {index} has the shape {list(emit.extents(cache))}, not {list(expected)}")
    return emit.reshape(g, cache, (batch, sequence, 1, half))
