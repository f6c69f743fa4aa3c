"""Recognition of decomposed activations."""

import math

import numpy as np
import pytest

from tests.support.rules.graphs import Q, annotate, graph_of, ops, optimize_checked, random_constant, reasons
from tpuconvert.optimizer import optimize
from tpuconvert.schema.ops import formulas as f
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.arithmetic import Add, Div, Mul
from tpuconvert.schema.ops.arithmetic_with_scalar import Divs, Rdivs
from tpuconvert.schema.ops.convolution.conv import Conv
from tpuconvert.schema.ops.smooth_activation import Gelu, GeluForm, HardSigmoid, HardSwish, Mish, Silu, Softplus
from tpuconvert.schema.types import Scalar

SHAPE = (2, 3, 5, 7)
RULE = "recognize_activation"
ROOT = math.sqrt(0.5)


def erf_of_tflite(g, x):
    """erf with the operands of its multiplies reversed, and the square of the absolute value."""
    a = f.absolute(g, x)
    t = g.add(Rdivs(Scalar.f32(1)), f.adds(g, f.muls(g, a, 0.3275911), 1))
    p = f.muls(g, t, 1.061405429)
    for coefficient in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        p = f.mul(g, t, f.adds(g, p, coefficient))
    tail = f.exp(g, f.muls(g, f.square(g, a), -1))
    return f.mul(g, f.sign(g, x), f.rsubs(g, 1, f.mul(g, p, tail)))


def one_plus_erf(g, x):
    return f.adds(g, f.erf(g, f.muls(g, x, ROOT)), 1)


def tanh_of_gelu(g, x, cube=None):
    cube = f.mul(g, f.square(g, x), x) if cube is None else cube
    return f.tanh(g, f.muls(g, f.add(g, x, f.muls(g, cube, 0.044715)), math.sqrt(2 / math.pi)))


def relu6(g, x):
    return f.clamp(g, f.adds(g, x, 3), 0, 6)


def logarithm_of_exponential(g, x):
    return f.ln(g, f.adds(g, f.exp(g, x), 1))


FORMS = {
    "x sigmoid(x)": (lambda g, x: f.mul(g, x, f.sigmoid(g, x)), Silu()),
    "sigmoid(x) x": (lambda g, x: f.mul(g, f.sigmoid(g, x), x), Silu()),
    "x / (1 + exp(-x))": (lambda g, x: f.div(g, x, f.adds(g, f.exp(g, f.muls(g, x, -1)), 1)), Silu()),
    "x sigmoid(1.702 x)": (
        lambda g, x: f.mul(g, x, f.sigmoid(g, f.muls(g, x, 1.702))),
        Silu(float(np.float32(1.702))),
    ),
    "x relu6(x + 3) / 6": (lambda g, x: g.add(Divs(Scalar.f32(6)), f.mul(g, x, relu6(g, x))), HardSwish()),
    "x (relu6(x + 3) / 6)": (lambda g, x: f.mul(g, x, f.muls(g, relu6(g, x), 1 / 6)), HardSwish()),
    "x hard_sigmoid": (lambda g, x: f.mul(g, x, g.add(HardSigmoid(1 / 6, 0.5), x)), HardSwish()),
    "x clamp(x / 6 + 1/2)": (lambda g, x: HardSwish().expand(g, x)[0], HardSwish()),
    "gelu x/2 (1 + erf)": (lambda g, x: Gelu().expand(g, x)[0], Gelu()),
    "gelu (x (1 + erf)) / 2": (lambda g, x: f.muls(g, f.mul(g, x, one_plus_erf(g, x)), 0.5), Gelu()),
    "gelu x ((1 + erf) / 2)": (lambda g, x: f.mul(g, f.muls(g, one_plus_erf(g, x), 0.5), x), Gelu()),
    "gelu x (erf / 2 + 1/2)": (
        lambda g, x: f.mul(g, x, f.adds(g, f.muls(g, f.erf(g, f.muls(g, x, ROOT)), 0.5), 0.5)),
        Gelu(),
    ),
    "gelu by a quotient": (
        lambda g, x: f.muls(
            g, f.mul(g, x, f.adds(g, erf_of_tflite(g, g.add(Divs(Scalar.f32(math.sqrt(2))), x)), 1)), 0.5
        ),
        Gelu(),
    ),
    "gelu tanh": (lambda g, x: Gelu(GeluForm.TANH).expand(g, x)[0], Gelu(GeluForm.TANH)),
    "gelu tanh, x x x": (
        lambda g, x: f.muls(g, f.mul(g, x, f.adds(g, tanh_of_gelu(g, x, f.mul(g, f.mul(g, x, x), x)), 1)), 0.5),
        Gelu(GeluForm.TANH),
    ),
    "gelu tanh, the factor first": (
        lambda g, x: f.mul(g, f.muls(g, f.adds(g, tanh_of_gelu(g, x), 1), 0.5), x),
        Gelu(GeluForm.TANH),
    ),
    "softplus ln(1 + exp(x))": (logarithm_of_exponential, Softplus()),
    "softplus without overflow": (f.softplus, Softplus()),
    "mish": (lambda g, x: f.mul(g, x, f.tanh(g, logarithm_of_exponential(g, x))), Mish()),
    "mish without overflow": (lambda g, x: Mish().expand(g, x)[0], Mish()),
}


@pytest.mark.parametrize("form", FORMS)
def test_fires(form):
    build, wanted = FORMS[form]
    graph, _ = optimize_checked(build, SHAPE, rtol=2e-6)
    assert [node.op for node in graph.nodes] == [wanted]


def test_fires_after_a_conv_and_other_activations():
    def build(g, x):
        y = f.tanh(g, f.muls(g, g.add(Conv(), x, random_constant(g, 4, 3, 1, 1)), 2))
        return f.mul(g, y, f.sigmoid(g, y))

    assert ops(optimize_checked(build, SHAPE, rtol=2e-6)[0]) == ["conv", "active", "silu"]


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda g, x: f.mul(g, x, f.tanh(g, x)), "no known function of one value"),
        (lambda g, x: f.mul(g, x, f.sigmoid(g, f.adds(g, x, 0.001))), "no known function of one value"),
        (lambda g, x: (f.mul(g, x, s := f.sigmoid(g, x)), s), "an inner value has other users"),
        (lambda g, x: (f.mul(g, x, s := f.sigmoid(g, x)), f.square(g, s)), "an inner value has other users"),
    ],
)
def test_declines(build, reason):
    _, trace = optimize_checked(build, SHAPE)
    assert reasons(trace, RULE) == {reason}
    assert not trace.fired[RULE]


def test_declines_a_function_of_two_values():
    graph, trace = optimize_checked(lambda g, x, y: f.mul(g, x, f.sigmoid(g, y)), SHAPE, SHAPE)
    assert ops(graph) == ["active", "mul"]
    assert not trace.fired[RULE]


def test_declines_a_per_channel_scale():
    def build(g, x):
        return f.mul(g, x, f.sigmoid(g, g.add(Mul(), x, random_constant(g, 1, 3, 1, 1))))

    assert ops(optimize_checked(build, SHAPE)[0]) == ["mul", "active", "mul"]


def test_declines_a_gate_of_another_shape():
    def build(g, x, y):
        return g.add(Mul(), x, g.add(Active(ActiveType.ACTIVE_SIGMOID), y))

    assert ops(optimize_checked(build, SHAPE, (2, 3, 1, 1))[0]) == ["active", "mul"]


def test_declines_a_quantized_inner_value():
    graph = graph_of(lambda g, x: f.mul(g, x, annotate(f.sigmoid(g, x))), SHAPE)
    trace = optimize(graph)
    assert ops(graph) == ["active", "mul"]
    assert reasons(trace, RULE) == {"the source file quantizes an inner value"}


def test_keeps_annotations_of_operand_and_result():
    def build(g, x):
        x.quant = Q
        return annotate(f.mul(g, x, f.sigmoid(g, x)))

    graph = graph_of(build, SHAPE)
    optimize(graph)
    assert ops(graph) == ["silu"]
    assert graph.outputs[0].quant == Q
    assert graph.inputs[0].quant == Q


def test_keeps_the_sources_of_all_nodes():
    from tpuconvert.schema.graph.graph import Source

    def build(g, x):
        with g.source(Source("m.onnx", "s", "Sigmoid")):
            gate = f.sigmoid(g, x)
        with g.source(Source("m.onnx", "m", "Mul")):
            return f.mul(g, x, gate)

    graph = graph_of(build, SHAPE)
    optimize(graph)
    assert [source.node for source in graph.nodes[0].sources] == ["s", "m"]


def test_terminates_on_a_long_sum_of_functions_of_one_value():
    def build(g, x):
        y = x
        for number in range(60):
            y = g.add(Add() if number % 2 else Div(), f.tanh(g, y), f.adds(g, f.square(g, y), 1.5))
        return y

    optimize_checked(build, (4, 4), rtol=1e-4)
