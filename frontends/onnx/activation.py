"""Functions of one element: activations, exponentials, rounding, and what they are built from."""

import math

import numpy as np

from tpuconvert.frontends.onnx import emit
from tpuconvert.frontends.onnx.elements import BOOL, FLOAT
from tpuconvert.frontends.onnx.node import Folded, OnnxNode, OnnxTensor, Result, direct, onnx_op
from tpuconvert.frontends.onnx.small_integers import SMALL, widened, wrapped
from tpuconvert.frontends.registry import Kind
from tpuconvert.schema.errors import INVALID_NODE, UNSUPPORTED_ATTRIBUTE, UNSUPPORTED_TYPE
from tpuconvert.schema.graph import Graph, Value
from tpuconvert.schema.ops.activation import Active, ActiveParam, ActiveType
from tpuconvert.schema.ops.arithmetic_with_scalar import Maxs, Mins
from tpuconvert.schema.ops.clamp import Clamp
from tpuconvert.schema.ops.compare import Eqs, Gts, Lts
from tpuconvert.schema.ops.host_trigonometry import InverseFunction, InverseTrigonometry
from tpuconvert.schema.ops.round_to_integer import Ceil, Floor
from tpuconvert.schema.ops.selection import ConditionSelect
from tpuconvert.schema.ops.trigonometry import Cos, Sin
from tpuconvert.schema.types import DType, Scalar

direct("Sigmoid", Active(ActiveType.ACTIVE_SIGMOID))
direct("Tanh", Active(ActiveType.ACTIVE_TANH))
direct("Exp", Active(ActiveType.ACTIVE_EXP))
direct("Log", Active(ActiveType.ACTIVE_LN))
direct("Sqrt", Active(ActiveType.ACTIVE_SQRT))
direct("Floor", Floor())
direct("Ceil", Ceil())
direct("Sin", Sin(), since=7)
direct("Cos", Cos(), since=7)
direct("Acos", InverseTrigonometry(InverseFunction.ACOS), since=7)
direct("Asin", InverseTrigonometry(InverseFunction.ASIN), since=7)
direct("Atan", InverseTrigonometry(InverseFunction.ATAN), since=7)


def _x(node: OnnxNode) -> Value:
    """The input, which has to be floating point."""
    x = node.input(0)
    if x.dtype is not DType.FLOAT32:
        raise node.fail(UNSUPPORTED_TYPE, f"its input is {node.element(0)}", "supported: floating point")
    return x


@onnx_op("Relu", since=1, kind=Kind.DIRECT)
def relu(node: OnnxNode, g: Graph) -> Result:
    """max(x, 0)."""
    x = node.input(0)
    return node.elementwise(emit.relu(g, x) if x.dtype is DType.FLOAT32 else emit.maxs(g, x, 0))


@onnx_op("Abs", since=1, kind=Kind.DIRECT)
def absolute(node: OnnxNode, g: Graph) -> Result:
    """|x|; integers as max(x, -x). The lowest small integer is its own, as its opposite does not exist."""
    x = node.input(0)
    if x.dtype is DType.FLOAT32:
        return node.elementwise(emit.absolute(g, x))
    if not x.dtype.is_signed:
        return node.elementwise(x)
    wide = widened(g, x) if x.dtype in SMALL else x
    found = emit.binary(g, "max", wide, emit.muls(g, wide, -1))
    return node.elementwise(wrapped(g, found, x.dtype) if x.dtype in SMALL else found)


@onnx_op("Neg", since=1, kind=Kind.DIRECT)
def negate(node: OnnxNode, g: Graph) -> Result:
    """-x."""
    return node.elementwise(emit.muls(g, node.input(0), -1))


@onnx_op("Reciprocal", since=1, kind=Kind.DIRECT)
def reciprocal(node: OnnxNode, g: Graph) -> Result:
    """1 / x."""
    return node.elementwise(emit.rdivs(g, 1, _x(node)))


@onnx_op("LeakyRelu", since=1, kind=Kind.DIRECT)
def leaky_relu(node: OnnxNode, g: Graph) -> Result:
    """x, or alpha * x below 0."""
    return node.elementwise(leaky(g, _x(node), node.attr("alpha", 0.01)))


def leaky(g: Graph, x: Value, slope: float) -> Value:
    """x, or slope * x below 0."""
    return g.add(ActiveParam(ActiveType.ACTIVE_LEAKY_RELU, (float(np.float32(slope)),)), x)


@onnx_op("PRelu", since=7)
def prelu(node: OnnxNode, g: Graph) -> Result:
    """max(x, 0) + slope * min(x, 0), with a slope that broadcasts to x."""
    x = _x(node)
    if node.is_constant(1) and node.constant(1).size == 1:
        return node.elementwise(leaky(g, x, node.scalar(1)))
    return node.elementwise(_prelu(g, x, node.input(1)))


@onnx_op("PRelu", since=1)
def prelu_per_channel(node: OnnxNode, g: Graph) -> Result:
    """Before opset 7 a slope of one axis belongs to the channels."""
    x, slope = _x(node), node.input(1)
    if slope.rank == 1 and x.rank > 1 and slope.shape[0] != 1:
        slope = emit.reshape(g, slope, (emit.extents(slope)[0],) + (1,) * (x.rank - 2))
    return node.elementwise(_prelu(g, x, slope))


def _prelu(g: Graph, x: Value, slope: Value) -> Value:
    return emit.add(g, emit.relu(g, x), emit.mul(g, emit.mins(g, x, 0), slope))


def scaled_elu(g: Graph, x: Value, alpha: float, inner: float = 1.0) -> Value:
    """max(x, 0) + alpha * (exp(min(x, 0) / inner) - 1)."""
    below = emit.mins(g, x, 0)
    if inner != 1.0:
        below = emit.divs(g, below, inner)
    negative = emit.active(g, ActiveType.ACTIVE_ELU, below)  # exp - 1 without cancellation near 0
    return emit.add(g, emit.relu(g, x), emit.muls(g, negative, alpha))


@onnx_op("Elu", since=1, kind=Kind.DIRECT)
def elu(node: OnnxNode, g: Graph) -> Result:
    """x, or alpha * (exp(x) - 1) below 0."""
    alpha, x = node.attr("alpha", 1.0), _x(node)
    if alpha == 1.0:
        return node.elementwise(emit.active(g, ActiveType.ACTIVE_ELU, x))
    return node.elementwise(scaled_elu(g, x, alpha))


@onnx_op("Selu", since=1)
def selu(node: OnnxNode, g: Graph) -> Result:
    """Gamma * elu(x)."""
    old = node.version < 6
    alpha = node.attr("alpha", 1.6732 if old else 1.67326319217681884765625)
    gamma = node.attr("gamma", 1.0507 if old else 1.05070102214813232421875)
    return node.elementwise(emit.muls(g, scaled_elu(g, _x(node), alpha), gamma))


@onnx_op("Celu", since=12)
def celu(node: OnnxNode, g: Graph) -> Result:
    """max(x, 0) + min(0, alpha * (exp(x / alpha) - 1))."""
    alpha = node.attr("alpha", 1.0)
    return node.elementwise(scaled_elu(g, _x(node), alpha, inner=alpha))


def clamp(g: Graph, x: Value, low: float, high: float) -> Value:
    """Limit x to an interval; an infinite bound is none."""
    if math.isinf(low) and math.isinf(high):
        return x
    if low > high:  # ONNX takes the minimum last: everything becomes the upper bound
        return emit.mins(g, emit.maxs(g, x, low), high)
    if math.isinf(low):
        return emit.mins(g, x, high)
    if math.isinf(high):
        return emit.maxs(g, x, low)
    return g.add(Clamp(_scalar(x, low), _scalar(x, high)), x)


def _scalar(x: Value, number: float) -> Scalar:
    return Scalar.f32(number) if x.dtype is DType.FLOAT32 else Scalar(x.dtype, number)


@onnx_op("Clip", since=11, kind=Kind.DIRECT)
def clip(node: OnnxNode, g: Graph) -> Result:
    """Limit to an interval whose bounds may be tensors."""
    x = node.input(0)
    is_fixed = all(node.is_constant(index) for index in (1, 2) if node.has_input(index))
    if not is_fixed:
        for index, function in ((1, "max"), (2, "min")):
            if node.has_input(index):
                x = emit.binary(g, function, x, node.input(index))
        return node.elementwise(x)
    bounds = [node.scalar(i) if node.has_input(i) else default for i, default in ((1, -math.inf), (2, math.inf))]
    if x.dtype is DType.INT32:
        # 64-bit bounds beyond 32 bits do not limit anything
        bounds = [
            -math.inf if bounds[0] < x.dtype.min else bounds[0],
            math.inf if bounds[1] > x.dtype.max else bounds[1],
        ]
    return _clipped(node, g, x, bounds[0], bounds[1])


@onnx_op("Clip", since=1, kind=Kind.DIRECT)
def clip_attributes(node: OnnxNode, g: Graph) -> Result:
    """Before opset 11 the bounds are attributes."""
    return _clipped(node, g, _x(node), node.attr("min", -math.inf), node.attr("max", math.inf))


def _clipped(node: OnnxNode, g: Graph, x: Value, low: float, high: float) -> Result:
    if math.isnan(low) or math.isnan(high):
        raise node.fail(INVALID_NODE, "a bound is NaN")
    largest = float(np.finfo(np.float32).max)
    if x.dtype is DType.FLOAT32:  # what exporters write for "no bound"
        low, high = (-math.inf if low <= -largest else low), (math.inf if high >= largest else high)
    if x.dtype is DType.INT32:  # the operator's INT32 form passes through binary32; these do not
        x = x if math.isinf(low) else g.add(Maxs(_scalar(x, low)), x)
        return node.elementwise(x if math.isinf(high) else g.add(Mins(_scalar(x, high)), x))
    return node.elementwise(clamp(g, x, low, high))


@onnx_op("HardSigmoid", since=1)
def hard_sigmoid(node: OnnxNode, g: Graph) -> Result:
    """clip(alpha * x + beta, 0, 1)."""
    x = emit.muls(g, _x(node), node.attr("alpha", 0.2))
    return node.elementwise(clamp(g, emit.adds(g, x, node.attr("beta", 0.5)), 0, 1))


@onnx_op("HardSwish", since=14)
def hard_swish(node: OnnxNode, g: Graph) -> Result:
    """``x * clip(x / 6 + 1/2, 0, 1)``."""
    x = _x(node)
    gate = clamp(g, emit.adds(g, emit.muls(g, x, 1 / 6), 0.5), 0, 1)
    return node.elementwise(emit.mul(g, x, gate))


def softplus_of(g: Graph, x: Value) -> Value:
    """max(x, 0) + ln(1 + exp(-|x|)), which cannot overflow."""
    small = emit.exp(g, emit.muls(g, emit.absolute(g, x), -1))
    return emit.add(g, emit.relu(g, x), emit.ln(g, emit.adds(g, small, 1)))


@onnx_op("Softplus", since=1)
def softplus(node: OnnxNode, g: Graph) -> Result:
    """ln(1 + exp(x))."""
    return node.elementwise(softplus_of(g, _x(node)))


@onnx_op("Softsign", since=1)
def softsign(node: OnnxNode, g: Graph) -> Result:
    """``x / (1 + |x|)``."""
    x = _x(node)
    return node.elementwise(emit.div(g, x, emit.adds(g, emit.absolute(g, x), 1)))


@onnx_op("Mish", since=18)
def mish(node: OnnxNode, g: Graph) -> Result:
    """``x * tanh(softplus(x))``."""
    x = _x(node)
    return node.elementwise(emit.mul(g, x, emit.tanh(g, softplus_of(g, x))))


@onnx_op("Swish", since=24)
def swish(node: OnnxNode, g: Graph) -> Result:
    """``x * sigmoid(alpha * x)``."""
    x, alpha = _x(node), node.attr("alpha", 1.0)
    gate = emit.sigmoid(g, x if alpha == 1.0 else emit.muls(g, x, alpha))
    return node.elementwise(emit.mul(g, x, gate))


def erf_of(g: Graph, x: Value) -> Value:
    """Error function by the polynomial of the recipe; absolute error below 1e-6.

    erf(x) = sign(x) * (1 - p(t) * exp(-x * x)) with t = 1 / (1 + 0.3275911 * |x|).
    """
    t = emit.rdivs(g, 1, emit.adds(g, emit.muls(g, emit.absolute(g, x), 0.3275911), 1))
    p = emit.muls(g, t, 1.061405429)
    for coefficient in (-1.453152027, 1.421413741, -0.284496736):
        p = emit.mul(g, emit.adds(g, p, coefficient), t)
    p = emit.mul(g, emit.adds(g, p, 0.254829592), t)
    tail = emit.exp(g, emit.muls(g, emit.square(g, x), -1))
    return emit.mul(g, sign_of(g, x), emit.rsubs(g, 1, emit.mul(g, p, tail)))


def sign_of(g: Graph, x: Value) -> Value:
    """1, 0 or -1."""
    zero = Scalar.f32(0)
    return emit.sub(g, g.add(Gts(zero), x), g.add(Lts(zero), x))


@onnx_op("Erf", since=9)
def erf(node: OnnxNode, g: Graph) -> Result:
    """Error function."""
    return node.elementwise(erf_of(g, _x(node)))


@onnx_op("Sign", since=9)
def sign(node: OnnxNode, g: Graph) -> Result:
    """1, 0 or -1."""
    x = node.input(0)
    return node.elementwise(emit.cast(g, sign_of(g, emit.as_float(g, x)), x.dtype))


@onnx_op("Gelu", since=20)
def gelu(node: OnnxNode, g: Graph) -> Result:
    """0.5 * x * (1 + erf(x / sqrt(2))), or the form with tanh."""
    approximate = node.choice("approximate", "none", ("none", "tanh")) == "tanh"
    return node.elementwise(gelu_of(g, _x(node), approximate))


def gelu_of(g: Graph, x: Value, approximate: bool) -> Value:
    """Gelu with erf, or with tanh."""
    if not approximate:
        inner = erf_of(g, emit.muls(g, x, math.sqrt(0.5)))
    else:
        cube = emit.mul(g, emit.square(g, x), x)
        inner = emit.tanh(g, emit.muls(g, emit.add(g, x, emit.muls(g, cube, 0.044715)), math.sqrt(2 / math.pi)))
    return emit.mul(g, emit.muls(g, x, 0.5), emit.adds(g, inner, 1))


def round_half_even(g: Graph, x: Value) -> Value:
    """Nearest integer, ties to even: floor, plus 1 above one half, plus 1 on a tie with an odd floor."""
    low = g.add(Floor(), x)
    rest = emit.sub(g, x, low)
    up = g.add(Gts(Scalar.f32(0.5)), rest)
    not_below = emit.rsubs(g, 1, g.add(Lts(Scalar.f32(0.5)), rest))
    tie = emit.sub(g, not_below, up)
    odd = emit.sub(g, low, emit.muls(g, g.add(Floor(), emit.muls(g, low, 0.5)), 2))
    return emit.add(g, emit.add(g, low, up), emit.mul(g, tie, odd))


@onnx_op("Round", since=11)
def round_(node: OnnxNode, g: Graph) -> Result:
    """Nearest integer, ties to even; the formula does not hold for infinities, which stay."""
    x = _x(node)
    is_infinite = g.add(Eqs(Scalar.f32(math.inf)), emit.absolute(g, x))
    return node.elementwise(g.add(ConditionSelect(), is_infinite, x, round_half_even(g, x)))


@onnx_op("ThresholdedRelu", since=10)
def thresholded_relu(node: OnnxNode, g: Graph) -> Result:
    """The input where it is above alpha, else 0."""
    x = _x(node)
    return node.elementwise(emit.mul(g, x, g.add(Gts(Scalar.f32(node.attr("alpha", 1.0))), x)))


@onnx_op("Shrink", since=9, limits="floating point")
def shrink(node: OnnxNode, g: Graph) -> Result:
    """``x + bias`` below -lambd, ``x - bias`` above lambd, else 0."""
    x, bias, limit = _x(node), node.attr("bias", 0.0), node.attr("lambd", 0.5)
    above, below = g.add(Gts(Scalar.f32(limit)), x), g.add(Lts(Scalar.f32(-limit)), x)
    parts = (emit.mul(g, emit.adds(g, x, -bias), above), emit.mul(g, emit.adds(g, x, bias), below))
    return node.elementwise(emit.add(g, *parts))


@onnx_op("Tan", since=7)
def tan(node: OnnxNode, g: Graph) -> Result:
    """sin(x) / cos(x)."""
    x = _x(node)
    return node.elementwise(emit.div(g, g.add(Sin(), x), g.add(Cos(), x)))


@onnx_op("Sinh", since=9)
def sinh(node: OnnxNode, g: Graph) -> Result:
    """(exp(x) - exp(-x)) / 2."""
    x = _x(node)
    difference = emit.sub(g, emit.exp(g, x), emit.exp(g, emit.muls(g, x, -1)))
    return node.elementwise(emit.muls(g, difference, 0.5))


@onnx_op("Cosh", since=9)
def cosh(node: OnnxNode, g: Graph) -> Result:
    """(exp(x) + exp(-x)) / 2."""
    x = _x(node)
    return node.elementwise(emit.muls(g, emit.add(g, emit.exp(g, x), emit.exp(g, emit.muls(g, x, -1))), 0.5))


@onnx_op("Asinh", since=9)
def asinh(node: OnnxNode, g: Graph) -> Result:
    """sign(x) * ln(|x| + sqrt(x * x + 1)); the absolute value keeps the digits of negative x."""
    x = _x(node)
    size = emit.absolute(g, x)
    inner = emit.add(g, size, emit.sqrt(g, emit.adds(g, emit.square(g, x), 1)))
    return node.elementwise(emit.mul(g, sign_of(g, x), emit.ln(g, inner)))


@onnx_op("Acosh", since=9)
def acosh(node: OnnxNode, g: Graph) -> Result:
    """ln(x + sqrt(x * x - 1))."""
    x = _x(node)
    return node.elementwise(emit.ln(g, emit.add(g, x, emit.sqrt(g, emit.adds(g, emit.square(g, x), -1)))))


@onnx_op("Atanh", since=9)
def atanh(node: OnnxNode, g: Graph) -> Result:
    """ln((1 + x) / (1 - x)) / 2."""
    x = _x(node)
    ratio = emit.div(g, emit.adds(g, x, 1), emit.rsubs(g, 1, x))
    return node.elementwise(emit.muls(g, emit.ln(g, ratio), 0.5))


@onnx_op("Identity", since=1, kind=Kind.FOLDED)
def identity(node: OnnxNode, _: Graph) -> OnnxTensor:
    """The input itself; no node is made."""
    return node.tensor(0)


@onnx_op("Dropout", since=1, kind=Kind.FOLDED, limits="inference")
def dropout(node: OnnxNode, _: Graph) -> list[OnnxTensor | Folded]:
    """The input itself: at inference nothing is dropped; the mask is all true."""
    if node.version < 7:
        node.refuse_attr("is_test", 1, "training is not supported: export the model for inference")
    node.optional_attr("ratio")
    node.optional_attr("seed")
    if node.has_input(1):
        node.tensor(1)  # the ratio does not matter
    if node.has_input(2) and node.scalar(2):
        raise node.fail(UNSUPPORTED_ATTRIBUTE, "training_mode is true", "export the model for inference")
    results: list[OnnxTensor | Folded] = [node.tensor(0)]
    if len(node.output_names) > 1:
        node.budget(node.shape(0), 1)
        kind = BOOL if node.version >= 10 else FLOAT
        results.append(Folded(np.ones(node.shape(0), kind.numpy), kind))
    return results
