"""Fusion of decomposed leaky ReLU and PReLU."""

import numpy as np
import pytest

from tests.support.rules.graphs import RELU, TANH, annotate, graph_of, ops, optimize_checked, reasons
from tpuconvert.optimizer import optimize
from tpuconvert.schema.ops.activation import ActiveParam, ActiveType
from tpuconvert.schema.ops.arithmetic import Add, Max, Mul
from tpuconvert.schema.ops.arithmetic_with_scalar import Maxs, Mins, Muls
from tpuconvert.schema.types import Scalar

SHAPE = (2, 3, 40)
ZERO = Scalar.f32(0)


def negative(g, x, slope=0.25):
    return g.add(Muls(Scalar.f32(slope)), g.add(Mins(ZERO), x))


FORMS = {
    "relu and min": lambda g, x: g.add(Add(), g.add(RELU, x), negative(g, x)),
    "min and max": lambda g, x: g.add(Add(), negative(g, x), g.add(Maxs(ZERO), x)),
    "slope as a constant": lambda g, x: g.add(
        Add(), g.add(RELU, x), g.add(Mul(), g.add(Mins(ZERO), x), g.constant(np.full((1, 3, 1), 0.25, np.float32)))
    ),
    "maximum": lambda g, x: g.add(Max(), x, g.add(Muls(Scalar.f32(0.25)), x)),
    "maximum, slope first": lambda g, x: g.add(Max(), g.add(Muls(Scalar.f32(0.25)), x), x),
}


@pytest.mark.parametrize("form", FORMS)
def test_fires(form):
    graph, _ = optimize_checked(FORMS[form], SHAPE, rtol=0)
    assert [node.op for node in graph.nodes] == [ActiveParam(ActiveType.ACTIVE_LEAKY_RELU, (0.25,))]


@pytest.mark.parametrize("slopes", [(0.25, -0.5, 1), (0.25, 0, 1), (0.25, 0.5, 2)], ids=str)
def test_fuses_per_channel_slopes_as_maximum(slopes):
    def build(g, x):
        factors = g.constant(np.array(slopes, np.float32).reshape(1, 3, 1))
        return g.add(Add(), g.add(RELU, x), g.add(Mul(), g.add(Mins(ZERO), x), factors))

    graph, trace = optimize_checked(build, SHAPE, rtol=0)
    if all(slope and slope <= 1 for slope in slopes):
        assert ops(graph) == ["mul", "max"]
    else:
        assert ops(graph) == ["active", "mins", "mul", "add"]
        assert reasons(trace, "fuse_prelu_as_max") == {"a slope is 0 or larger than 1"}


def test_declines_two_different_operands():
    graph, _ = optimize_checked(lambda g, x, y: g.add(Add(), g.add(RELU, x), negative(g, y)), SHAPE, SHAPE)
    assert len(graph) == 4


@pytest.mark.parametrize(
    ("build", "rule", "reason"),
    [
        (
            lambda g, x: g.add(Max(), x, g.add(Muls(Scalar.f32(1.5)), x)),
            "fuse_max_as_leaky_relu",
            "the slope is not between 0 and 1",
        ),
        (
            lambda g, x: (g.add(Add(), y := g.add(RELU, x), negative(g, x)), g.add(TANH, y)),
            "fuse_leaky_relu",
            "positive has other users",
        ),
    ],
)
def test_declines(build, rule, reason):
    _, trace = optimize_checked(build, SHAPE)
    assert reasons(trace, rule) == {reason}


def test_declines_a_quantized_inner_value():
    graph = graph_of(lambda g, x: g.add(Add(), annotate(g.add(RELU, x)), negative(g, x)), SHAPE)
    trace = optimize(graph)
    assert reasons(trace, "fuse_leaky_relu") == {"the source file quantizes the result of positive"}
