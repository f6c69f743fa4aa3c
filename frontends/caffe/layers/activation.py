"""Element-wise unary layers."""

from tpuconvert.frontends import emit, functions
from tpuconvert.frontends.caffe.fillers import CONSTANT, Filler, filler_of
from tpuconvert.frontends.caffe.node import CaffeNode, caffe_op, direct
from tpuconvert.frontends.registry import Kind
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops import formulas
from tpuconvert.schema.ops.activation import Active, ActiveType
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
    """``x`` above 0, ``negative_slope * x`` below."""
    slope = node.params("relu_param").number("negative_slope")
    if slope == 0:
        return g.add(Active(ActiveType.ACTIVE_RELU), node.input(0))
    return functions.leaky_relu(g, node.input(0), slope)


@caffe_op("PReLU")
def prelu(node: CaffeNode, g: Graph) -> Value:
    """``max(x, 0) + slope * min(x, 0)`` with one slope per channel, or one shared by all channels."""
    x, shape = node.input(0), node.shape(0)
    if len(shape) < 2:
        raise node.fail(f"needs a channel axis, its input has shape {list(shape)}")
    p = node.params("prelu_param")
    channels, filler = 1 if p.flag("channel_shared") else shape[1], filler_of(p, "filler", Filler(CONSTANT, 0.25))
    slope = node.weight(0, (channels,), "slope", filler).reshape((1, channels, *(1,) * (len(shape) - 2)))
    return functions.prelu(g, x, node.constant(slope, "slope"))


@caffe_op("ELU", kind=Kind.DIRECT)
def elu(node: CaffeNode, g: Graph) -> Value:
    """``x`` above 0, ``alpha * (exp(x) - 1)`` below."""
    return functions.elu(g, node.input(0), node.params("elu_param").number("alpha"))


@caffe_op("Swish", kind=Kind.DIRECT)
def swish(node: CaffeNode, g: Graph) -> Value:
    """``x * sigmoid(beta * x)``."""
    return g.add(Silu(node.params("swish_param").number("beta")), node.input(0))


@caffe_op("HardSigmoid", kind=Kind.DIRECT)
def hard_sigmoid(node: CaffeNode, g: Graph) -> Value:
    """``min(max(alpha * x + beta, 0), 1)``."""
    p = node.params("hardsigmoid_param")
    return g.add(HardSigmoid(p.number("alpha"), p.number("beta")), node.input(0))


@caffe_op("CReLU")
def crelu(node: CaffeNode, g: Graph) -> Value:
    """Concatenate ``relu(x)`` and ``relu(-x)`` along the channel axis."""
    x = node.input(0)
    return formulas.relu(g, g.add(Concat(1), x, emit.muls(g, x, -1)))


@caffe_op("Clip", kind=Kind.DIRECT)
def clip(node: CaffeNode, g: Graph) -> Value:
    """min(max(x, min), max)."""
    p = node.params("clip_param")
    p.require("min", "max")
    return g.add(Clamp(Scalar.f32(p.number("min")), Scalar.f32(p.number("max"))), node.input(0))
