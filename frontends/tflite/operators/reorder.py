"""REVERSE_SEQUENCE and MATRIX_SET_DIAG, with positions that are known at conversion time."""

from __future__ import annotations

import math

import numpy as np

from tpuconvert.frontends import emit
from tpuconvert.frontends.tflite import layout
from tpuconvert.frontends.tflite.lowering import expand, reshape
from tpuconvert.frontends.tflite.node import TfliteNode, tflite_op
from tpuconvert.frontends.tflite.operators.gather import gather_at
from tpuconvert.schema.errors import INVALID_NODE
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops.copy import Constdata
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.selection import ConditionSelect


@tflite_op("REVERSE_SEQUENCE", limits="constant lengths")
def reverse_sequence(node: TfliteNode, g: Graph) -> Value:
    """Reverse the first elements of every sequence; their number is a constant per batch."""
    shape, lengths = node.shape(0), node.ints(1)
    rank = len(shape)
    axis, batch = node.axis(node.option("seq_dim"), rank), node.axis(node.option("batch_dim"), rank)
    if axis == batch or len(lengths) != shape[batch] or not all(0 <= length <= shape[axis] for length in lengths):
        raise node.fail(INVALID_NODE, f"lengths {list(lengths)}, axes {axis} and {batch} of {list(shape)}")
    node.check_size([shape[batch], shape[axis]])
    order = (batch, axis, *(other for other in range(rank) if other not in (axis, batch)))
    moved = node.input(0) if order == tuple(range(rank)) else g.add(Permute(order=order), node.input(0))
    steps = np.arange(shape[axis])[None, :]
    ends = np.asarray(lengths)[:, None]
    source = np.where(steps < ends, ends - 1 - steps, steps) + np.arange(shape[batch])[:, None] * shape[axis]
    rows = reshape(g, moved, (source.size, math.prod(shape[other] for other in order[2:])))
    back = reshape(g, gather_at(node, rows, 0, source), tuple(shape[other] for other in order))
    return back if moved is node.input(0) else g.add(Permute(order=layout.inverse(order)), back)


@tflite_op("MATRIX_SET_DIAG")
def matrix_set_diag(node: TfliteNode, g: Graph) -> Value:
    """Replace the main diagonal of each matrix."""
    shape = node.shape(0)
    if len(shape) < 2 or node.shape(1) != (*shape[:-2], min(shape[-2:])):
        raise node.fail(INVALID_NODE, f"diagonal {list(node.shape(1))} for {list(shape)}")
    node.check_size(shape)
    x, diagonal = emit.as_float(g, node.input(0)), emit.as_float(g, node.input(1))
    rows, columns = shape[-2:]
    is_tall = rows >= columns
    placed = (*shape[:-2], 1, columns) if is_tall else (*shape[:-2], rows, 1)
    mask = np.broadcast_to(np.eye(rows, columns), shape)
    on_diagonal = g.add(Constdata(), emit.float_constant(g, mask, "diagonal"))
    chosen = expand(node.graph, reshape(g, diagonal, placed), shape)
    return emit.cast(g, g.add(ConditionSelect(), on_diagonal, chosen, x), node.input(0).dtype)
