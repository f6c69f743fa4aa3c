"""Sums of rows at constant indices: SCATTER_ND and SEGMENT_SUM."""

from __future__ import annotations

import math

import numpy as np

from tpuconvert.frontends import emit
from tpuconvert.frontends.tflite.lowering import reshape
from tpuconvert.frontends.tflite.node import TfliteNode, tflite_op
from tpuconvert.frontends.tflite.operators.scatter_update import flat_indices
from tpuconvert.schema.errors import INVALID_NODE
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul
from tpuconvert.schema.types import Array


@tflite_op("SCATTER_ND", limits="constant indices")
def scatter_nd(node: TfliteNode, g: Graph) -> Value | Array:
    """Sum updates at constant indices, as a matmul with a 0/1 matrix."""
    indices, shape = node.constant(0), node.ints(2)
    depth = indices.shape[-1] if indices.ndim else 0
    if not 1 <= depth <= len(shape) or min(shape) < 0:
        raise node.fail(INVALID_NODE, f"indices {list(indices.shape)} into {list(shape)}")
    leading, rest = shape[:depth], shape[depth:]
    rows = flat_indices(node, indices.reshape(-1, depth), leading)
    return _sum_rows(node, g, rows, math.prod(leading), 1, (*leading, *rest))


@tflite_op("SEGMENT_SUM", "UNSORTED_SEGMENT_SUM", limits="constant segment numbers")
def segment_sum(node: TfliteNode, g: Graph) -> Value | Array:
    """Sum the rows of each segment, as a matmul with a 0/1 matrix; rows with a negative segment number are dropped."""
    numbers = np.asarray(node.ints(1), dtype=np.int64)
    if numbers.shape != node.shape(1) or numbers.shape != node.shape(0)[:1]:
        raise node.fail(INVALID_NODE, f"segment numbers {list(node.shape(1))} for {list(node.shape(0))}")
    may_leave_out = node.op_type == "UNSORTED_SEGMENT_SUM"
    count = node.one_int(2) if may_leave_out else int(numbers[-1]) + 1 if numbers.size else 0
    if int(numbers.max(initial=-1)) >= count or (int(numbers.min(initial=0)) < 0 and not may_leave_out):
        raise node.fail(INVALID_NODE, f"a segment number is outside 0 to {count - 1}")
    return _sum_rows(node, g, numbers, count, 0, (count, *node.shape(0)[1:]))


def _sum_rows(
    node: TfliteNode, g: Graph, targets: Array, count: int, index: int, shape: tuple[int, ...]
) -> Value | Array:
    """Add row i of an input to row ``targets[i]`` of the result; rows with a negative target are dropped."""
    if 0 in shape:
        return node.empty(shape)
    if not targets.size:
        return np.zeros(shape, node.constant(index).dtype)
    node.check_size([count, len(targets)])
    choice = np.zeros((count, len(targets)), dtype=np.float32)
    sources = np.flatnonzero(targets >= 0)
    choice[targets[sources], sources] = 1
    values = node.input(index)
    width = max(math.prod(shape) // max(count, 1), 1)
    rows = reshape(g, emit.as_float(g, values), (len(targets), width))
    product = g.add(MatrixMul(), emit.float_constant(g, choice, "choice"), rows)
    return emit.cast(g, reshape(g, product, shape), values.dtype)
