"""Normalization layers: softmax, batch norm, LRN, mean-variance and L2 normalization."""

import math

from tpuconvert.frontends import emit, functions, powers
from tpuconvert.frontends.caffe.arithmetic import scale_by, shift_by
from tpuconvert.frontends.caffe.fillers import CONSTANT, Filler, filler_of
from tpuconvert.frontends.caffe.node import CaffeNode, caffe_op
from tpuconvert.frontends.registry import Kind
from tpuconvert.schema.errors import INVALID_NODE
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops import formulas
from tpuconvert.schema.ops.arithmetic import Add, Mul
from tpuconvert.schema.ops.batch_norm import BatchNorm
from tpuconvert.schema.ops.normalization import Lrn
from tpuconvert.schema.ops.pool import Pool, PoolType
from tpuconvert.schema.ops.softmax import Softmax
from tpuconvert.schema.types import Array


@caffe_op("Softmax", kind=Kind.DIRECT)
def softmax(node: CaffeNode, g: Graph) -> Value:
    """Softmax along one axis."""
    axis = node.axis(node.params("softmax_param").whole("axis"), len(node.shape(0)))
    return g.add(Softmax(axis), node.input(0))


@caffe_op("BatchNorm", kind=Kind.DIRECT)
def batch_norm(node: CaffeNode, g: Graph) -> Value:
    """Batch norm; the stored mean and variance are sums that have to be divided by the third blob."""
    p = node.params("batch_norm_param")
    shape = node.shape(0)
    channels = shape[1] if len(shape) > 1 else 1
    zero = Filler(CONSTANT)
    mean = node.weight(0, (channels,), "mean", zero)
    variance = node.weight(1, (channels,), "variance", zero)
    divisor = float(node.weight(2, (1,), "divisor of mean and variance")[0]) if node.has_weight(2) else 1.0
    if not node.has_weight(2) and not node.is_filled:
        node.notes.append(f"layer '{node.name}' has no third blob: its mean and variance are taken as they are")
    affine = []
    if p.flag("scale_bias"):
        affine = [("gamma", node.weight(3, (channels,), "scale")), ("beta", node.weight(4, (channels,), "bias"))]
    is_stored = p.flag("use_global_stats") if p.has("use_global_stats") else True
    op = BatchNorm(epsilon=p.number("eps"), use_global_stats=is_stored, scale=divisor)
    return _batch_norm(node, g, op, [("mean", mean), ("variance", variance), *affine])


@caffe_op("BN", "CuDNNBatchNorm", kind=Kind.DIRECT)
def bn(node: CaffeNode, g: Graph) -> Value:
    """Per-channel scale and bias (SegNet), or batch norm with scale and bias in one layer (PSPNet)."""
    p = node.params("batch_norm_param" if node.type == "CuDNNBatchNorm" else "bn_param")
    if node.type == "CuDNNBatchNorm" and p.has("use_global_stats") and not p.flag("use_global_stats"):
        raise node.fail("use_global_stats: false", "supported: the stored mean and variance")
    shape = node.shape(0)
    channels = shape[1] if len(shape) > 1 else 1
    scale, shift = node.weight(0, (channels,), "scale"), node.weight(1, (channels,), "shift")
    if p.has("bn_mode") or not node.has_weight(2):
        if p.choice("bn_mode") != "INFERENCE" and p.has("bn_mode"):
            raise node.fail("bn_mode: LEARN", "merge the statistics into scale and shift, then set bn_mode: INFERENCE")
        aligned = (1, channels, *(1,) * (len(shape) - 2))
        y = g.add(Mul(), node.input(0), node.constant(scale.reshape(aligned), "scale"))
        return g.add(Add(), y, node.constant(shift.reshape(aligned), "shift"))
    mean, variance = node.weight(2, (channels,), "mean"), node.weight(3, (channels,), "variance")
    constants = [("mean", mean), ("variance", variance), ("gamma", scale), ("beta", shift)]
    return _batch_norm(node, g, BatchNorm(epsilon=p.number("eps")), constants)


def _batch_norm(node: CaffeNode, g: Graph, op: BatchNorm, constants: list[tuple[str, Array]]) -> Value:
    """Add a batch norm, which requires rank 4: reshape inputs of other ranks before and after it."""
    shape = node.shape(0)
    channels = constants[0][1].shape[0]
    image = shape if len(shape) == 4 else (shape[0], channels, math.prod(shape[2:]), 1)
    operands = [node.constant(array, name) for name, array in constants]
    y, _, _ = g.add_all(op, emit.reshape(g, node.input(0), image), *operands)
    return emit.reshape(g, y, shape)


@caffe_op("LRN")
def lrn(node: CaffeNode, g: Graph) -> Value:
    """LRN: divide by a power of the sum of squares of neighbors, across channels or within a window of the plane."""
    p = node.params("lrn_param")
    size, alpha, beta = p.whole("local_size"), p.number("alpha"), p.number("beta")
    shape = node.shape(0)
    if size % 2 == 0 or len(shape) != 4:
        raise node.fail(f"local_size {size} on {list(shape)}", "supported: an odd size on four axes", INVALID_NODE)
    if p.choice("norm_region") == "ACROSS_CHANNELS":
        node.budget((shape[1], shape[1]), "matrix of neighboring channels")  # a constant of the decomposed Lrn
        return g.add(Lrn(size, alpha, beta, p.number("k")), node.input(0))
    p.ignore("k")  # within a channel, Caffe always adds 1 instead of k
    window = Pool(
        stride_h=1,
        stride_w=1,
        pad_h=size // 2,
        pad_w=size // 2,
        kernel_h=size,
        kernel_w=size,
        pooling_type=PoolType.AVE,
        is_ceil_mode=True,
        ensure_pool_image=True,
    )
    means = g.add(window, formulas.square(g, node.input(0)))
    return g.add(Mul(), node.input(0), powers.constant_power(g, shift_by(g, scale_by(g, means, alpha), 1), -beta))


@caffe_op("MVN")
def mvn(node: CaffeNode, g: Graph) -> Value:
    """Subtract the mean and optionally divide by (standard deviation + eps), per channel or per image."""
    p = node.params("mvn_param")
    rank = len(node.shape(0))
    axes = tuple(range(1 if p.flag("across_channels") else 2, rank))
    if not axes:
        raise node.fail(f"nothing to average over in {list(node.shape(0))}", kind=INVALID_NODE)
    if p.flag("normalize_variance"):
        return functions.standardize(g, node.input(0), axes, p.number("eps"))
    p.ignore("eps")
    return functions.center(g, node.input(0), axes)


@caffe_op("Normalize", "NormalizeBBox", "L2Norm")
def normalize(node: CaffeNode, g: Graph) -> Value:
    """L2-normalize over the channels of each position or over each image, then multiply by a learned scale."""
    p = node.params("norm_param")
    shape = node.shape(0)
    axes = tuple(range(1, len(shape))) if p.flag("across_spatial") else (1,)
    if len(shape) < 2:
        raise node.fail(f"needs a channel axis, its input has shape {list(shape)}", kind=INVALID_NODE)
    squares = shift_by(g, emit.total(g, formulas.square(g, node.input(0)), axes), p.number("eps"))
    y = g.add(Mul(), node.input(0), formulas.rsqrt(g, squares))
    channels = 1 if p.flag("channel_shared") else shape[1]
    one = filler_of(p, "scale_filler", Filler(CONSTANT, 1.0))
    scale = node.weight(0, (channels,), "scale", one).reshape((1, channels, *(1,) * (len(shape) - 2)))
    return g.add(Mul(), y, node.constant(scale, "scale"))
