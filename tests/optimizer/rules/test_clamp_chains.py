"""Merging of operators that clamp their operand."""

import math

import pytest

from tests.support.rules.graphs import EXP, OTHER_Q, RELU, TANH, Q, annotate, graph_of, optimize_checked, reasons
from tpuconvert.optimizer import optimize
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.arithmetic_with_scalar import Maxs, Mins
from tpuconvert.schema.ops.clamp import Clamp
from tpuconvert.schema.types import Scalar


def maxs(value):
    return Maxs(Scalar.f32(value))


def mins(value):
    return Mins(Scalar.f32(value))


def clamp(low, high):
    return Clamp(Scalar.f32(low), Scalar.f32(high))


@pytest.mark.parametrize(
    ("chain", "result"),
    [
        ((RELU, RELU), RELU),
        ((RELU, mins(6)), clamp(0, 6)),
        ((mins(6), RELU), clamp(0, 6)),
        ((maxs(-1), mins(1)), clamp(-1, 1)),
        ((clamp(-1, 1), RELU), clamp(0, 1)),
        ((clamp(-1, 1), clamp(-0.5, 2), mins(0.75)), clamp(-0.5, 0.75)),
        ((maxs(-2), maxs(-1)), maxs(-1)),
        ((mins(2), mins(1)), mins(1)),
        ((maxs(0),), RELU),
        ((clamp(0, math.inf), RELU), RELU),
    ],
    ids=str,
)
def test_fires(chain, result):
    def build(g, x):
        for op in chain:
            x = g.add(op, x)
        return x

    graph, _ = optimize_checked(build, (2, 50), rtol=0)
    assert [node.op for node in graph.nodes] == [result]


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda g, x: g.add(mins(-1), g.add(RELU, x)), "the intervals are disjoint"),
        (lambda g, x: (g.add(mins(1), y := g.add(RELU, x)), g.add(EXP, y)), "inner has other users"),
        (
            lambda g, x: annotate(g.add(mins(1), annotate(g.add(RELU, x))), OTHER_Q),
            "the source file quantizes the result of inner",
        ),
    ],
)
def test_declines(build, reason):
    graph, trace = optimize_checked(build, (2, 50), rtol=0)
    assert len(graph) >= 2
    assert reasons(trace, "merge_clamps") == {reason}


def test_merges_clamps_of_one_scale():
    graph = graph_of(lambda g, x: annotate(g.add(mins(1), annotate(g.add(RELU, x)))), (2, 5))
    optimize(graph)
    assert [node.op for node in graph.nodes] == [clamp(0, 1)] and graph.outputs[0].quant == Q


def test_declines_other_activations():
    graph, _ = optimize_checked(
        lambda g, x: g.add(RELU, g.add(TANH, g.add(Active(ActiveType.ACTIVE_SQUARE), x))), (2, 5)
    )
    assert len(graph) == 3
