"""FULLY_CONNECTED and BATCH_MATMUL."""

from __future__ import annotations

import math

from tpuconvert.frontends.registry import Kind
from tpuconvert.frontends.tflite import hybrid
from tpuconvert.frontends.tflite.lowering import bias, reshape
from tpuconvert.frontends.tflite.node import TfliteNode, tflite_op
from tpuconvert.schema.errors import INVALID_NODE, TOO_LARGE
from tpuconvert.schema.graph.graph import Graph, Value, static
from tpuconvert.schema.ops.batch_matmul import BatchMatmul
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul
from tpuconvert.schema.ops.permute import Permute

_MAX_MATMULS = 4096  # largest batch of one BATCH_MATMUL: a chip runs its matmuls one after another


@tflite_op("FULLY_CONNECTED", kind=Kind.DIRECT, limits="weights as they are, not shuffled")
def fully_connected(node: TfliteNode, g: Graph) -> Value:
    """Matmul with transposed weights; the input is reshaped to rows of as many elements as a row of weights."""
    node.refuse_option(
        "weights_format", 0, "weights in the shuffled format are made for one machine: export them plain"
    )
    node.ignore_option("quantized_bias_type")  # the accumulator width of the integer kernel
    if node.rank(1) != 2:
        raise node.fail(INVALID_NODE, f"weights {list(node.shape(1))} must have rank 2")
    oc, ic = node.shape(1)
    shape = node.shape(0)
    count = math.prod(shape)
    if not ic or count % ic:
        raise node.fail(INVALID_NODE, f"weights {list(node.shape(1))} do not fit the input {list(shape)}")
    rows = count // ic
    asymmetric = bool(node.option("asymmetric_quantize_inputs"))
    x = hybrid.round_activations(node, g, reshape(g, node.input(0), (rows, ic)), asymmetric=asymmetric)
    y = g.add(MatrixMul(), x, node.permute(1, (1, 0)), bias(node, 2, 0, 1, (1, oc)))
    y = node.activate(y)
    if not node.option("keep_num_dims") or len(shape) == 2:
        return y
    if shape[-1] != ic:
        raise node.fail(INVALID_NODE, f"keep_num_dims with an input {list(shape)} and {ic} weights per row")
    y.quant = node.output_quant()
    return reshape(g, y, (*shape[:-1], oc))


@tflite_op("BATCH_MATMUL", kind=Kind.DIRECT)
def batch_matmul(node: TfliteNode, g: Graph) -> Value:
    """Batched matmul; a single matmul over all rows if the right operand is one matrix."""
    a = _round_rows(node, g, _transpose(node, g, 0, bool(node.option("adj_x"))))
    b = _transpose(node, g, 1, bool(node.option("adj_y")))
    a_shape, b_shape = static(a.shape), static(b.shape)
    (rows, inner), (inner_b, columns) = a_shape[-2:], b_shape[-2:]
    if inner != inner_b:
        raise node.fail(INVALID_NODE, f"{list(a_shape)} times {list(b_shape)}")
    a_batch, b_batch = a_shape[:-2], b_shape[:-2]
    if math.prod(b_batch) == 1 and not node.is_quantized:  # the integer kernels of both operators round differently
        batch = a_batch if len(a_batch) >= len(b_batch) else (1,) * (len(b_batch) - len(a_batch)) + a_batch
        product = g.add(MatrixMul(), reshape(g, a, (-1, inner)), reshape(g, b, (inner, columns)))
        return reshape(g, product, (*batch, rows, columns))
    return _multiply_batches(node, g, a, b)


def _round_rows(node: TfliteNode, g: Graph, a: Value) -> Value:
    """Quantize each row of the left operand to 8 bits if the right operand has integer weights."""
    shape = static(a.shape)
    rows = reshape(g, a, (-1, shape[-1]))
    result = hybrid.round_activations(node, g, rows, asymmetric=bool(node.option("asymmetric_quantize_inputs")))
    return a if result is rows else reshape(g, result, shape)


def _multiply_batches(node: TfliteNode, g: Graph, a: Value, b: Value) -> Value:
    a_shape, b_shape = static(a.shape), static(b.shape)
    rank = max(len(a_shape), len(b_shape))
    a_shape, b_shape = (1,) * (rank - len(a_shape)) + a_shape, (1,) * (rank - len(b_shape)) + b_shape
    if any(p != q and 1 not in (p, q) for p, q in zip(a_shape[:-2], b_shape[:-2], strict=True)):
        raise node.fail(INVALID_NODE, f"{list(a_shape)} times {list(b_shape)}")
    count = math.prod(map(max, a_shape[:-2], b_shape[:-2]))
    if count > _MAX_MATMULS:
        raise node.fail(TOO_LARGE, f"{count} matrix products, more than {_MAX_MATMULS}")
    return g.add(BatchMatmul(), reshape(g, a, a_shape), reshape(g, b, b_shape))


def _transpose(node: TfliteNode, g: Graph, index: int, is_transposed: bool) -> Value:
    rank = node.rank(index)
    if rank < 2:
        raise node.fail(INVALID_NODE, f"input {index} {list(node.shape(index))} must have rank 2 or more")
    if not is_transposed:
        return node.input(index)
    order = (*range(rank - 2), rank - 1, rank - 2)
    if node.is_constant(index):
        return node.permute(index, order)
    x = node.input(index)
    result = g.add(Permute(order=order), x)
    result.quant = x.quant if x.quant is not None and x.quant.axis is None else None
    return result
