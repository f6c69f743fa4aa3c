"""Reduction, ArgMax and Threshold layers."""

import math

import numpy as np

from tpuconvert.frontends import emit
from tpuconvert.frontends.caffe.arithmetic import scale_by
from tpuconvert.frontends.caffe.node import CaffeNode, RankZero, caffe_op
from tpuconvert.frontends.registry import Kind
from tpuconvert.schema.errors import INVALID_NODE
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops import formulas
from tpuconvert.schema.ops.cast import Cast
from tpuconvert.schema.ops.compare import Gts
from tpuconvert.schema.ops.concat import Concat
from tpuconvert.schema.ops.index_select import IndexSelect
from tpuconvert.schema.ops.ordering import Arg, Topk
from tpuconvert.schema.ops.reduce import Reduce, ReduceMethodType
from tpuconvert.schema.types import F32, Scalar


@caffe_op("Reduction", kind=Kind.DIRECT)
def reduction(node: CaffeNode, g: Graph) -> Value | RankZero:
    """Sum, mean, sum of magnitudes or sum of squares over all axes from ``axis`` on, multiplied by ``coeff``."""
    p = node.params("reduction_param")
    shape, operation = node.shape(0), p.choice("operation")
    axis = node.axis(p.whole("axis"), len(shape))
    x = node.input(0)
    if operation in ("ASUM", "SUMSQ"):
        x = formulas.absolute(g, x) if operation == "ASUM" else formulas.square(g, x)
    method = ReduceMethodType.REDUCE_MEAN if operation == "MEAN" else ReduceMethodType.REDUCE_SUM
    y = g.add(Reduce(axis_list=tuple(range(axis, len(shape))), method=method, keep_dims=False), x)
    y = scale_by(g, y, p.number("coeff"))
    return y if axis else RankZero(y)


@caffe_op("ArgMax", kind=Kind.DIRECT)
def argmax(node: CaffeNode, g: Graph) -> Value:
    """Indices of the k largest elements, their values or both, along an axis or of each flattened image.

    Caffe selects the last of equal elements. The operators select the first, so the elements are reversed.
    """
    p = node.params("argmax_param")
    count, with_values, shape = p.whole("top_k"), p.flag("out_max_val"), node.shape(0)
    if p.has("axis"):
        axis, x = node.axis(p.whole("axis"), len(shape)), node.input(0)
    else:
        axis, x = 1, emit.reshape(g, node.input(0), (shape[0], math.prod(shape[1:])))
    if not 1 <= count <= x.type.static_shape[axis]:
        raise node.fail(f"top_k {count} of {x.type.static_shape[axis]} elements", kind=INVALID_NODE)
    last = int(x.type.static_shape[axis]) - 1
    values = x = g.add(IndexSelect(axis), x, g.constant(np.arange(last, -1, -1, dtype=np.int32), "reversed"))
    if count == 1 and not with_values:
        indices = g.add(Arg(axis, out_dtype=F32), x)
    else:
        values, positions = g.add_all(Topk(count, axis), x)
        indices = g.add(Cast(out_dtype=F32), positions)
    indices = emit.rsubs(g, last, indices)
    if p.has("axis"):
        return values if with_values else indices
    rows = [emit.reshape(g, part, (shape[0], 1, count)) for part in ([indices, values] if with_values else [indices])]
    return g.add(Concat(1), *rows) if with_values else rows[0]


@caffe_op("Threshold", kind=Kind.DIRECT)
def threshold(node: CaffeNode, g: Graph) -> Value:
    """``x > threshold``, as 0 or 1."""
    return g.add(Gts(Scalar.f32(node.params("threshold_param").number("threshold"))), node.input(0))
