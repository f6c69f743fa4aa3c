"""Fully connected layers, embeddings and matmul."""

import math

import numpy as np

from tpuconvert.frontends import emit
from tpuconvert.frontends.caffe.fillers import CONSTANT, Filler, filler_of
from tpuconvert.frontends.caffe.node import CaffeNode, caffe_op
from tpuconvert.frontends.registry import Kind
from tpuconvert.schema.errors import INVALID_NODE
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops.cast import Cast
from tpuconvert.schema.ops.index_select import IndexSelect
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul
from tpuconvert.schema.types import I32


@caffe_op("InnerProduct", kind=Kind.DIRECT)
def inner_product(node: CaffeNode, g: Graph) -> Value:
    """Fully connected layer ``x @ W + bias``, with the axes of x from ``axis`` on flattened.

    The file stores W as [units, length], or with ``transpose`` as [length, units].
    """
    p = node.params("inner_product_param")
    shape, units = node.shape(0), p.whole("num_output")
    if units < 1:
        raise node.fail("num_output is missing", "give it in the prototxt", INVALID_NODE)
    axis = node.axis(p.whole("axis"), len(shape))
    rows, length = math.prod(shape[:axis]), math.prod(shape[axis:])
    filler, bias_filler = filler_of(p, "weight_filler"), filler_of(p, "bias_filler", Filler(CONSTANT))
    if p.flag("transpose"):
        weight = node.weight(0, (length, units), "weight", filler)
    else:
        weight = node.weight(0, (units, length), "weight", filler).T
    operands = [emit.reshape(g, node.input(0), (rows, length)), node.constant(weight, "weight")]
    if p.flag("bias_term"):
        bias = node.weight(1, (units,), "bias", bias_filler)
        operands.append(node.constant(bias.reshape(1, units), "bias"))
    return emit.reshape(g, g.add(MatrixMul(), *operands), (*shape[:axis], units))


@caffe_op("Embed", kind=Kind.DIRECT)
def embed(node: CaffeNode, g: Graph) -> Value:
    """Select rows of a table, plus an optional bias; the float indices x have integer values."""
    p = node.params("embed_param")
    shape, units, rows = node.shape(0), p.whole("num_output"), p.whole("input_dim")
    if units < 1 or rows < 1:
        raise node.fail("num_output or input_dim is missing", "give them in the prototxt", INVALID_NODE)
    table = node.weight(0, (rows, units), "table", filler_of(p, "weight_filler"))
    if p.flag("bias_term"):
        bias = node.weight(1, (units,), "bias", filler_of(p, "bias_filler", Filler(CONSTANT)))
        table = np.add(table, bias, dtype=np.float32)
    index = emit.reshape(g, g.add(Cast(out_dtype=I32), node.input(0)), (math.prod(shape),))
    chosen = g.add(IndexSelect(0), node.constant(table, "table"), index)
    return emit.reshape(g, chosen, (*shape, units))


@caffe_op("MatMul", kind=Kind.DIRECT)
def matmul(node: CaffeNode, g: Graph) -> Value:
    """Matmul of two computed matrices."""
    left, right = node.shape(0), node.shape(1)
    if len(left) != 2 or len(right) != 2 or left[1] != right[0]:
        raise node.fail(f"matrices of shape {list(left)} and {list(right)}", "supported: [M, K] and [K, N]")
    return g.add(MatrixMul(), node.input(0), node.input(1))
