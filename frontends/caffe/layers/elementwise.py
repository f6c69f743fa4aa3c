"""Element-wise layers of several tensors, and layers with a scale, bias, power, exponential or logarithm."""

import math

from tpuconvert.frontends import emit, powers
from tpuconvert.frontends.caffe.arithmetic import scale_by, shift_by
from tpuconvert.frontends.caffe.fillers import CONSTANT, Filler, filler_of
from tpuconvert.frontends.caffe.node import CaffeNode, caffe_op
from tpuconvert.frontends.caffe.parameters import Parameters
from tpuconvert.frontends.registry import Kind
from tpuconvert.schema.definition.op import Op
from tpuconvert.schema.errors import INVALID_NODE
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops import formulas
from tpuconvert.schema.ops.arithmetic import Add, Max, Min, Mul
from tpuconvert.schema.types import format_shape


@caffe_op("Eltwise", kind=Kind.DIRECT)
def eltwise(node: CaffeNode, g: Graph) -> Value:
    """Element-wise product, weighted sum or maximum of two or more tensors of equal shape."""
    p = node.params("eltwise_param")
    operation, factors = p.choice("operation"), p.floats("coeff")
    if factors and operation == "PROD":
        raise node.fail("coeff has a meaning for SUM only, not for PROD")
    if factors and operation == "MAX":
        node.notes.append(f"layer '{node.name}' (Eltwise) ignores coeff with MAX, as Caffe does")
    if factors and len(factors) != node.input_count:
        raise node.fail(f"{len(factors)} coeff for {node.input_count} bottoms", kind=INVALID_NODE)
    operators: dict[str, Op] = {"PROD": Mul(), "SUM": Add(), "MAX": Max()}
    terms = node.inputs
    if factors and operation == "SUM":
        terms = tuple(scale_by(g, x, factor) for x, factor in zip(terms, factors, strict=True))
    return _chain(node, g, operators[operation], terms)


@caffe_op("Maximum", "Minimum", kind=Kind.DIRECT)
def extreme(node: CaffeNode, g: Graph) -> Value:
    """Element-wise maximum or minimum of two or more tensors of equal shape."""
    return _chain(node, g, Max() if node.type == "Maximum" else Min(), node.inputs)


def _chain(node: CaffeNode, g: Graph, op: Op, terms: tuple[Value, ...]) -> Value:
    if len(terms) < 2:
        raise node.fail(f"has {len(terms)} bottoms, needs two or more", kind=INVALID_NODE)
    result = terms[0]
    for term in terms[1:]:
        if term.shape != result.shape:
            shapes = f"{format_shape(result.shape)} and {format_shape(term.shape)}"
            raise node.fail(f"its bottoms have the shapes {shapes}, which must be equal", kind=INVALID_NODE)
        result = g.add(op, result, term)
    return result


@caffe_op("Scale", kind=Kind.DIRECT)
def scale(node: CaffeNode, g: Graph) -> Value:
    """``x * scale + bias``, the bias being optional; the scale is learned or the second bottom, and is broadcast."""
    p = node.params("scale_param")
    extents, aligned = _broadcast_extents(node, p)
    one = filler_of(p, "filler", Filler(CONSTANT, 1.0))
    y = g.add(Mul(), node.input(0), _second_operand(node, g, extents, aligned, "scale", one))
    if not p.flag("bias_term"):
        return y
    zero = filler_of(p, "bias_filler", Filler(CONSTANT))
    learned = node.weight(0 if node.input_count > 1 else 1, extents, "bias", zero)
    return g.add(Add(), y, node.constant(learned.reshape(aligned), "bias"))


@caffe_op("Bias", kind=Kind.DIRECT)
def bias(node: CaffeNode, g: Graph) -> Value:
    """``x + bias``; the bias is learned or the second bottom, and is broadcast."""
    p = node.params("bias_param")
    extents, aligned = _broadcast_extents(node, p)
    zero = filler_of(p, "filler", Filler(CONSTANT))
    return g.add(Add(), node.input(0), _second_operand(node, g, extents, aligned, "bias", zero))


def _second_operand(
    node: CaffeNode, g: Graph, extents: tuple[int, ...], aligned: tuple[int, ...], what: str, filler: Filler | None
) -> Value:
    """Return the second bottom if the layer has one, otherwise a learned tensor."""
    if node.input_count > 1:
        return emit.reshape(g, node.input(1), aligned)
    return node.constant(node.weight(0, extents, what, filler).reshape(aligned), what)


def _broadcast_extents(node: CaffeNode, p: Parameters) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shape of the second operand, and this shape extended by unit axes to the rank of the first bottom."""
    shape = node.shape(0)
    axis, count = p.whole("axis"), p.whole("num_axes")
    start, extents = 0, tuple[int, ...]()
    if node.input_count > 1 and node.shape(1) != (1,):
        extents = node.shape(1)
        start = 0 if axis == 0 else node.axis(axis, len(shape))
    elif node.input_count == 1 and count != 0:
        start = node.axis(axis, len(shape))
        extents = shape[start:] if count < 0 else shape[start : start + count]
        if count > len(extents):
            raise node.fail(f"num_axes {count} from axis {start} goes beyond {list(shape)}", kind=INVALID_NODE)
    covered = shape[start : start + len(extents)]
    if len(covered) != len(extents) or any(a not in (b, 1) for a, b in zip(extents, covered, strict=True)):
        text = f"a tensor of shape {list(extents)} does not fit {list(shape)} from axis {start} on"
        raise node.fail(text, kind=INVALID_NODE)
    return extents, (*(1,) * start, *extents, *(1,) * (len(shape) - start - len(extents)))


@caffe_op("Axpy")
def axpy(node: CaffeNode, g: Graph) -> Value:
    """``scale * x + y`` with one scale per image and channel."""
    channels, x = node.shape(0), node.shape(1)
    if len(x) < 2 or channels[:2] != x[:2] or any(extent != 1 for extent in channels[2:]):
        raise node.fail(f"a scale of shape {list(channels)} does not fit {list(x)}", kind=INVALID_NODE)
    factor = emit.reshape(g, node.input(0), (*x[:2], *(1,) * (len(x) - 2)))
    return g.add(Add(), g.add(Mul(), node.input(1), factor), node.input(2))


@caffe_op("Power")
def power_layer(node: CaffeNode, g: Graph) -> Value:
    """``(shift + scale * x) ** power``."""
    p = node.params("power_param")
    x = shift_by(g, scale_by(g, node.input(0), p.number("scale")), p.number("shift"))
    return powers.constant_power(g, x, p.number("power"))


@caffe_op("Exp")
def exp(node: CaffeNode, g: Graph) -> Value:
    """``base ** (shift + scale * x)``; the default base is e."""
    p = node.params("exp_param")
    log_base = _log_of_base(node, p)
    x = scale_by(g, node.input(0), p.number("scale") * log_base)
    return formulas.exp(g, shift_by(g, x, p.number("shift") * log_base))


@caffe_op("Log")
def log(node: CaffeNode, g: Graph) -> Value:
    """Logarithm of ``shift + scale * x`` to a base; the default base is e."""
    p = node.params("log_param")
    log_base = _log_of_base(node, p)
    x = shift_by(g, scale_by(g, node.input(0), p.number("scale")), p.number("shift"))
    return scale_by(g, formulas.ln(g, x), 1 / log_base)


def _log_of_base(node: CaffeNode, p: Parameters) -> float:
    base = p.number("base")
    if base == -1:
        return 1.0
    if not base > 0 or base == 1:
        raise node.fail(f"base: {base:g}", "the base must be positive and not 1", INVALID_NODE)
    return math.log(base)
