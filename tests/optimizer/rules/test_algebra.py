"""Arithmetic identities."""

import numpy as np
import pytest

from tests.support.rules.graphs import RELU, TANH, annotate, graph_of, ops, optimize_checked, reasons
from tpuconvert.optimizer import optimize
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.ops import formulas as f
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.arithmetic import Add, Max, Min, Mul, Sub
from tpuconvert.schema.ops.arithmetic_with_scalar import Adds, Maxs, Muls, Rdivs, Rsubs
from tpuconvert.schema.ops.cast import Cast
from tpuconvert.schema.ops.clamp import Clamp
from tpuconvert.schema.ops.quantization.round_to_integer import Ceil, Floor
from tpuconvert.schema.types import F32, I32, Scalar, TensorType

SHAPE = (2, 3, 5)
SQUARE, SQRT = Active(ActiveType.ACTIVE_SQUARE), Active(ActiveType.ACTIVE_SQRT)
RSQRT, ABS = Active(ActiveType.ACTIVE_RSQRT), Active(ActiveType.ACTIVE_ABSVAL)
SIGMOID = Active(ActiveType.ACTIVE_SIGMOID)


def s(number):
    return Scalar.f32(number)


def positive(g, x):
    return g.add(Adds(s(0.5)), g.add(SQUARE, x))


FIRES = {
    "x + x": (lambda g, x: g.add(Add(), x, x), [Muls(s(2))]),
    "x * x": (lambda g, x: g.add(Mul(), x, x), [SQUARE]),
    "max(x, x)": (lambda g, x: g.add(TANH, g.add(Max(), x, x)), [TANH]),
    "min(x, x)": (lambda g, x: g.add(TANH, g.add(Min(), x, x)), [TANH]),
    "3 - (1 - x)": (lambda g, x: g.add(Rsubs(s(3)), g.add(Rsubs(s(1)), x)), [Adds(s(2))]),
    "3 / (2 / x)": (lambda g, x: g.add(Rdivs(s(3)), g.add(Rdivs(s(2)), x)), [Muls(s(1.5))]),
    "tanh(x) + -x": (lambda g, x: g.add(Add(), g.add(TANH, x), g.add(Muls(s(-1)), x)), [TANH, Sub()]),
    "0 - x + tanh(x)": (lambda g, x: g.add(Add(), g.add(Rsubs(s(0)), x), g.add(TANH, x)), [TANH, Sub()]),
    "tanh(x) - -x": (lambda g, x: g.add(Sub(), g.add(TANH, x), g.add(Muls(s(-1)), x)), [TANH, Add()]),
    "sqrt(x^2)": (lambda g, x: g.add(SQRT, g.add(SQUARE, x)), [ABS]),
    "1 / sqrt(x)": (lambda g, x: g.add(Rdivs(s(1)), g.add(SQRT, positive(g, x))), [SQUARE, Adds(s(0.5)), RSQRT]),
    "relu(sigmoid(x))": (lambda g, x: g.add(RELU, g.add(SIGMOID, x)), [SIGMOID]),
    "max(x^2, -1)": (lambda g, x: g.add(Maxs(s(-1)), g.add(SQUARE, x)), [SQUARE]),
    "abs(relu(x))": (lambda g, x: g.add(ABS, g.add(RELU, x)), [RELU]),
    "floor(ceil(x))": (lambda g, x: g.add(Floor(), g.add(Ceil(), x)), [Ceil()]),
}


@pytest.mark.parametrize("form", FIRES)
def test_fires(form):
    build, expected = FIRES[form]
    graph, _ = optimize_checked(build, SHAPE)
    assert [node.op for node in graph.nodes] == expected


def test_fuses_a_reciprocal_into_a_division():
    graph, _ = optimize_checked(lambda g, x: g.add(Mul(), g.add(TANH, x), g.add(Rdivs(s(1)), positive(g, x))), SHAPE)
    assert "div" in ops(graph) and "rdivs" not in ops(graph) and "mul" not in ops(graph)


DECLINES = {
    "what is left": (
        lambda g, x: g.add(Rsubs(s(1)), g.add(Rsubs(s(1.0001)), x)),
        "merge_rsubs",
        "the constants nearly cancel, which may be meant to round",
    ),
    "too large": (
        lambda g, x: g.add(Rdivs(s(3e38)), g.add(Rdivs(s(1e-3)), x)),
        "merge_rdivs",
        "c / d is beyond the range of float32",
    ),
    "another dividend": (
        lambda g, x: g.add(Rdivs(s(2)), g.add(SQRT, positive(g, x))),
        "fuse_reciprocal_sqrt",
        "the dividend is not 1",
    ),
    "a root that is read": (
        lambda g, x: (g.add(SQRT, y := g.add(SQUARE, x)), g.add(TANH, y)),
        "replace_sqrt_of_square_by_abs",
        "square has other users",
    ),
}


@pytest.mark.parametrize("form", DECLINES)
def test_declines(form):
    build, rule, reason = DECLINES[form]
    _, trace = optimize_checked(build, SHAPE)
    assert reasons(trace, rule) == {reason}


def test_keeps_limits_that_have_an_effect():
    for build in (
        lambda g, x: g.add(Maxs(s(0.25)), g.add(SQUARE, x)),
        lambda g, x: g.add(Clamp(s(0), s(0.5)), g.add(SIGMOID, x)),
        lambda g, x: g.add(RELU, g.add(TANH, x)),
        lambda g, x: g.add(Floor(), g.add(TANH, x)),
    ):
        assert len(optimize_checked(build, SHAPE)[0]) == 2


def test_declines_another_scale():
    graph = graph_of(lambda g, x: annotate(g.add(RELU, g.add(SIGMOID, x))), SHAPE)
    trace = optimize(graph)
    assert reasons(trace, "remove_redundant_activation") == {"it changes the quantization"}


def test_root_of_square_does_not_overflow():
    graph = graph_of(lambda g, x: f.mul(g, g.add(SQRT, g.add(SQUARE, x)), x), (1, 2))
    optimize(graph)
    assert graph.nodes[0].op == ABS
    assert np.isfinite(graph.nodes[0].op.evaluate(np.array([[1e30, -1e-30]], np.float32))[0]).all()


def test_folds_integers_times_zero():
    """Exporters compute zeros of a given shape like this. For floats, 0 * NaN is NaN."""

    def build(g, x):
        zeros = g.add(Cast(F32), g.add(Muls(Scalar(I32, 0)), g.add(Cast(I32), x)))
        return g.add(Add(), x, zeros), g.add(Muls(s(0)), x)

    graph, trace = optimize_checked(build, SHAPE, rtol=0)
    assert ops(graph).count("muls") == 1 and "cast" not in ops(graph)
    assert trace.fired["fold_integer_multiply_by_zero"] == 1


def test_keeps_zeros_that_are_graph_outputs():
    graph = Graph("test")
    graph.output(graph.add(Muls(Scalar(I32, 0)), graph.input("x", TensorType(I32, SHAPE))))
    trace = optimize(graph)
    assert ops(graph) == ["muls"]
    assert len(reasons(trace, "fold_integer_multiply_by_zero")) == 1
