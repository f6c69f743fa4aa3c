"""GlobalAveragePool and GlobalMaxPool."""

from __future__ import annotations

from tpuconvert.frontends import emit
from tpuconvert.frontends.onnx.node import OnnxNode, onnx_op
from tpuconvert.frontends.registry import Kind
from tpuconvert.schema.errors import INVALID_NODE
from tpuconvert.schema.graph import Graph, Value
from tpuconvert.schema.ops.pool import Pool, PoolType
from tpuconvert.schema.ops.reduce import ReduceMethodType


@onnx_op("GlobalAveragePool", since=1, kind=Kind.DIRECT)
def global_average_pool(node: OnnxNode, g: Graph) -> Value:
    """Mean of each channel."""
    return _global(node, g, PoolType.AVE)


@onnx_op("GlobalMaxPool", since=1, kind=Kind.DIRECT)
def global_max_pool(node: OnnxNode, g: Graph) -> Value:
    """Maximum of each channel."""
    return _global(node, g, PoolType.MAX)


def _global(node: OnnxNode, g: Graph, kind: PoolType) -> Value:
    x = emit.floats(node.input(0))
    rank = node.rank(0)
    if rank < 3:
        raise node.fail(INVALID_NODE, f"an input of rank {rank} has no spatial axes")
    if rank == 4:
        return g.add(Pool(kernel_h=1, kernel_w=1, stride_h=1, stride_w=1, pooling_type=kind, is_global_pooling=True), x)
    method = ReduceMethodType.REDUCE_MEAN if kind is PoolType.AVE else ReduceMethodType.REDUCE_MAX
    return emit.reduce(g, method, x, range(2, rank))
