"""Rules keep the operators that a quantized TFLite file computes in integers: each rounds in its own way."""

import pytest

from tests.support.rules.graphs import OTHER_Q, RELU, Q, graph_of
from tpuconvert.optimizer import optimize
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.arithmetic import Add, Div, Max, Mul
from tpuconvert.schema.ops.arithmetic_with_scalar import Muls
from tpuconvert.schema.ops.clamp import Clamp
from tpuconvert.schema.ops.copy import Copy
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.types import Scalar

SHAPE = (2, 3, 5)


def two(g, op, x):
    """An operator on x twice, with a fused clamp: the value between them has no annotation."""
    return g.add(Clamp(Scalar.f32(0), Scalar.f32(6)), g.add(op, x, x))


FORMS = {
    "x + x": (lambda g, x: g.add(Add(), x, x), ["add"]),
    "clamp(x + x)": (lambda g, x: two(g, Add(), x), ["add", "clamp"]),
    "x * x": (lambda g, x: g.add(Mul(), x, x), ["mul"]),
    "clamp(x * x)": (lambda g, x: two(g, Mul(), x), ["mul", "clamp"]),
    "max(x, x)": (lambda g, x: g.add(Max(), x, x), ["max"]),
    "1 * x": (lambda g, x: g.add(Muls(Scalar.f32(1)), x), ["muls"]),
    "x / sqrt(x)": (lambda g, x: g.add(Div(), x, g.add(Active(ActiveType.ACTIVE_SQRT), x)), ["active", "div"]),
}


def quantized(build, rescale):
    """The optimized graph of a quantized source."""
    graph = graph_of(build, SHAPE)
    graph.rescale = rescale
    graph.inputs[0].quant = Q
    graph.outputs[0].quant = Q
    optimize(graph)
    return graph


@pytest.mark.parametrize("rescale", ["tflite", "tflite-single"])
@pytest.mark.parametrize("form", FORMS)
def test_keeps_kernels(form, rescale):
    build, operators = FORMS[form]
    assert [node.op.name for node in quantized(build, rescale).nodes] == operators


@pytest.mark.parametrize("form", ["x + x", "x * x", "max(x, x)"])
def test_replaces_the_operators_of_float_sources(form):
    build, operators = FORMS[form]
    assert [node.op.name for node in quantized(build, "").nodes] != operators


def test_keeps_a_dequantization_before_data_movement():
    """Merged with the quantization, it would become a rescale of integers, which rounds differently."""

    def build(g, x):
        return g.add(Copy(), g.add(Reshape(reshape_param=(5, 6)), g.add(Copy(), x)))

    graph = graph_of(build, SHAPE)
    graph.rescale = "tflite"
    graph.inputs[0].quant, graph.outputs[0].quant = Q, OTHER_Q
    optimize(graph)
    dequantized = graph.nodes[0].output
    assert isinstance(graph.nodes[0].op, Copy) and dequantized.quant is None
    assert graph.outputs[0].producer is not graph.nodes[0]


def test_moves_data_around_kernels():
    """Data movement may still be merged and moved."""

    def build(g, x):
        moved = g.add(Permute(order=(2, 0, 1)), x)
        moved.quant = Q
        active = g.add(RELU, moved)
        active.quant = Q
        return g.add(Permute(order=(1, 2, 0)), active)

    assert [node.op.name for node in quantized(build, "tflite").nodes] == ["active"]
