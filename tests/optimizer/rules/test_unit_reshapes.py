"""Sinking of reshapes that drop unit axes."""

import pytest

from tests.support.rules.graphs import (
    OTHER_Q,
    RELU,
    TANH,
    Q,
    annotate,
    conv,
    graph_of,
    ops,
    optimize_checked,
    random_constant,
    reasons,
)
from tpuconvert.optimizer import optimize
from tpuconvert.optimizer.rules.unit_reshapes import axis_map
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.ops.arithmetic import Add, Mul, Sub
from tpuconvert.schema.ops.concat import Concat
from tpuconvert.schema.ops.reduce import Reduce
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.types import F32, TensorType

LINES, PLANES = (2, 4, 10), (2, 4, 1, 10)
TO_LINES, TO_PLANES = Reshape(LINES), Reshape(PLANES)


def layer(g, x, name="conv"):
    """A 1-D convolution as frontends read it."""
    y = conv(g, g.add(TO_PLANES, x), 4, name, kernel=1)
    return g.add(TO_LINES, y)


def test_a_residual_network_has_reshapes_at_its_ends_only():
    def build(g, x):
        for index in range(3):
            x = g.add(RELU, g.add(Add(), layer(g, g.add(RELU, layer(g, x, f"a{index}")), f"b{index}"), x))
        return x

    graph, _ = optimize_checked(build, LINES)
    assert ops(graph).count("reshape") == 2 and len(graph) == 2 + 3 * 5


@pytest.mark.parametrize("shape", [(1, 4, 1), (2, 4, 10), (1, 1, 10), (1, 1, 1)])
@pytest.mark.parametrize("op", [Add(), Mul(), Sub()], ids=str)
def test_reshapes_constants_to_the_shape_before(shape, op):
    def build(g, x):
        return layer(g, g.add(op, g.add(TANH, layer(g, x, "first")), random_constant(g, *shape)), "second")

    assert ops(optimize_checked(build, LINES)[0]).count("reshape") == 2


@pytest.mark.parametrize(("axis", "moved"), [(0, 0), (1, 1), (2, 3), (-1, 3)])
def test_maps_the_concat_axis(axis, moved):
    def build(g, x):
        return g.add(Concat(axis), layer(g, x, "a"), layer(g, g.add(TANH, x), "b"))

    graph, _ = optimize_checked(build, LINES)
    (node,) = (node for node in graph.nodes if node.op.name == "concat")
    assert node.op.axis == moved and graph.nodes[-1].op.name == "reshape"


def test_with_a_symbolic_batch():
    graph = Graph("test")
    x = graph.input("x", TensorType(F32, ("N", 4, 1, 10)))
    graph.output(graph.add(TANH, graph.add(Reshape((0, 4, 10)), x)))
    optimize(graph)
    assert ops(graph) == ["active", "reshape"] and graph.outputs[0].shape == ("N", 4, 10)


def two_users(g, x):
    lines = layer(g, x)
    return g.add(TANH, lines), g.add(Add(), lines, random_constant(g, 1, 4, 1)), lines


def other_shapes(g, x):
    flat = g.add(Reshape((2, 40)), g.add(TO_PLANES, x))
    return g.add(Add(), g.add(TANH, flat), random_constant(g, 2, 40))


DECLINES = {
    "another operand": (
        lambda g, x: g.add(Add(), layer(g, x), g.add(TANH, x)),
        "sink_reshape_through_elementwise",
        "the operands do not all have the same reshape",
    ),
    "other users": (two_users, "sink_reshape_through_elementwise", "the reshape has other users"),
    "expanded": (
        lambda g, x: g.add(Add(), g.add(TANH, x), g.add(Reshape((1, 4, 1)), random_plane(g, x))),
        "sink_reshape_through_elementwise",
        "the reshaped operand is broadcast",
    ),
    "joined with others": (
        lambda g, x: g.add(Concat(1), layer(g, x), g.add(TANH, x)),
        "sink_reshape_through_concat",
        "the operands do not all have the same reshape",
    ),
    "joined along one element": (
        lambda g, x: g.add(Concat(1), *(g.add(Reshape((2, 1, 40)), plane) for plane in pair(g, x))),
        "sink_reshape_through_concat",
        "it concatenates along a unit axis",
    ),
}


def pair(g, x):
    """Two inputs of shape [2, 1, 1, 40]."""
    return tuple(conv(g, g.add(Reshape((2, 1, 1, 40)), x), 1, name, kernel=1) for name in "ab")


def random_plane(g, x):
    """A computed tensor of shape [1, 4, 1, 1]."""
    return conv(g, g.add(Reduce((0, 3)), g.add(TO_PLANES, x)), 4, kernel=1)


@pytest.mark.parametrize("form", DECLINES)
def test_declines(form):
    build, rule, reason = DECLINES[form]
    found = reasons(optimize(graph_of(build, LINES)), rule)
    assert reason in found


def test_declines_a_requantization_in_between():
    def build(g, x):
        return g.add(TANH, annotate(g.add(TO_LINES, annotate(conv(g, x, 4, kernel=1), Q)), OTHER_Q))

    graph = graph_of(build, PLANES)
    optimize(graph)
    assert ops(graph) == ["conv", "reshape", "active"]


def test_declines_axes_that_were_dropped():
    assert axis_map((2, 4, 1, 10), (2, 4, 10)) == {0: 0, 1: 1, 2: 3}
    assert axis_map(("N", 1, 1, 10), ("N", 10)) == {0: 0, 1: 3}
    assert axis_map((2, 4, 10), (2, 4, 1, 10)) is None, "it adds one"
    assert axis_map((2, 4, 1, 10), (2, 40)) is None
    assert axis_map((2, 4, 1, 10), (4, 2, 10)) is None
