"""AVERAGE_POOL_2D, MAX_POOL_2D and L2_POOL_2D."""

from __future__ import annotations

from tpuconvert.frontends.registry import Kind
from tpuconvert.frontends.tflite.layout import Permuted
from tpuconvert.frontends.tflite.lowering import window_padding
from tpuconvert.frontends.tflite.node import TfliteNode, tflite_op
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.pool import Pool, PoolType


def _pool(node: TfliteNode, g: Graph, kind: PoolType, x: Value) -> Value:
    _, height, width, _ = node.shape(0)
    kernel = node.option("filter_height"), node.option("filter_width")
    strides = node.option("stride_h"), node.option("stride_w")
    top, bottom, left, right = window_padding(node, (height, width), kernel, strides, (1, 1))
    op = Pool(
        kernel_h=kernel[0],
        kernel_w=kernel[1],
        stride_h=strides[0],
        stride_w=strides[1],
        pad_h=top,
        pad_w=left,
        pad_h_offset=bottom - top,
        pad_w_offset=right - left,
        pooling_type=kind,
        is_ave_count_zero_pad=False,  # TFLite divides by the number of elements inside the image
    )
    result = g.add(op, x)
    if kind is PoolType.MAX and node.option("fused_activation_function"):
        result.quant = node.output_quant()  # max pooling does not change the scale
    return result


@tflite_op("AVERAGE_POOL_2D", "MAX_POOL_2D", kind=Kind.DIRECT)
def pool_2d(node: TfliteNode, g: Graph) -> Permuted:
    """Max pooling, or average pooling that does not count the padding."""
    kind = PoolType.MAX if node.op_type == "MAX_POOL_2D" else PoolType.AVE
    return node.nhwc(node.activate(_pool(node, g, kind, node.nchw(0))))


@tflite_op("L2_POOL_2D")
def l2_pool_2d(node: TfliteNode, g: Graph) -> Permuted:
    """Root mean square of each window."""
    squares = g.add(Active(ActiveType.ACTIVE_SQUARE), node.nchw(0))
    mean = _pool(node, g, PoolType.AVE, squares)
    return node.nhwc(node.activate(g.add(Active(ActiveType.ACTIVE_SQRT), mean)))
