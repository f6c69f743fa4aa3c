"""Merging of constant operands."""

import numpy as np
import pytest

from tests.support.rules.graphs import RELU, annotate, graph_of, ops, optimize_checked, random_constant, reasons
from tpuconvert.optimizer import optimize
from tpuconvert.schema.ops.arithmetic import Add, Div, Max, Min, Mul, Sub
from tpuconvert.schema.ops.arithmetic_with_scalar import Adds, Divs, Maxs, Mins, Muls, Rsubs, Subs
from tpuconvert.schema.types import Scalar

SHAPE = (2, 3, 4)


def s(value):
    return Scalar.f32(value)


def chain(*operators):
    def build(g, x):
        for op in operators:
            x = g.add(op, x)
        return g.add(RELU, x)

    return build


@pytest.mark.parametrize(
    ("op", "first", "result"),
    [
        (Add(), False, Adds(s(3))),
        (Add(), True, Adds(s(3))),
        (Sub(), False, Subs(s(3))),
        (Sub(), True, Rsubs(s(3))),
        (Mul(), False, Muls(s(3))),
        (Div(), False, Divs(s(3))),
        (Max(), True, Maxs(s(3))),
        (Min(), False, Mins(s(3))),
    ],
    ids=str,
)
@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 3, 1)], ids=str)
def test_converts_uniform_constants_to_scalars(op, first, result, shape):
    def build(g, x):
        constant = g.constant(np.full(shape, 3, np.float32))
        return g.add(op, constant, x) if first else g.add(op, x, constant)

    graph, _ = optimize_checked(build, SHAPE, rtol=0)
    assert [node.op for node in graph.nodes] == [result]


@pytest.mark.parametrize(
    "build",
    [
        lambda g, x: g.add(Div(), g.constant(np.full((1, 1, 1), 3, np.float32)), x),
        lambda g, x: g.add(Div(), x, g.constant(np.array([2, -2, 2, 2], np.float32).reshape(1, 1, 4))),
    ],
    ids=["constant divided by x", "elements that differ"],
)
def test_others_stay(build):
    graph, _ = optimize_checked(build, SHAPE)
    assert ops(graph) == ["div"]


def test_keeps_a_constant_that_broadcasts_the_operand():
    graph, _ = optimize_checked(
        lambda g, x: g.add(Add(), x, g.constant(np.ones((5, 3, 4), np.float32))), (1, 3, 4), rtol=0
    )
    assert ops(graph) == ["add"]


def test_signed_zeros_differ():
    zeros = np.array([0.0, -0.0, 0.0, 0.0], np.float32).reshape(1, 1, 4)
    graph = graph_of(lambda g, x: g.add(Div(), x, g.constant(zeros)), SHAPE)
    optimize(graph)
    assert ops(graph) == ["div"]


@pytest.mark.parametrize(
    ("operators", "result"),
    [
        ((Muls(s(2)), Muls(s(3))), Muls(s(6))),
        ((Divs(s(2)), Muls(s(3))), Muls(s(1.5))),
        ((Divs(s(2)), Divs(s(4)), Divs(s(2))), Muls(s(0.0625))),
        ((Adds(s(2)), Adds(s(3))), Adds(s(5))),
        ((Subs(s(2)), Adds(s(3)), Subs(s(4))), Adds(s(-3))),
    ],
    ids=str,
)
def test_merges_scalars(operators, result):
    graph, _ = optimize_checked(chain(*operators), SHAPE)
    assert [node.op for node in graph.nodes] == [result, RELU]


@pytest.mark.parametrize(
    ("operators", "rule", "reason"),
    [
        (
            (Adds(s(12582912)), Subs(s(12582912))),
            "merge_scalar_adds",
            "the constants nearly cancel, which may be meant to round",
        ),
        (
            (Muls(s(1e30)), Muls(s(1e30))),
            "merge_scalar_multiplies",
            "the product of the factors is beyond the range of float32",
        ),
        (
            (Muls(s(1e-30)), Divs(s(1e30))),
            "merge_scalar_multiplies",
            "the product of the factors is beyond the range of float32",
        ),
    ],
)
def test_scalars_decline(operators, rule, reason):
    graph = graph_of(chain(*operators), SHAPE)
    trace = optimize(graph)
    assert len(graph) == 3
    assert reasons(trace, rule) == {reason}


def test_keeps_scalars_around_a_quantized_value():
    graph = graph_of(lambda g, x: g.add(Muls(s(2)), annotate(g.add(Muls(s(2)), x))), SHAPE)
    trace = optimize(graph)
    assert reasons(trace, "merge_scalar_multiplies") == {"the source file quantizes the result of first"}


@pytest.mark.parametrize("op", [Add(), Mul()], ids=str)
def test_merges_constant_operands(op):
    def build(g, x):
        y = g.add(op, random_constant(g, 1, 3, 1, seed=1), x)
        return g.add(op, y, random_constant(g, 2, 3, 1, seed=2))

    graph, _ = optimize_checked(build, SHAPE)
    assert ops(graph) == [op.name]


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        (lambda g: random_constant(g, 1, 1, 4), "the merged constant would be larger than both"),
        (lambda g: g.constant(-random_constant(g, 1, 3, 1, seed=1).array), "the merged constant loses precision"),
    ],
)
def test_constants_decline(second, reason):
    def build(g, x):
        return g.add(Add(), g.add(Add(), x, random_constant(g, 1, 3, 1, seed=1)), second(g))

    graph, trace = optimize_checked(build, SHAPE)
    assert ops(graph) == ["add", "add"] and reasons(trace, "merge_constants") == {reason}


@pytest.mark.parametrize(
    ("scalar", "op", "expected"),
    [(Muls, Mul, 0.5), (Divs, Mul, 2.0), (Adds, Add, None), (Subs, Add, None)],
)
@pytest.mark.parametrize("scalar_first", [True, False])
def test_folds_a_scalar_into_a_constant(scalar, op, expected, scalar_first):
    number = scalar(Scalar.f32(0.5))

    def build(g, x):
        c = random_constant(g, 1, 3, 1, name="c")
        return g.add(op(), g.add(number, x), c) if scalar_first else g.add(number, g.add(op(), x, c))

    graph, _ = optimize_checked(build, (2, 3, 4))
    (node,) = graph.nodes
    assert type(node.op) is op
    if expected is not None:
        want = random_constant(graph, 1, 3, 1).array * expected
        assert (node.inputs[1].array == want).all()


def test_keeps_a_scalar_that_cancels_a_constant():
    def build(g, x):
        c = g.constant(np.array([1, 2, 3.00001], np.float32).reshape(1, 3, 1))
        return g.add(Add(), g.add(Subs(Scalar.f32(3)), x), c)

    graph, trace = optimize_checked(build, (2, 3, 4))
    assert len(graph) == 2
    assert reasons(trace, "fold_scalar_into_constant") == {"the merged constant loses precision"}
