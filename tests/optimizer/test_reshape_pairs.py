"""Reshapes around functions of one element."""

import pytest
from optimizer.graphs import RELU, TANH, annotated, graph_of, ops, optimized, reasons

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
    graph, _ = optimized(between(*operators), SHAPE, rtol=0)
    assert "reshape" not in ops(graph) and graph.outputs[0].name == "z"


def test_one_reshape_is_left_for_another_shape():
    assert ops(optimized(between(RELU, back=(24,)), SHAPE, rtol=0)[0]) == ["active", "active", "reshape"]


def test_other_operators_are_left():
    assert ops(optimized(between(RELU, Softmax(0)), SHAPE)[0]).count("reshape") == 2


def test_declines_when_a_value_leaves_the_graph():
    def build(g, x):
        y = g.add(RELU, g.add(Reshape((6, 4)), g.add(TANH, x)))
        return g.add(Reshape(SHAPE), g.add(TANH, y)), y

    _, trace = optimized(build, SHAPE, rtol=0)
    assert trace.fired["hoist_unary_chain_above_reshape"] == 0


def test_declines_over_a_grid():
    def build(g, x):
        return g.add(Reshape(SHAPE), annotated(g.add(RELU, g.add(Reshape((6, 4)), g.add(TANH, x)))))

    graph = graph_of(build, SHAPE)
    trace = optimize(graph)
    assert ops(graph).count("reshape") == 2 and not reasons(trace, "hoist_unary_chain_above_reshape")
