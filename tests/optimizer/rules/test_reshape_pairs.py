"""Unary operators between reshapes."""

import pytest

from tests.support.rules.graphs import RELU, TANH, annotate, graph_of, ops, optimize_checked, reasons
from tpuconvert.optimizer import optimize
from tpuconvert.schema.ops.arithmetic_with_scalar import Muls
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.ops.softmax import Softmax
from tpuconvert.schema.types import Scalar

SHAPE = (2, 3, 4)


def between(*operators, back=SHAPE):
    def build(g, x):
        y = g.add(Reshape((6, 4, 1, 1)), g.add(TANH, x))
        for index, op in enumerate(operators):
            y = g.add(op, y, name=f"y{index}")
        return g.add(Reshape(back), y, name="z")

    return build


@pytest.mark.parametrize("operators", [(RELU,), (RELU, Muls(Scalar.f32(2)), TANH)], ids=len)
def test_fires(operators):
    graph, _ = optimize_checked(between(*operators), SHAPE, rtol=0)
    assert "reshape" not in ops(graph) and graph.outputs[0].name == "z"


def test_keeps_one_reshape_for_another_shape():
    assert ops(optimize_checked(between(RELU, back=(24,)), SHAPE, rtol=0)[0]) == ["active", "active", "reshape"]


def test_declines_other_operators():
    assert ops(optimize_checked(between(RELU, Softmax(0)), SHAPE)[0]).count("reshape") == 2


def test_declines_inner_graph_outputs():
    def build(g, x):
        y = g.add(RELU, g.add(Reshape((6, 4)), g.add(TANH, x)))
        return g.add(Reshape(SHAPE), g.add(TANH, y)), y

    _, trace = optimize_checked(build, SHAPE, rtol=0)
    assert trace.fired["hoist_unary_chain_above_reshape"] == 0


def test_declines_a_quantized_value():
    def build(g, x):
        return g.add(Reshape(SHAPE), annotate(g.add(RELU, g.add(Reshape((6, 4)), g.add(TANH, x)))))

    graph = graph_of(build, SHAPE)
    trace = optimize(graph)
    assert ops(graph).count("reshape") == 2 and not reasons(trace, "hoist_unary_chain_above_reshape")
