"""Gemm and MatMul as ``matrix_mul``, which multiplies two-dimensional matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tpuconvert.frontends import emit
from tpuconvert.frontends.onnx.node import OnnxNode, Result, onnx_op
from tpuconvert.frontends.open_extents import is_one, is_open
from tpuconvert.frontends.registry import Kind
from tpuconvert.schema.errors import INVALID_NODE, TOO_LARGE
from tpuconvert.schema.graph import Graph, Value
from tpuconvert.schema.ops.batch_matmul import BatchMatmul
from tpuconvert.schema.ops.matrix_mul import MatrixMul


def matrix_product(g: Graph, a: Value, b: Value, bias: Value | None = None) -> Value:
    """Add a ``matrix_mul``: [M, K] @ [K, N] + [1, N]."""
    return g.add(MatrixMul(), a, b) if bias is None else g.add(MatrixMul(), a, b, bias)


@onnx_op("Gemm", since=1, kind=Kind.DIRECT)
def gemm(node: OnnxNode, g: Graph) -> Value:
    """``alpha * A' @ B' + beta * C``."""
    a, b = emit.floats(node.input(0)), emit.floats(node.input(1))
    if node.rank(1) != 2 or (node.rank(0) != 2 and not (node.version < 7 and node.rank(0) > 2)):
        raise node.fail(INVALID_NODE, f"operands of rank {node.rank(0)} and {node.rank(1)}")
    if node.rank(0) > 2:  # exporters of the first opsets did not flatten the input
        shape = node.shape(0)
        a = emit.reshape(g, a, (shape[0], math.prod(shape[1:])))
    if node.attr("transA", 0):
        a = emit.permute(g, a, (1, 0))
    if node.attr("transB", 0):
        b = emit.permute(g, b, (1, 0))
    if node.version < 7:
        node.optional_attr("broadcast")  # not needed: the shape of C determines the broadcast
    alpha, beta = node.attr("alpha", 1.0), node.attr("beta", 1.0)
    c = node.optional(2)
    if c is not None and beta != 1.0:
        c = _scale(g, emit.floats(c), beta)
    if alpha != 1.0:
        b = _scale(g, b, alpha)
    rows, columns = emit.extents(a)[0], emit.extents(b)[1]
    if c is None or beta == 0.0:
        return matrix_product(g, a, b)
    shape = emit.extents(c)
    if emit.broadcast_shape(shape, (rows, columns)) != (rows, columns):
        raise node.fail(INVALID_NODE, f"C {list(shape)} does not broadcast to {[rows, columns]}")
    is_row = math.prod(shape[:-1]) == 1 and shape[-1] == columns
    if is_row:
        return matrix_product(g, a, b, emit.reshape(g, c, (1, columns)))
    return emit.add(g, matrix_product(g, a, b), c)


def _scale(g: Graph, x: Value, factor: float) -> Value:
    if x.is_constant:
        return g.constant(x.array * np.float32(factor), name=x.name)
    return emit.muls(g, x, factor)


@onnx_op("MatMul", since=1, kind=Kind.DIRECT)
def matmul(node: OnnxNode, g: Graph) -> Result:
    """Matrix multiplication with NumPy's rules for ranks."""
    a, b = emit.floats(node.input(0)), emit.floats(node.input(1))
    y, shape = matmul_values(node, g, a, node.shape(0), b, node.shape(1))
    return node.result(emit.reshape(g, y, shape or (1,)), node.element(0), scalar=shape == ())


def matmul_values(
    node: OnnxNode, g: Graph, a: Value, shape_a: Sequence[int], b: Value, shape_b: Sequence[int]
) -> tuple[Value, tuple[int, ...]]:
    """Multiply two tensors of any rank; also return the shape of the result in NumPy."""
    if not shape_a or not shape_b:
        raise node.fail(INVALID_NODE, "an operand has rank 0")
    left = tuple(shape_a) if len(shape_a) > 1 else (1, *shape_a)
    right = tuple(shape_b) if len(shape_b) > 1 else (*shape_b, 1)
    if left[-1] != right[-2]:
        raise node.fail(INVALID_NODE, f"shapes {list(shape_a)} and {list(shape_b)} do not match")
    batch = emit.broadcast_shape(left[:-2], right[:-2])
    y = batched_product(node, g, emit.reshape(g, a, left), emit.reshape(g, b, right))
    shape = batch + ((left[-2],) if len(shape_a) > 1 else ()) + ((right[-1],) if len(shape_b) > 1 else ())
    return y, shape


def check_batch(node: OnnxNode, batch: Sequence[int]) -> None:
    """Check the number of separate matmuls: each matrix of a batch is one TPU operator.

    Raises:
        CannotConvertError: there are more than the limit.
    """
    count = math.prod(batch)
    if not is_open(count) and count > node.limits.max_unrolled_nodes:
        raise node.fail(TOO_LARGE, f"{count} separate matmuls")


def batched_product(node: OnnxNode, g: Graph, a: Value, b: Value) -> Value:
    """Multiply [.., M, K] @ [.., K, N] with broadcast batches; one matmul if all rows have the same right matrix."""
    left, right = emit.extents(a), emit.extents(b)
    m, k, n = left[-2], left[-1], right[-1]
    batch = emit.broadcast_shape(left[:-2], right[:-2])
    can_join_rows = sum(map(is_open, left[:-1])) <= 1  # a reshape can restore one symbolic extent
    if can_join_rows and is_one(math.prod(right[:-2])):
        rows = emit.reshape(g, a, (math.prod(left[:-1]), k))
        y = matrix_product(g, rows, emit.reshape(g, b, (k, n)))
        return emit.reshape(g, y, (*batch, m, n))
    check_batch(node, batch)
    rank = len(batch) + 2
    a, b = (emit.reshape(g, x, (1,) * (rank - x.rank) + emit.extents(x)) for x in (a, b))
    return g.add(BatchMatmul(), a, b)
