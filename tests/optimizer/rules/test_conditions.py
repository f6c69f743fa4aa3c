"""Comparisons with 0 and selections."""

import numpy as np
import pytest

from tests.support.rules.graphs import TANH, Q, annotate, graph_of, ops, optimize_checked, reasons
from tpuconvert.optimizer import optimize
from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.graph.graph import Graph, Port
from tpuconvert.schema.ops.arithmetic import Max, Min, Mul
from tpuconvert.schema.ops.arithmetic_with_scalar import Adds, Rsubs, Subs
from tpuconvert.schema.ops.compare import Eq, Eqs, Ge, Gts, Lts, Ne, Nes
from tpuconvert.schema.ops.quantization.round_to_integer import Round
from tpuconvert.schema.ops.selection import ConditionSelect
from tpuconvert.schema.types import F32, Scalar, TensorType

SHAPE = (2, 3, 5)
ZERO, ONE = Scalar.f32(0), Scalar.f32(1)
IS_ZERO, IS_NOT_ZERO, IS_POSITIVE = Eqs(ZERO), Nes(ZERO), Gts(ZERO)
CHOOSE = ConditionSelect()


def number(g, value):
    return g.constant(np.full(1, value, np.float32))


FIRES = {
    "(x > 0) != 0": (lambda g, x: g.add(IS_NOT_ZERO, g.add(IS_POSITIVE, x)), [IS_POSITIVE]),
    "((x > 0) and (x < 1)) != 0": (
        lambda g, x: g.add(IS_NOT_ZERO, g.add(Mul(), g.add(IS_POSITIVE, x), g.add(Lts(ONE), x))),
        [IS_POSITIVE, Lts(ONE), Mul()],
    ),
    "(x == 1) == 0": (lambda g, x: g.add(IS_ZERO, g.add(Eqs(ONE), x)), [Nes(ONE)]),
    "(x != 1) == 0": (lambda g, x: g.add(IS_ZERO, g.add(Nes(ONE), x)), [Eqs(ONE)]),
    "(x == tanh(x)) == 0": (lambda g, x: g.add(IS_ZERO, g.add(Eq(), x, g.add(TANH, x))), [TANH, Ne()]),
    "(x != tanh(x)) == 0": (lambda g, x: g.add(IS_ZERO, g.add(Ne(), x, g.add(TANH, x))), [TANH, Eq()]),
    "1 - x == 0": (lambda g, x: g.add(IS_ZERO, g.add(Rsubs(ONE), g.add(Round(), x))), [Round(), Eqs(ONE)]),
    "x - 1 != 0": (lambda g, x: g.add(IS_NOT_ZERO, g.add(Subs(ONE), g.add(Round(), x))), [Round(), Nes(ONE)]),
    "x + 1 == 0": (
        lambda g, x: g.add(IS_ZERO, g.add(Adds(ONE), g.add(Round(), x))),
        [Round(), Eqs(Scalar.f32(-1))],
    ),
    "not (x > 0) ? 1 : tanh(x)": (
        lambda g, x: g.add(CHOOSE, g.add(IS_ZERO, g.add(IS_POSITIVE, x)), number(g, 1), g.add(TANH, x)),
        [IS_POSITIVE, TANH, CHOOSE],
    ),
}


@pytest.mark.parametrize("form", FIRES)
def test_fires(form):
    build, expected = FIRES[form]
    graph, _ = optimize_checked(build, SHAPE, rtol=0)
    assert [node.op for node in graph.nodes] == expected


@pytest.mark.parametrize("kind", [Eqs, Nes])
def test_replaces_a_branch_that_is_zero(kind):
    def build(g, x):
        rounded = g.add(Round(), x)
        choices = (number(g, -1e4), rounded) if kind is Nes else (rounded, number(g, -1e4))
        return g.add(CHOOSE, g.add(kind(ZERO), rounded), *choices)

    graph, _ = optimize_checked(build, SHAPE, rtol=0)
    assert ops(graph)[-1] == "condition_select" and all(value.is_constant for value in graph.nodes[-1].inputs[1:])


def test_boolean_inputs_are_boolean_values():
    """A Boolean input of the model contains 0 and 1 only."""
    graph = Graph("test")
    mask = graph.input("mask", TensorType(F32, SHAPE), Port("mask", "bool", SHAPE))
    graph.output(graph.add(CHOOSE, graph.add(IS_ZERO, mask), number(graph, 1), number(graph, -1)), None)
    feeds = {"mask": np.random.default_rng(0).random(SHAPE) > 0.5}
    want = Session(graph, backend="reference").run(feeds)
    optimize(graph)
    assert ops(graph) == ["condition_select"]
    for name, found in Session(graph, backend="reference").run(feeds).items():
        np.testing.assert_array_equal(found, want[name])


def test_nan_is_not_equal():
    """Checked for all rules, together with infinities and zeros of both signs."""

    def build(g, x):
        inverted = g.add(Rsubs(ONE), x)
        differs = g.add(IS_NOT_ZERO, inverted)
        return (
            g.add(CHOOSE, differs, number(g, -7), inverted),
            g.add(IS_ZERO, g.add(Eqs(ONE), x)),
            g.add(CHOOSE, g.add(IS_ZERO, g.add(IS_POSITIVE, x)), number(g, 1), number(g, 2)),
        )

    x = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, 1.0 + 2**-23, 2.0**-149], np.float32)
    graphs = [graph_of(build, x.shape), graph_of(build, x.shape)]
    optimize(graphs[1])
    want, found = (list(Session(graph, backend="reference").run({"x0": x}).values()) for graph in graphs)
    for first, second in zip(want, found, strict=True):
        np.testing.assert_array_equal(first, second)


DECLINES = {
    "remove_boolean_test": (
        lambda g, x: g.add(IS_NOT_ZERO, g.add(Max(), g.add(IS_POSITIVE, x), g.add(TANH, x))),
        "its operand may differ from 0 and 1",
    ),
    "swap_select_branches": (
        lambda g, x: g.add(CHOOSE, g.add(IS_ZERO, g.add(Round(), x)), g.add(TANH, x), x),
        "its condition may differ from 0 and 1",
    ),
    "fold_offset_into_comparison": (
        lambda g, x: g.add(IS_ZERO, g.add(Subs(Scalar(F32, float("inf"))), x)),
        "the number is not finite",
    ),
    "replace_select_branch_by_zero": (
        lambda g, x: g.add(CHOOSE, annotate(g.add(IS_NOT_ZERO, x), Q), number(g, 1), x),
        "the source file quantizes the result of test",
    ),
    "fold_negation_into_comparison": (
        lambda g, x: g.add(Min(), g.add(IS_ZERO, (same := g.add(Eqs(ONE), x))), same),
        "inner has other users",
    ),
}


@pytest.mark.parametrize("rule", DECLINES)
def test_declines(rule):
    build, reason = DECLINES[rule]
    graph = graph_of(build, SHAPE)
    assert reason in reasons(optimize(graph), rule)


def test_keeps_negated_order_comparisons():
    """not (x >= y) differs from x < y if one of them is NaN."""
    graph, _ = optimize_checked(lambda g, x: g.add(IS_ZERO, g.add(Ge(), x, g.add(TANH, x))), SHAPE, rtol=0)
    assert ops(graph) == ["active", "ge", "eqs"]
