"""Hoisting of reshapes and permutes above a split."""

import pytest

from tests.support.rules.graphs import (
    OTHER_Q,
    RELU,
    TANH,
    Q,
    annotate,
    graph_of,
    ops,
    optimize_checked,
    random_constant,
    reasons,
)
from tpuconvert.optimizer import optimize
from tpuconvert.schema.ops.attention import Attention
from tpuconvert.schema.ops.concat import Split
from tpuconvert.schema.ops.extract import Extract
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul
from tpuconvert.schema.ops.normalization import LayerNorm
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.shape_change import Reshape

RESHAPE, PERMUTE = "hoist_reshape_above_split", "hoist_permute_above_split"
SHAPE = (2, 5, 24)
TURN = Permute((0, 2, 1, 3))


def heads(g, x, counts=(2, 2, 2), size=4):
    """Split the last axis into tensors [N, heads, S, D], as attention in one layer is exported."""
    widths = tuple(count * size for count in counts)
    parts = g.add_all(Split(x.rank - 1, len(widths), widths), x)
    shaped = [g.add(Reshape((*SHAPE[:2], n, size)), part) for n, part in zip(counts, parts, strict=True)]
    return [g.add(TURN, part, name=f"heads{index}") for index, part in enumerate(shaped)]


def attention(g, x):
    y = g.add(Attention(), *heads(g, x))
    return g.add(Reshape((2, 5, 8)), g.add(TURN, y))


def test_heads_of_attention_take_one_reshape_and_one_permute():
    graph, trace = optimize_checked(attention, SHAPE, rtol=1e-6)
    assert ops(graph) == ["reshape", "permute", "split", "attention", "permute", "reshape"]
    assert trace.fired[RESHAPE] == trace.fired[PERMUTE] == 1
    assert graph.find("heads1").producer.op == Split(1, 3, (2, 2, 2))


@pytest.mark.parametrize("counts", [(4, 2, 2), (2, 2, 4), (3, 3)], ids=str)
def test_parts_of_different_sizes(counts):
    def build(g, x):
        return tuple(g.add(LayerNorm(3), part) for part in heads(g, x, counts))

    graph, _ = optimize_checked(build, (*SHAPE[:2], 4 * sum(counts)), rtol=0)
    assert ops(graph)[:3] == ["reshape", "permute", "split"] and len(graph) == 3 + len(counts)


def test_as_five_axes():
    """The form of PyTorch's own module: the split is along a leading axis of extent 3."""

    def build(g, x):
        y = g.add(Permute((2, 0, 3, 1, 4)), g.add(Reshape((2, 5, 3, 2, 4)), x))
        parts = g.add_all(Split(0, 3), y)
        return g.add(Attention(), *(g.add(Reshape((2, 2, 5, 4)), part) for part in parts))

    graph, trace = optimize_checked(build, SHAPE, rtol=1e-6)
    assert trace.fired[RESHAPE] == 1 and ops(graph).count("reshape") < 4


@pytest.mark.parametrize(
    ("axis", "shapes"),
    [
        (0, [(5, 3, 8), (5, 3, 8)]),
        (1, [(2, 5, 3, 4), (2, 5, 3, 4)]),
        (2, [(1, 2, 15, 4), (1, 2, 15, 4)]),
        (2, [(2, 15, 1, 4), (2, 15, 1, 4)]),
    ],
)
def test_along_every_axis(axis, shapes):
    def build(g, x):
        parts = g.add_all(Split(axis, 2), x)
        return tuple(g.add(TANH, g.add(Reshape(shape), part)) for part, shape in zip(parts, shapes, strict=True))

    shape = ((10, 3, 8), (2, 10, 12), (2, 15, 8), (2, 15, 8))[[(5, 3), (2, 5), (1, 2), (2, 15)].index(shapes[0][:2])]
    if axis == 0:
        shape = (10, 12, 2)
    graph, trace = optimize_checked(build, shape, rtol=0)
    assert ops(graph).count("reshape") == 1 and trace.fired[RESHAPE] == 1


def two_shapes(g, x):
    first, second = g.add_all(Split(2, 2), x)
    return g.add(TANH, g.add(Reshape((10, 12)), first)), g.add(TANH, g.add(Reshape((2, 5, 3, 4)), second))


def across_rows(g, x):
    """[2, 120] contains the rows of a sample one after the other: its halves are not the halves of every row."""
    parts = g.add_all(Split(2, 2), x)
    return tuple(g.add(RELU, g.add(Reshape((2, 60)), part)) for part in parts)


def two_orders(g, x):
    first, second = g.add_all(Split(2, 2), x)
    products = (g.add(Permute((1, 0, 2)), first), g.add(Permute((2, 1, 0)), second))
    return tuple(g.add(Reshape((10, 12)), value) for value in products)


def leaving(g, x):
    parts = g.add_all(Split(2, 2), x)
    return *(g.add(Reshape((10, 12)), part) for part in parts), parts[0]


def on_the_move(g, x):
    parts = g.add_all(Split(2, 2), x)
    return tuple(g.add(Extract((0, 0, 0), (5, 1, 12), (1, 1, 1)), g.add(Permute((1, 0, 2)), part)) for part in parts)


DECLINES = {
    "two shapes": (two_shapes, RESHAPE, "no single reshape contains all results along one axis"),
    "across rows": (across_rows, RESHAPE, "no single reshape contains all results along one axis"),
    "two orders": (two_orders, PERMUTE, "the results are not all permuted alike"),
    "leaving": (leaving, RESHAPE, "a result of the split is a graph output"),
}


@pytest.mark.parametrize("form", DECLINES)
def test_declines(form):
    build, rule, reason = DECLINES[form]
    graph = graph_of(build, SHAPE)
    found = reasons(optimize(graph), rule)
    assert found == {reason}


def test_keeps_permutes_that_sink_anyway():
    _, trace = optimize_checked(on_the_move, SHAPE, rtol=0)
    assert not trace.fired[PERMUTE]


def test_declines_a_quantized_value():
    def build(g, x):
        parts = [annotate(part) for part in g.add_all(Split(2, 2), annotate(x))]
        return tuple(annotate(g.add(Reshape((10, 12)), part), OTHER_Q) for part in parts)

    graph = graph_of(build, SHAPE)
    assert reasons(optimize(graph), RESHAPE) == {"the source file quantizes a result of the split"}


def test_annotations_stay():
    def build(g, x):
        parts = [annotate(part) for part in g.add_all(Split(2, 2), annotate(x))]
        parts = [annotate(g.add(Reshape((10, 12)), part)) for part in parts]
        return tuple(g.add(MatrixMul(), part, random_constant(g, 12, 3, name="w")) for part in parts)

    graph = graph_of(build, SHAPE)
    trace = optimize(graph)
    assert trace.fired[RESHAPE] == 1
    assert {value.quant for node in graph.nodes[:2] for value in node.outputs} == {Q}


def test_declines_reshapes_of_different_ranks():
    """[3, 1] and [3] agree in the axes before and after axis 1, which the second does not have."""

    def build(g, x):
        left, right = g.add_all(Split(1, 2), x)
        return g.add(Reshape((3, 1)), left), g.add(Reshape((3,)), right)

    graph, _ = optimize_checked(build, (3, 2, 1), rtol=0)
    assert [value.shape for value in graph.outputs] == [(3, 1), (3,)]
