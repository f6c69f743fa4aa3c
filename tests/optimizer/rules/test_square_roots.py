"""Division by vector lengths."""

import numpy as np
import pytest

from tests.support.rules.graphs import TANH, Q, annotate, graph_of, ops, optimize_checked, reasons
from tpuconvert.optimizer import optimize
from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.arithmetic import Div, Mul
from tpuconvert.schema.ops.arithmetic_with_scalar import Adds, Maxs
from tpuconvert.schema.ops.reduce import Reduce, ReduceMethodType
from tpuconvert.schema.ops.tile import Tile
from tpuconvert.schema.types import Scalar

SHAPE = (2, 3, 4, 5)
SQUARE, SQRT = Active(ActiveType.ACTIVE_SQUARE), Active(ActiveType.ACTIVE_SQRT)
NORM = ["active", "reduce", "maxs", "active", "mul"]


def length(g, x, axis, squares=None):
    squares = g.add(SQUARE, x) if squares is None else squares
    return g.add(SQRT, g.add(Reduce((axis,), ReduceMethodType.REDUCE_SUM), squares))


def normalize(g, x, axis, least=1e-12, is_expanded=False, squares=None):
    """The export of torch.nn.functional.normalize, which is also how L2_NORMALIZATION of TFLite is read."""
    divisor = g.add(Maxs(Scalar.f32(least)), length(g, x, axis, squares))
    if is_expanded:
        divisor = g.add(Tile(tuple(SHAPE[axis] if k == axis else 1 for k in range(4))), divisor)
    return g.add(Div(), x, divisor)


@pytest.mark.parametrize("axis", [0, 1, 2, 3])
@pytest.mark.parametrize("is_expanded", [False, True])
@pytest.mark.parametrize("least", [1e-12, 1e-6])
def test_fires(axis, is_expanded, least):
    graph, _ = optimize_checked(lambda g, x: normalize(g, x, axis, least, is_expanded), SHAPE)
    assert ops(graph) == NORM
    assert graph.nodes[2].op.scalar.value == pytest.approx(least**2, rel=1e-6)
    assert graph.nodes[3].output.shape[axis] == 1, "one root per length"


def test_squares_as_products():
    graph, _ = optimize_checked(lambda g, x: normalize(g, x, 1, squares=g.add(Mul(), x, x)), SHAPE)
    assert ops(graph) == NORM


def test_a_root_alone():
    def build(g, x):
        return g.add(Div(), g.add(TANH, x), g.add(SQRT, g.add(Adds(Scalar.f32(1)), g.add(SQUARE, x))))

    assert ops(optimize_checked(build, SHAPE)[0]) == ["active", "active", "adds", "active", "mul"]


def test_zero_and_small_lengths():
    """Zeros, squares that underflow in float32, lengths near the limit, and squares that overflow."""
    rows = np.array([0.0, 1e-30, 3e-13, 1e-12, 4e-12, 1e-6, 1.0, 1e18], np.float32)
    x = rows[:, None] * np.array([3, -4, 12], np.float32) / 13
    graphs = [graph_of(_of_rows, x.shape) for _ in range(2)]
    optimize(graphs[1])
    assert "div" not in ops(graphs[1])
    want, found = (next(iter(Session(graph, backend="reference").run({"x0": x}).values())) for graph in graphs)
    np.testing.assert_allclose(found, want, rtol=1e-6, atol=0)


def _of_rows(g, x):
    return g.add(Div(), x, g.add(Maxs(Scalar.f32(1e-12)), length(g, x, 1)))


def _with_length(g, x):
    root = length(g, x, 1)
    return g.add(Div(), x, g.add(Maxs(Scalar.f32(1)), root)), root


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda g, x: normalize(g, x, 1, squares=g.add(TANH, x)), "the operand of the root may be negative"),
        (lambda g, x: normalize(g, x, 1, least=1e-30), "the square of the limit is beyond the range of float32"),
        (lambda g, x: normalize(g, x, 1, least=1e20), "the square of the limit is beyond the range of float32"),
        (
            lambda g, x: g.add(Div(), x, annotate(g.add(Maxs(Scalar.f32(1)), length(g, x, 1)), Q)),
            "the source file quantizes the result of limit",
        ),
        (
            _with_length,
            "root has other users",
        ),
    ],
)
def test_declines(build, reason):
    graph = graph_of(build, SHAPE)
    trace = optimize(graph)
    assert "div" in ops(graph)
    assert reasons(trace, "replace_div_by_sqrt_by_rsqrt") == {reason}
