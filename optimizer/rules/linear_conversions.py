"""Conversion of linear operators to the form that needs the fewest operators around it.

- A batch matmul whose right operand is one constant matrix for all batches is a matmul of all rows: ``[..., M, K] @
  [K, N] -> reshape(reshape([..., M, K], [rows, K]) @ [K, N])``.
- A fully connected layer between reshapes from [N, C, 1, 1] and back is a 1x1 convolution, since both sum over the
  channels.
- So are several of them with element-wise unary operators in between, as in squeeze-and-excitation gates. A reduction
  before them that drops the spatial axes keeps them then.
- A 1x1 convolution without groups, padding or strides between reshapes from [M, K] and back is a fully connected layer
  with the transposed weights.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from tpuconvert.optimizer.annotations import rounds
from tpuconvert.optimizer.engine import Replacement, Skip, rule
from tpuconvert.optimizer.pattern import Match, p
from tpuconvert.schema.graph import Graph, Node, Value
from tpuconvert.schema.op import Trait
from tpuconvert.schema.ops.batch_matmul import BatchMatmul
from tpuconvert.schema.ops.conv import Conv
from tpuconvert.schema.ops.matrix_mul import MatrixMul
from tpuconvert.schema.ops.reduce import Reduce
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.types import Array

_LONGEST = 12


@rule(p(BatchMatmul, "x", "W", name="product"), stage="canonicalize", formerly="batches_as_rows")
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


def _permute_weights(graph: Graph, value: Value, order: tuple[int, ...], shape: tuple[int, ...]) -> Value:
    """Constant weights with permuted axes."""

    def move(data: Array) -> Array:
        return np.ascontiguousarray(data.reshape(data.shape[:2]).transpose(order).reshape(shape))

    return graph.constant(move(value.array), value.name)


def _vector(graph: Graph, value: Value | None, rank: int) -> Value | None:
    """A bias as [1, N] or [1, N, 1, 1]."""
    if value is None:
        return None
    shape = (1, -1, *(1,) * (rank - 2))
    return graph.constant(value.array.reshape(shape), value.name)


FLATTENED = p(Reshape, "x", name="before", sole_user=True)


@rule(
    p(Reshape, p(MatrixMul, FLATTENED, "W", "B?", name="product", sole_user=True), name="after"),
    stage="fuse",
    formerly="product_as_convolution",
)
def convert_matmul_to_conv1x1(graph: Graph, m: Match) -> Replacement:
    """``matmul(x, W) -> conv(x)`` from [N, C, 1, 1] to [N, K, 1, 1] with a 1x1 kernel."""
    bias = m.B
    declined = _not_plain(m) or (None if m.product.op == MatrixMul() else "it is no plain product")
    if declined:
        return Skip(declined)
    inner, outer = m.W.array.shape
    samples = m.product.output.shape[0]
    if m.x.shape != (samples, inner, 1, 1) or m.after.output.shape != (samples, outer, 1, 1):
        return Skip("it does not map [N, C, 1, 1] to [N, K, 1, 1]")
    if m.W.stored is not None or (bias is not None and bias.stored is not None):
        return Skip("the source file quantizes the weights")
    w = _permute_weights(graph, m.W, (1, 0), (outer, inner, 1, 1))
    operands = [w] if bias is None else [w, _vector(graph, bias, 4)]
    return graph.add(Conv(), m.x, *operands)


def _gate(node: Node) -> list[Node]:
    """The matmuls and unary operators from a reshape upwards to the matrix that they start from, the last one first.

    Empty if one of them has several users, or if there is only one matmul, which ``convert_matmul_to_conv1x1`` handles.
    """
    found: list[Node] = []
    value = node.inputs[0]
    while value is not None and len(value.uses) == 1 and value.producer is not None and len(found) < _LONGEST:
        producer = value.producer
        found.append(producer)
        if isinstance(producer.op, (Reduce, Reshape)):
            layers = sum(isinstance(item.op, MatrixMul) for item in found)
            return found if layers and (len(found) > 2 or isinstance(producer.op, Reduce)) else []
        if _why(producer) if isinstance(producer.op, MatrixMul) else Trait.UNARY not in producer.op.traits:
            return []
        value = producer.inputs[0]
    return []


def _why(product: Node) -> str | None:
    """The reason why a fully connected layer cannot be a 1x1 convolution."""
    x, w, *rest = product.inputs
    constants = [value for value in (w, *rest) if value is not None]
    if x is None or product.op != MatrixMul() or not x.dtype.is_float or not x.type.is_static:
        return "it is no plain product of reals"
    if not all(value.is_constant and value.stored is None for value in constants):
        return "its weights are computed, or quantized by the source"
    return None


def _ends_a_gate(node: Node) -> bool:
    (x,), y = node.inputs, node.output
    is_plane = x is not None and (x.rank, y.rank) == (2, 4) and x.shape[0] == y.shape[0]
    return is_plane and bool(_gate(node))


@rule(
    p(Reshape, p((MatrixMul, Trait.UNARY), name="last", sole_user=True), name="after", where=_ends_a_gate),
    stage="fuse",
    formerly="gate_as_convolutions",
)
def convert_gate_matmuls_to_conv1x1(graph: Graph, m: Match) -> Replacement:
    """Convert a chain of matmuls and unary operators from [N, C, 1, 1] to [N, K, 1, 1] to 1x1 convs."""
    *layers, first = _gate(m.after)
    x = first.inputs[0]
    assert x is not None
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
        name = f"{node.name}:plane"
        if isinstance(node.op, MatrixMul):
            w, *bias = node.inputs[1:]
            assert w is not None
            inner, outer = w.array.shape
            operands = [
                _permute_weights(graph, w, (1, 0), (outer, inner, 1, 1)),
                *(_vector(graph, value, 4) for value in bias),
            ]
            x = graph.add(Conv(), x, *operands, name=name)
        else:
            x = graph.add(node.op, x, name=name)
    return x


@rule(
    p(Reshape, p(Conv, FLATTENED, "W", "B?", name="product", sole_user=True), name="after"),
    stage="fuse",
    formerly="convolution_as_product",
)
def convert_conv1x1_to_matmul(graph: Graph, m: Match) -> Replacement:
    """``conv(x) -> matmul(x, W)`` from [M, K] to [M, N] for a 1x1 kernel."""
    bias = m.B
    declined = _not_plain(m) or (None if m.product.op == Conv() else "it is no plain convolution")
    if declined:
        return Skip(declined)
    if m.W.array.shape[2:] != (1, 1) or m.before.output.shape[2:] != (1, 1):
        return Skip("its kernel covers more than one element")
    outer, inner = m.W.array.shape[:2]
    samples = m.product.output.shape[0]
    if m.x.shape != (samples, inner) or m.after.output.shape != (samples, outer):
        return Skip("it does not map one matrix to another")
    if m.W.stored is not None or (bias is not None and bias.stored is not None):
        return Skip("the source file quantizes the weights")
    w = _permute_weights(graph, m.W, (1, 0), (inner, outer))
    operands = [w] if bias is None else [w, _vector(graph, bias, 2)]
    return graph.add(MatrixMul(), m.x, *operands)


def _not_plain(m: Match) -> str | None:
    if not m.x.dtype.is_float or not m.product.output.type.is_static:
        return "it is not a product of reals of known shape"
    return None
