"""Tiles before operators that broadcast, or that could compute fewer elements."""

import numpy as np
import pytest

from tests.support.rules.graphs import (
    OTHER_Q,
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
from tpuconvert.optimizer.rules.tiles import shrink_repeats
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.ops.arithmetic import Add, Div, Max, Mul, Sub
from tpuconvert.schema.ops.cast import Cast
from tpuconvert.schema.ops.compare import Ge
from tpuconvert.schema.ops.selection import ConditionSelect
from tpuconvert.schema.ops.tile import Broadcast, Repeat, Tile
from tpuconvert.schema.types import F32, I32, TensorType

SHAPE, ROW = (2, 3, 4, 5), (2, 3, 1, 5)
DOWN = Tile((1, 1, 4, 1))


@pytest.mark.parametrize("tile", [Tile((1, 1, 4, 1)), Broadcast((1, 1, 4, 1)), Repeat((1, 1, 4, 1))], ids=str)
@pytest.mark.parametrize("op", [Add(), Div(), Ge(), Max(), Mul(), Sub()], ids=str)
@pytest.mark.parametrize("is_first", [False, True])
def test_removes_a_tile_before_broadcast(tile, op, is_first):
    def build(g, x, y):
        pair = (g.add(tile, y), x) if is_first else (x, g.add(tile, y))
        return g.add(op, *pair)

    assert ops(optimize_checked(build, SHAPE, ROW, rtol=0)[0]) == [op.name]


def test_with_a_symbolic_batch():
    graph = Graph("test")
    x = graph.input("x", TensorType(F32, ("N", 3, 4, 5)))
    y = graph.input("y", TensorType(F32, ("N", 3, 1, 5)))
    graph.output(graph.add(Add(), x, graph.add(DOWN, y)))
    optimize(graph)
    assert ops(graph) == ["add"]


@pytest.mark.parametrize(
    ("tile", "other", "shape"),
    [(Tile((1, 1, 2, 1)), SHAPE, (2, 3, 2, 5)), (Tile((2, 1, 1, 1)), (4, 3, 4, 5), SHAPE)],
)
def test_keeps_a_tile_that_determines_the_shape(tile, other, shape):
    def build(g, x, y):
        return g.add(Mul(), g.add(TANH, x), g.add(tile, y))

    graph = graph_of(build, other, shape)
    trace = optimize(graph)
    assert "tile" in ops(graph)
    assert reasons(trace, "remove_tile_before_broadcast") in (set(), {"the tile determines the shape of the result"})


def test_keeps_a_tile_with_its_own_scale():
    def build(g, x, y):
        return g.add(Add(), x, annotate(g.add(DOWN, annotate(g.add(TANH, y), Q)), OTHER_Q))

    graph = graph_of(build, SHAPE, ROW)
    optimize(graph)
    assert "tile" in ops(graph)


def test_sinks_a_tile_below_a_unary_operator():
    graph, _ = optimize_checked(lambda g, x: g.add(TANH, g.add(DOWN, x)), ROW, rtol=0)
    assert ops(graph) == ["active", "tile"] and graph.nodes[0].output.shape == ROW
    assert graph.nodes[1].name == graph.outputs[0].name


def test_sinks_a_tile_below_a_chain():
    """A mask that an exporter broadcasts before it computes with it."""

    def build(g, x, y):
        mask = g.add(Cast(F32), g.add(Cast(I32), g.add(DOWN, y)))
        return g.add(Mul(), x, g.add(TANH, mask))

    graph, _ = optimize_checked(build, SHAPE, ROW, rtol=0)
    assert ops(graph) == ["cast", "cast", "active", "mul"]


def test_sinks_tiles_below_binary_operators_and_selections():
    def build(g, x, y):
        pair = g.add(Add(), g.add(DOWN, x), g.add(DOWN, y))
        numbers = [g.constant(np.full(1, number, np.float32)) for number in (0, -9)]
        return g.add(ConditionSelect(), pair, *numbers)

    graph, _ = optimize_checked(build, ROW, ROW, rtol=0)
    assert ops(graph) == ["add", "condition_select", "tile"]


def test_sinks_a_tile_if_the_other_operand_is_uniform():
    graph, _ = optimize_checked(lambda g, x, y: g.add(Sub(), g.add(TANH, x), g.add(DOWN, y)), (1, 3, 1, 5), ROW, rtol=0)
    assert ops(graph) == ["active", "sub", "tile"]


def test_keeps_a_tile_with_other_users():
    def build(g, x):
        copies = g.add(DOWN, x)
        return g.add(TANH, copies), copies

    graph = graph_of(build, ROW)
    trace = optimize(graph)
    assert ops(graph) == ["tile", "active"]
    assert reasons(trace, "sink_tile_through_elementwise") == {"the tile has other users"}


def test_sinks_a_tile_that_is_also_broadcast():
    def build(g, x, y):
        return g.add(Add(), g.add(Tile((1, 2)), g.add(TANH, x)), g.add(Tile((1, 2)), y))

    assert ops(optimize_checked(build, (1, 2), (2, 2), rtol=0)[0]) == ["active", "add", "tile"]


def test_keeps_different_tiles():
    def build(g, x, y):
        return g.add(Add(), g.add(Tile((1, 2)), g.add(TANH, x)), g.add(Tile((2, 1)), y))

    assert ops(optimize_checked(build, (2, 2), (1, 4), rtol=0)[0]) == ["active", "tile", "add"]


@pytest.mark.parametrize("op", [Add(), Max(), Mul(), Sub()], ids=str)
def test_shrinks_a_repeated_constant(op):
    def build(g, x):
        once = random_constant(g, 1, 3, 1, 5)
        return g.add(op, x, g.constant(np.broadcast_to(once.array, SHAPE).copy()))

    graph, _ = optimize_checked(build, SHAPE, rtol=0)
    assert graph.nodes[0].inputs[1].shape == (1, 3, 1, 5)


def test_folds_a_repeated_per_channel_scale():
    from tests.support.rules.graphs import conv

    def build(g, x):
        factors = np.broadcast_to(random_constant(g, 1, 6, 1, 1).array, (1, 6, 4, 4)).copy()
        return g.add(Mul(), conv(g, x, 6), g.constant(factors))

    assert ops(optimize_checked(build, (1, 2, 6, 6))[0]) == ["conv"]


def test_keeps_constants_that_do_not_repeat_or_determine_the_shape():
    data = random_constant(graph_of(lambda g, x: g.add(TANH, x), SHAPE), *SHAPE).array.copy()
    data[:, :, -1] = data[:, :, 0]
    graph = graph_of(lambda g, x: g.add(Add(), x, g.constant(data)), SHAPE)
    trace = optimize(graph)
    assert reasons(trace, "shrink_repeated_constant") == {"its elements repeat along no axis"}
    rows = np.broadcast_to(data[:, :, :1], SHAPE).copy()
    graph = graph_of(lambda g, x: g.add(Add(), x, g.constant(rows)), ROW)
    optimize(graph)
    assert graph.outputs[0].shape == SHAPE


def test_distinguishes_signs_of_zeros():
    zeros = np.array([[0.0, 1], [-0.0, 1], [0.0, 1]], np.float32)
    assert shrink_repeats(zeros) is zeros
    assert shrink_repeats(np.abs(zeros)).shape == (1, 2)
    assert shrink_repeats(np.full((2, 2), np.nan, np.float32)).shape == (2, 2)
