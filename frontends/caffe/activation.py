"""Layers that apply one function to every element."""

from tpuconvert.frontends.caffe.arithmetic import active, at_least, at_most, times
from tpuconvert.frontends.caffe.node import CaffeNode, caffe_op, direct
from tpuconvert.frontends.registry import Kind
from tpuconvert.schema.graph import Graph, Value
from tpuconvert.schema.ops.activation import Active, ActiveParam, ActiveType
from tpuconvert.schema.ops.arithmetic import Add, Mul
from tpuconvert.schema.ops.clamp import Clamp
from tpuconvert.schema.ops.concat import Concat
from tpuconvert.schema.ops.smooth_activation import Gelu, HardSigmoid, HardSwish, Mish, Silu, Softplus
from tpuconvert.schema.types import Scalar

direct("AbsVal", Active(ActiveType.ACTIVE_ABSVAL))
direct("Sigmoid", Active(ActiveType.ACTIVE_SIGMOID), reads=("sigmoid_param",))
direct("TanH", Active(ActiveType.ACTIVE_TANH), reads=("tanh_param",))
direct("GELU", Gelu())
direct("BNLL", Softplus())
direct("HardSwish", HardSwish())
direct("Hswish", HardSwish())
direct("Mish", Mish())
direct("ReLU6", Clamp(Scalar.f32(0), Scalar.f32(6)), reads=("relu6_param",))


@caffe_op("ReLU", kind=Kind.DIRECT)
def relu(node: CaffeNode, g: Graph) -> Value:
    """Rectified: x > 0 ? x : negative_slope * x."""
    slope = node.params("relu_param").number("negative_slope")
    if slope == 0:
        return g.add(Active(ActiveType.ACTIVE_RELU), node.input(0))
    return g.add(ActiveParam(ActiveType.ACTIVE_LEAKY_RELU, (slope,)), node.input(0))


@caffe_op("PReLU")
def prelu(node: CaffeNode, g: Graph) -> Value:
    """max(x, 0) + slope * min(x, 0), one slope per channel or one for all."""
    x, shape = node.input(0), node.shape(0)
    if len(shape) < 2:
        raise node.fail(f"needs a channel axis, its input has shape {list(shape)}")
    channels = 1 if node.params("prelu_param").flag("channel_shared") else shape[1]
    slope = node.weight(0, (channels,), "slope").reshape((1, channels, *(1,) * (len(shape) - 2)))
    negative = g.add(Mul(), at_most(g, x, 0), node.constant(slope, "slope"))
    return g.add(Add(), at_least(g, x, 0), negative)


@caffe_op("ELU", kind=Kind.DIRECT)
def elu(node: CaffeNode, g: Graph) -> Value:
    """Exponential below 0: x > 0 ? x : alpha * (exp(x) - 1)."""
    alpha = node.params("elu_param").number("alpha")
    x = node.input(0)
    if alpha == 1:
        return active(g, x, "ELU")
    negative = times(g, active(g, at_most(g, x, 0), "ELU"), alpha)
    return g.add(Add(), at_least(g, x, 0), negative)


@caffe_op("Swish")
def swish(node: CaffeNode, g: Graph) -> Value:
    """``x * sigmoid(beta * x)``."""
    return g.add(Silu(node.params("swish_param").number("beta")), node.input(0))


@caffe_op("HardSigmoid")
def hard_sigmoid(node: CaffeNode, g: Graph) -> Value:
    """``min(max(alpha * x + beta, 0), 1)``."""
    p = node.params("hardsigmoid_param")
    return g.add(HardSigmoid(p.number("alpha"), p.number("beta")), node.input(0))


@caffe_op("CReLU")
def crelu(node: CaffeNode, g: Graph) -> Value:
    """relu(x) and relu(-x), one behind the other along the channels."""
    x = node.input(0)
    return active(g, g.add(Concat(1), x, times(g, x, -1)), "RELU")


@caffe_op("Clip", kind=Kind.DIRECT)
def clip(node: CaffeNode, g: Graph) -> Value:
    """min(max(x, min), max)."""
    p = node.params("clip_param")
    p.require("min", "max")
    return g.add(Clamp(Scalar.f32(p.number("min")), Scalar.f32(p.number("max"))), node.input(0))
