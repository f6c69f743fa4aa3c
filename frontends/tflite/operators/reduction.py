"""Reductions along axes, ARG_MAX, ARG_MIN and TOPK_V2."""

from __future__ import annotations

import numpy as np

from tpuconvert.frontends import emit, functions
from tpuconvert.frontends.registry import Kind
from tpuconvert.frontends.small_integers import as_integers
from tpuconvert.frontends.tflite.node import TfliteNode, tflite_op
from tpuconvert.schema.errors import INVALID_NODE, UNSUPPORTED_TYPE
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops.ordering import Arg, ArgMethod, Topk
from tpuconvert.schema.ops.reduce import ReduceMethodType
from tpuconvert.schema.ops.shape_change import Squeeze
from tpuconvert.schema.types import I32, SMALL, Array

_METHODS = {
    "MEAN": ReduceMethodType.REDUCE_MEAN,
    "SUM": ReduceMethodType.REDUCE_SUM,
    "REDUCE_PROD": ReduceMethodType.REDUCE_PROD,
    "REDUCE_MAX": ReduceMethodType.REDUCE_MAX,
    "REDUCE_MIN": ReduceMethodType.REDUCE_MIN,
    "REDUCE_ANY": ReduceMethodType.REDUCE_MAX,  # Boolean elements are 0 or 1
    "REDUCE_ALL": ReduceMethodType.REDUCE_MIN,
}


@tflite_op(*_METHODS, kind=Kind.DIRECT)
def reduce(node: TfliteNode, g: Graph) -> Value | Array:
    """Mean, sum, product, maximum or minimum over axes. Integers are cast to FLOAT32; their mean is truncated."""
    keep = bool(node.option("keep_dims", False))
    if node.is_empty(0):
        return _reduce_no_elements(node, keep)
    x = node.input(0)
    axes = node.axes(node.ints(1), x.rank)
    if x.dtype in SMALL and node.op_type in ("MEAN", "SUM"):
        raise node.fail(UNSUPPORTED_TYPE, f"{node.tensor(0).type} without a scale, which the kernel needs")
    if not axes:
        return x
    y = emit.reduce(g, _METHODS[node.op_type], emit.as_float(g, x), axes, keep)
    if x.dtype.is_float:
        return y
    return as_integers(g, functions.truncate(g, y) if node.op_type == "MEAN" else y, x.dtype)


def _reduce_no_elements(node: TfliteNode, keep: bool) -> Array:
    """Return the result of a reduction of a tensor without elements: the neutral element, if it has elements."""
    shape = node.shape(0)
    axes = node.axes(node.ints(1), len(shape))
    result = [1 if i in axes else extent for i, extent in enumerate(shape) if keep or i not in axes]
    if 0 in result:
        return node.empty(result)
    dtype = node.constant(0).dtype
    limits = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(np.uint8 if dtype.kind == "b" else dtype)
    neutral: dict[str, float] = {"SUM": 0, "REDUCE_PROD": 1, "REDUCE_ANY": 0, "REDUCE_ALL": 1}
    neutral |= {"REDUCE_MAX": limits.min, "REDUCE_MIN": limits.max}
    if dtype.kind == "f":
        neutral["MEAN"] = np.nan
    if node.op_type not in neutral or (node.quant(0) is not None and node.op_type in ("SUM", "REDUCE_PROD")):
        raise node.fail(INVALID_NODE, f"the {node.tensor(0).type} result over no elements {list(shape)} is undefined")
    return np.full(result, neutral[node.op_type], dtype)


@tflite_op("ARG_MAX", "ARG_MIN", kind=Kind.DIRECT)
def arg(node: TfliteNode, g: Graph) -> Value:
    """Index of the first maximum or minimum along an axis."""
    node.ignore_option("output_type")  # redundant: the result tensor has this type
    x = emit.as_float(g, node.input(0))
    axis = node.axis(node.one_int(1), x.rank)
    method = ArgMethod.max if node.op_type == "ARG_MAX" else ArgMethod.min
    return g.add(Squeeze(axis=(axis,)), g.add(Arg(axis=axis, method=method, out_dtype=I32), x))


@tflite_op("TOPK_V2", kind=Kind.DIRECT, limits="a constant k")
def topk(node: TfliteNode, g: Graph) -> tuple[Value | Array, ...]:
    """The k largest elements along the last axis, and their indices."""
    k, shape = node.one_int(1), node.shape(0)
    if not 0 <= k <= shape[-1]:
        raise node.fail(INVALID_NODE, f"k is {k} for the shape {list(shape)}")
    if not k or node.is_empty(0):
        return node.empty((*shape[:-1], k)), node.empty((*shape[:-1], k), 1)
    x = node.input(0)
    op = Topk(k=k, axis=x.rank - 1, descending=True, index_dtype=I32)
    values, indices = g.add_all(op, emit.as_float(g, x), names=("values", "indices"))
    return emit.cast(g, values, x.dtype), indices
