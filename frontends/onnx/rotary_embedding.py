"""RotaryEmbedding: rotate pairs of elements by angles that depend on the position."""

from __future__ import annotations

from tpuconvert.frontends import emit
from tpuconvert.frontends.onnx.data_movement import gather_slices
from tpuconvert.frontends.onnx.gather import computed_index, from_front, select_by
from tpuconvert.frontends.onnx.node import OnnxNode, Result, onnx_op
from tpuconvert.schema.errors import INVALID_NODE
from tpuconvert.schema.graph import Graph, Value
from tpuconvert.schema.ops.concat import Concat


@onnx_op("RotaryEmbedding", since=23)
def rotary_embedding(node: OnnxNode, g: Graph) -> Result:
    """``(x1 cos - x2 sin, x1 sin + x2 cos)`` of pairs of the first elements of each head."""
    return rotate(node, g, cos_at=1, sin_at=2, positions_at=3)


def rotate(node: OnnxNode, g: Graph, cos_at: int, sin_at: int, positions_at: int) -> Result:
    """Convert a rotary embedding; the variants of the operator have their inputs in different orders."""
    x = emit.floats(node.input(0))
    shape = node.shape(0)
    heads = node.attr("num_heads", 0)
    if len(shape) == 3:
        heads = heads or _heads_of(node, shape[2], cos_at)
        if heads < 1 or shape[2] % heads:
            raise node.fail(INVALID_NODE, f"num_heads={heads} for a width of {shape[2]}")
        x = emit.reshape(g, x, (shape[0], shape[1], heads, shape[2] // heads))
    elif len(shape) == 4:
        x = emit.permute(g, x, (0, 2, 1, 3))
    else:
        raise node.fail(INVALID_NODE, f"an input of rank {len(shape)}")
    batch, sequence, _, size = emit.extents(x)
    turned = node.attr("rotary_embedding_dim", 0) or size
    if turned % 2 or turned > size:
        raise node.fail(INVALID_NODE, f"rotary_embedding_dim={turned} of {size}")
    cos, sin = (_angles(node, g, index, positions_at, (batch, sequence, turned // 2)) for index in (cos_at, sin_at))
    half = turned // 2
    is_interleaved = bool(node.attr("interleaved", 0))
    if is_interleaved:
        first, second = emit.cut(g, x, 3, 0, turned - 1, 2), emit.cut(g, x, 3, 1, turned, 2)
    else:
        first, second = emit.cut(g, x, 3, 0, half), emit.cut(g, x, 3, half, turned)
    real = emit.sub(g, emit.mul(g, first, cos), emit.mul(g, second, sin))
    imaginary = emit.add(g, emit.mul(g, first, sin), emit.mul(g, second, cos))
    parts = [_interleave(g, real, imaginary)] if is_interleaved else [real, imaginary]
    if turned < size:
        parts.append(emit.cut(g, x, 3, turned, size))
    y = g.add(Concat(3), *parts) if len(parts) > 1 else parts[0]
    y = emit.reshape(g, y, shape) if len(shape) == 3 else emit.permute(g, y, (0, 2, 1, 3))
    return node.result(y)


def _heads_of(node: OnnxNode, width: int, cos_at: int) -> int:
    """Number of heads if the node does not state it: the width divided by the rotated width."""
    return width // (2 * node.shape(cos_at)[-1]) if node.proto.domain else 0


def _interleave(g: Graph, a: Value, b: Value) -> Value:
    """Interleave the elements of two tensors along the last axis."""
    shape = emit.extents(a)
    pairs = g.add(Concat(len(shape)), *(emit.reshape(g, x, (*shape, 1)) for x in (a, b)))
    return emit.reshape(g, pairs, (*shape[:-1], 2 * shape[-1]))


def _angles(node: OnnxNode, g: Graph, index: int, positions_at: int, wanted: tuple[int, int, int]) -> Value:
    """Sines or cosines as [batch, sequence, 1, half]; positions select the rows."""
    cache = emit.floats(node.input(index))
    batch, sequence, half = wanted
    if node.has_input(positions_at):
        rows = node.shape(index)[0]
        if node.proto.domain and node.shape(positions_at) == (1,):  # the position of the first token
            first = int(node.scalar(positions_at))
            if not 0 <= first <= rows - sequence:
                raise node.fail(INVALID_NODE, f"positions from {first} on in a cache of {rows}")
            part = emit.reshape(g, emit.cut(g, cache, 0, first, first + sequence), (1, sequence, half))
            return emit.reshape(g, emit.expand(g, part, wanted), (batch, sequence, 1, half))
        if node.rank(index) != 2 or node.shape(positions_at) != (batch, sequence):
            raise node.fail(INVALID_NODE, f"input {index} or the positions do not fit {list(wanted)}")
        if node.is_constant(positions_at):
            cache = gather_slices(g, cache, 0, from_front(node, node.constant(positions_at), rows).reshape(-1))
        else:
            cache = select_by(g, cache, 0, computed_index(node, g, positions_at, rows))
        cache = emit.reshape(g, cache, (batch, sequence, emit.extents(cache)[-1]))
    if emit.extents(cache) != wanted:
        raise node.fail(INVALID_NODE, f"input {index} has the shape {list(emit.extents(cache))}, not {list(wanted)}")
    return emit.reshape(g, cache, (batch, sequence, 1, half))
