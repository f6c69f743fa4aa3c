"""Rewrites that prepare a float graph for quantization. It stays a float graph.

- A batch norm or a constant per-channel scale that was not folded into a linear operator becomes a depthwise 1x1
  convolution, with per-channel requantization.
- A mean over height and width becomes global average pooling.
- A batched matmul with one constant matrix becomes a matmul of all rows; the optimizer has done this for static shapes.
- A computed bias is added by an operator of its own.
- Every linear operator with constant weights gets a bias, which bias correction can change.
"""

from __future__ import annotations

import math

import numpy as np

from tpuconvert.optimizer.engine.engine import Replacement, Skip, rule
from tpuconvert.optimizer.engine.node_properties import reduced_axes
from tpuconvert.optimizer.engine.pattern import Match, either_order, p
from tpuconvert.optimizer.rules.identity import reshape_like
from tpuconvert.schema.definition.op import Trait
from tpuconvert.schema.graph.formula_source import formula_source
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops.arithmetic import Add, Mul
from tpuconvert.schema.ops.batch_matmul import BatchMatmul
from tpuconvert.schema.ops.batch_norm import BatchNorm
from tpuconvert.schema.ops.convolution.conv import Conv
from tpuconvert.schema.ops.convolution.conv3d import Conv3d
from tpuconvert.schema.ops.convolution.deconv import Deconv
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.pool import Pool, PoolType
from tpuconvert.schema.ops.reduce import Reduce, ReduceMethodType
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.ops.symbolic_movement import ReshapeByFormulas
from tpuconvert.schema.types import Array


@rule(
    p(BatchNorm, "x", "MEAN", "VAR", "GAMMA?", "BETA?", name="op"),
    stage="prepare quantization",
)
def convert_batch_norm_to_depthwise(graph: Graph, m: Match) -> Replacement:
    """``batch_norm(x) -> depthwise_conv(x)`` for constant statistics."""
    # A NaN or infinity in the statistics becomes a weight. The check that constants are finite reports it.
    op = m.op.op
    if not op.use_global_stats or any(value.uses or graph.is_output(value) for value in m.op.outputs[1:]):
        return Skip("its statistics are not constant, or have users")
    factor = 0.0 if op.scale == 0 else 1.0 / op.scale
    k = 1.0 / np.sqrt(m.VAR.array.astype(np.float64) * factor + op.epsilon)
    if m.GAMMA is not None:
        k = k * m.GAMMA.array
    b = -m.MEAN.array.astype(np.float64) * factor * k
    if m.BETA is not None:
        b = b + m.BETA.array
    return _depthwise(graph, m.x, k, b), None, None


@rule(*either_order(Mul, "x", "K", name="op"), stage="prepare quantization")
def convert_scale_to_depthwise(graph: Graph, m: Match) -> Replacement:
    """``x * K -> depthwise_conv(x)`` for a per-channel scale K of a 4-D tensor."""
    shape = m.K.array.shape
    channels = m.x.shape[1] if m.x.rank == 4 else None
    if m.x.is_constant or not isinstance(channels, int) or shape != (1, channels, 1, 1):
        return Skip("the constant is not a per-channel vector")
    return _depthwise(graph, m.x, m.K.array.reshape(-1), None)


@rule(
    *either_order(Add, p(BatchMatmul, "x", "W", name="product", sole_user=True), "B", name="sum"),
    stage="prepare quantization",
)
def convert_symbolic_batch_matmul_and_bias(graph: Graph, m: Match) -> Replacement:
    """``batch_matmul(x, W) + B -> matmul(x, W, B)`` for one constant matrix W and symbolic extents."""
    columns = m.product.output.shape[-1]
    if m.B.array.size != columns or m.B.shape[-1] != columns:
        return Skip("the constant is not a bias")
    return _matmul_of_rows(graph, m, m.B)


@rule(p(BatchMatmul, "x", "W", name="product"), stage="prepare quantization")
def convert_symbolic_batch_matmul(graph: Graph, m: Match) -> Replacement:
    """``batch_matmul(x, W) -> matmul(x, W)`` for one constant matrix W and symbolic extents."""
    return _matmul_of_rows(graph, m, None)


def _matmul_of_rows(graph: Graph, m: Match, bias: Value | None) -> Replacement:
    """Reshape the left operand to rows, and the result back by the shape of a graph input."""
    op, result, x = m.product.op, m.product.output, m.x
    if m.W.stored is not None or math.prod(m.W.array.shape[:-2]) != 1 or x.is_constant:
        return Skip("the constant is not one matrix for all batches")
    inner = x.shape[-2 if op.left_transpose else -1]
    if x.type.is_static or not isinstance(inner, int):
        return Skip("its shape is static, or the length of a row is dynamic")
    source = formula_source(graph, result.shape)
    if source is None:
        return Skip("its extents do not follow from one input")
    matrix = m.W.array.reshape(m.W.array.shape[-2:])
    w = graph.constant(np.ascontiguousarray(matrix.T if op.right_transpose else matrix), m.W.name)
    if op.left_transpose:
        order = (*range(x.rank - 2), x.rank - 1, x.rank - 2)
        x = graph.add(Permute(order), x, name=f"{result.name}:swapped")
    rows = graph.add(Reshape((-1, inner)), x, name=f"{result.name}:rows")
    biases = [] if bias is None else [graph.constant(bias.array.reshape(1, -1), bias.name)]
    product = graph.add(MatrixMul(), rows, w, *biases, name=f"{result.name}:reshaped")
    return graph.add(ReshapeByFormulas(tuple(map(str, result.shape)), source.names, source.axes), product, source.value)


@rule(p(Trait.UNARY, p(ReshapeByFormulas, "x", "source", name="reshape"), name="op"), stage="prepare quantization")
def hoist_unary_above_symbolic_reshape(graph: Graph, m: Match) -> Replacement:
    """``f(reshape(x)) -> reshape(f(x))``, so that the function follows the matmul that computes x."""
    if len(m.reshape.output.uses) != 1 or len(m.op.inputs) != 1 or graph.is_output(m.reshape.output):
        return Skip("the reshape has other users")
    return graph.add(m.reshape.op, graph.add(m.op.op, m.x, name=f"{m.op.output.name}:rows"), m.source)


@rule(p(Reshape, p(ReshapeByFormulas, "x", "source", name="first"), name="op"), stage="prepare quantization")
def remove_symbolic_reshape_and_inverse(graph: Graph, m: Match) -> Replacement:
    """``reshape(reshape(x)) -> x`` if the result has the shape of x."""
    return m.x if m.op.output.type == m.x.type else Skip("the result has another shape")


@rule(p(Reduce, "x", name="op"), stage="prepare quantization")
def convert_mean_to_pool(graph: Graph, m: Match) -> Replacement:
    """``mean(x) -> global_average_pool(x)`` for a mean over the two spatial axes of NCHW."""
    op = m.op.op
    if op.method != ReduceMethodType.REDUCE_MEAN or m.x.rank != 4 or reduced_axes(m.op) != [2, 3]:
        return Skip("it is not a mean over height and width")
    pooling = Pool(stride_h=1, stride_w=1, kernel_h=1, kernel_w=1, pooling_type=PoolType.AVE, is_global_pooling=True)
    pooled = graph.add(pooling, m.x, name=f"{m.op.output.name}:pooled")
    return pooled if op.keep_dims else reshape_like(graph, pooled, m.op.output)


@rule(p((Conv, Conv3d, Deconv, MatrixMul), "x", "W", "b", name="op"), stage="prepare quantization")
def move_computed_bias_to_add(graph: Graph, m: Match) -> Replacement:
    """``conv(x, W, b) -> conv(x, W) + b`` for a bias that is computed: the integer forms have a constant bias."""
    if m.b.is_constant:
        return Skip("its bias is constant")
    product = graph.add(m.op.op, m.x, m.W, name=f"{m.op.output.name}:product")
    return graph.add(Add(), product, m.b)


@rule(p((Conv, Conv3d, Deconv, MatrixMul), "x", "W", "B?", name="op"), stage="prepare quantization")
def add_zero_bias(graph: Graph, m: Match) -> Replacement:
    """Add a bias of zeros to a linear operator without bias."""
    if m.B is not None:
        return Skip("it has a bias")
    channels = m.op.output.shape[1]
    assert isinstance(channels, int)  # Constant weights determine the number of channels.
    shape = (1, channels, *(1,) * (m.op.output.rank - 2))
    return graph.add(m.op.op, m.x, m.W, graph.constant(np.zeros(shape, np.float32), f"{m.op.output.name}:bias"))


def _depthwise(graph: Graph, x: Value, k: Array, b: Array | None) -> Value:
    w = graph.constant(k.astype(np.float32).reshape(-1, 1, 1, 1), "factors")
    inputs = [x, w] if b is None else [x, w, graph.constant(b.astype(np.float32).reshape(1, -1, 1, 1), "shifts")]
    return graph.add(Conv(groups=k.size), *inputs)
