"""Conversion of linear operators to the form that needs the fewest operators around it.

- A batch matmul whose right operand is one constant matrix for all batches is a matmul of all rows: ``[..., M, K] @
  [K, N] -> reshape(reshape([..., M, K], [rows, K]) @ [K, N])``.
- A fully connected layer between reshapes from [N, C, 1, 1] and back is a 1x1 convolution, since both sum over the
  channels.
- The same applies to a chain of fully connected layers with element-wise unary operators in between, as in
  squeeze-and-excitation gates. If a reduction before the chain drops the spatial axes, it is changed to keep them.
- A 1x1 convolution without groups, padding or strides between reshapes from [M, K] and back is a fully connected layer
  with the transposed weights.
- A permute that swaps the last two axes of a computed operand is a transpose flag of the matmul: the matmul then reads
  the matrix by columns, without a copy. Constant weights are permuted at conversion time instead.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from tpuconvert.optimizer.engine.annotations import rounds
from tpuconvert.optimizer.engine.engine import Replacement, Skip, rule
from tpuconvert.optimizer.engine.node_properties import operand, operands
from tpuconvert.optimizer.engine.pattern import Match, p
from tpuconvert.schema.definition.op import Op, Trait
from tpuconvert.schema.graph.graph import Graph, Node, Value
from tpuconvert.schema.ops.batch_matmul import BatchMatmul
from tpuconvert.schema.ops.convolution.conv import Conv
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.reduce import Reduce
from tpuconvert.schema.ops.shape_change import Reshape

_LONGEST = 12


@rule(p(BatchMatmul, "x", "W", name="product"), stage="canonicalize")
def convert_batch_matmul_to_matmul(graph: Graph, m: Match) -> Replacement:
    """``batch_matmul(x, W) -> matmul(x, W)`` for one constant matrix W."""
    op, result = m.product.op, m.product.output
    if m.W.stored is not None or math.prod(m.W.array.shape[:-2]) != 1 or m.x.is_constant:
        return Skip("the constant is not one matrix for all batches")
    if op.left_transpose:
        return Skip("its left operand is transposed")
    if not m.x.type.is_static or not result.type.is_static or 0 in m.x.shape or 0 in result.shape:
        return Skip("its shape is dynamic")
    inner = m.x.type.static_shape[-1]
    matrix = m.W.array.reshape(m.W.array.shape[-2:])
    w = graph.constant(np.ascontiguousarray(matrix.T if op.right_transpose else matrix), m.W.name)
    rows = math.prod(m.x.type.static_shape) // inner
    x = graph.add(Reshape((rows, inner)), m.x, name=f"{result.name}:rows")
    product = graph.add(MatrixMul(), x, w, name=f"{result.name}:reshaped")
    return graph.add(Reshape(result.type.static_shape), product)


def _swap_weights(graph: Graph, w: Value, rank: int) -> Value:
    """Add constant weights with the first two axes swapped and ``rank`` axes."""
    swapped = w.array.reshape(w.array.shape[:2]).T
    return graph.constant(np.ascontiguousarray(swapped).reshape(*swapped.shape, *(1,) * (rank - 2)), w.name)


def _as_vectors(graph: Graph, biases: Sequence[Value | None], rank: int) -> list[Value]:
    """Add a bias, if there is one, in the shape [1, N] or [1, N, 1, 1]."""
    shape = (1, -1, *(1,) * (rank - 2))
    return [graph.constant(bias.array.reshape(shape), bias.name) for bias in biases if bias is not None]


FLATTENED = p(Reshape, "x", name="before", sole_user=True)


@rule(p(Reshape, p(MatrixMul, FLATTENED, "W", "B?", name="product", sole_user=True), name="after"), stage="fuse")
def convert_matmul_to_conv1x1(graph: Graph, m: Match) -> Replacement:
    """``matmul(x, W) -> conv(x)`` from [N, C, 1, 1] to [N, K, 1, 1] with a 1x1 kernel."""
    if reason := _why_not_plain(m, MatrixMul()):
        return Skip(reason)
    inner, outer = m.W.array.shape
    samples = m.product.output.shape[0]
    if m.x.shape != (samples, inner, 1, 1) or m.after.output.shape != (samples, outer, 1, 1):
        return Skip("it does not map [N, C, 1, 1] to [N, K, 1, 1]")
    if _is_quantized(m):
        return Skip("the source file quantizes the weights")
    return graph.add(Conv(), m.x, _swap_weights(graph, m.W, 4), *_as_vectors(graph, [m.B], 4))


def _gate(node: Node) -> list[Node]:
    """Return the chain of matmuls and unary operators before a reshape, and the reshape or reduction that starts it.

    The last node comes first. The list is empty if a node has several users, or if there is only one matmul, which
    ``convert_matmul_to_conv1x1`` handles.
    """
    nodes: list[Node] = []
    value: Value | None = operand(node)
    while value is not None and len(value.uses) == 1 and value.producer is not None and len(nodes) < _LONGEST:
        producer = value.producer
        nodes.append(producer)
        if isinstance(producer.op, (Reduce, Reshape)):
            layers = sum(isinstance(item.op, MatrixMul) for item in nodes)
            return nodes if layers and (len(nodes) > 2 or isinstance(producer.op, Reduce)) else []
        if not (Trait.UNARY in producer.op.traits or _is_fully_connected(producer)):
            return []
        value = producer.inputs[0]
    return []


def _is_fully_connected(node: Node) -> bool:
    """Return True for a fully connected layer that can be a 1x1 convolution."""
    if node.op != MatrixMul() or not operand(node).dtype.is_float or not operand(node).type.is_static:
        return False
    return all(value.is_constant and value.stored is None for value in operands(node)[1:])


def _ends_a_gate(node: Node) -> bool:
    x, y = operand(node), node.output
    return (x.rank, y.rank) == (2, 4) and x.shape[0] == y.shape[0] and bool(_gate(node))


@rule(
    p(Reshape, p((MatrixMul, Trait.UNARY), name="last", sole_user=True), name="after", where=_ends_a_gate), stage="fuse"
)
def convert_gate_matmuls_to_conv1x1(graph: Graph, m: Match) -> Replacement:
    """Convert a chain of matmuls and unary operators from [N, C, 1, 1] to [N, K, 1, 1] to 1x1 convs."""
    *layers, first = _gate(m.after)
    x = operand(first)
    samples, channels = first.output.shape[0], first.output.shape[-1]
    if m.after.output.shape != (*m.last.output.shape, 1, 1):
        return Skip("its result is not [N, K, 1, 1]")
    if any(rounds(node) or graph.is_output(node.output) for node in (first, *layers)):
        return Skip("the source file quantizes an inner value, or it is a graph output")
    if isinstance(first.op, Reduce):
        x = graph.add(dataclasses.replace(first.op, keep_dims=True), x, name=f"{first.name}:plane")
    if x.shape != (samples, channels, 1, 1):
        return Skip("its operand is not [N, C, 1, 1]")
    for node in reversed(layers):
        op: Op = node.op
        constants: list[Value] = []
        if isinstance(op, MatrixMul):
            w, *bias = operands(node)[1:]
            op, constants = Conv(), [_swap_weights(graph, w, 4), *_as_vectors(graph, bias, 4)]
        x = graph.add(op, x, *constants, name=f"{node.name}:plane")
    return x


@rule(p(Reshape, p(Conv, FLATTENED, "W", "B?", name="product", sole_user=True), name="after"), stage="fuse")
def convert_conv1x1_to_matmul(graph: Graph, m: Match) -> Replacement:
    """``conv(x) -> matmul(x, W)`` from [M, K] to [M, N] for a 1x1 kernel."""
    if reason := _why_not_plain(m, Conv()):
        return Skip(reason)
    if m.W.array.shape[2:] != (1, 1) or m.before.output.shape[2:] != (1, 1):
        return Skip("its kernel covers more than one element")
    outer, inner = m.W.array.shape[:2]
    samples = m.product.output.shape[0]
    if m.x.shape != (samples, inner) or m.after.output.shape != (samples, outer):
        return Skip("it does not map one matrix to another")
    if _is_quantized(m):
        return Skip("the source file quantizes the weights")
    return graph.add(MatrixMul(), m.x, _swap_weights(graph, m.W, 2), *_as_vectors(graph, [m.B], 2))


def _is_quantized(m: Match) -> bool:
    return m.W.stored is not None or (m.B is not None and m.B.stored is not None)


def _why_not_plain(m: Match, plain: MatrixMul | Conv) -> str:
    if not m.x.dtype.is_float or not m.product.output.type.is_static:
        return "it is not a float operator of static shape"
    return "" if m.product.op == plain else f"it is not a plain {plain.name}"


def _swaps_last_axes(node: Node) -> bool:
    order = tuple(node.op.attributes()["order"])
    rank = len(order)
    return rank >= 2 and order == (*range(rank - 2), rank - 1, rank - 2)


@rule(p(BatchMatmul, p(Permute, "a", name="swap", where=_swaps_last_axes), "b", name="product"), stage="fuse")
def fold_permute_into_left_operand(graph: Graph, m: Match) -> Replacement:
    """``permute(a) @ b -> a' @ b`` with the transpose flag."""
    op = m.product.op
    return graph.add(dataclasses.replace(op, left_transpose=not op.left_transpose), m.a, m.b)


@rule(p(BatchMatmul, "a", p(Permute, "b", name="swap", where=_swaps_last_axes), name="product"), stage="fuse")
def fold_permute_into_right_operand(graph: Graph, m: Match) -> Replacement:
    """``a @ permute(b) -> a @ b'`` with the transpose flag."""
    op = m.product.op
    return graph.add(dataclasses.replace(op, right_transpose=not op.right_transpose), m.a, m.b)
