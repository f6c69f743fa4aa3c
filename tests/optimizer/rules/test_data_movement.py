"""Chains of data movement operators, and the views by which they are compared."""

import math

import numpy as np

from tests.support.each import each
from tests.support.rules.graphs import OTHER_Q, Q, annotate, graph_of, ops, optimize_checked, reasons
from tests.support.rules.rule_patterns import Draw
from tpuconvert.optimizer import optimize
from tpuconvert.optimizer.rules.strided_view import View
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.ops.channel_shuffle import ChannelShuffle
from tpuconvert.schema.ops.copy import Copy
from tpuconvert.schema.ops.extract import Extract
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.types import F32, TensorType

RULE = "simplify_data_movement"
SHAPE = (1, 6, 4, 5)


def shuffle(g, x, groups=2):
    n, c, h, w = x.shape
    split = g.add(Reshape((n, groups, c // groups, h, w)), x)
    return g.add(Reshape((n, c, h, w)), g.add(Permute((0, 2, 1, 3, 4)), split))


def half(g, x, which):
    n, c, h, w = x.shape
    split = g.add(Permute((2, 0, 1, 3)), g.add(Reshape((n, c // 2, 2, h * w)), x))
    part = g.add(Extract((which, 0, 0, 0), (which + 1, n, c // 2, h * w), (1, 1, 1, 1)), split)
    return g.add(Reshape((n, c // 2, h, w)), part)


def test_recognizes_a_channel_shuffle():
    graph, _ = optimize_checked(shuffle, SHAPE, rtol=0)
    assert [node.op for node in graph.nodes] == [ChannelShuffle(2)]


def test_recognizes_every_other_channel_as_slice():
    graph, _ = optimize_checked(lambda g, x: (half(g, x, 0), half(g, x, 1)), SHAPE, rtol=0)
    assert [node.op for node in graph.nodes] == [
        Extract((0, which, 0, 0), (1, 5 + which, 4, 5), (1, 2, 1, 1)) for which in (0, 1)
    ]


def test_merges_nested_slices():
    def build(g, x):
        first = g.add(Extract((0, 1, 0, 1), (1, 6, 4, 5), (1, 2, 1, 1)), x)
        return g.add(Extract((0, 1, 1, 1), (1, 3, 4, 4), (1, 1, 2, 1)), first)

    graph, _ = optimize_checked(build, SHAPE, rtol=0)
    assert [node.op for node in graph.nodes] == [Extract((0, 3, 1, 2), (1, 6, 4, 5), (1, 2, 2, 1))]


def test_merges_a_permute_that_moves_nothing_into_reshapes():
    def build(g, x):
        y = g.add(Permute((0, 2, 1, 3)), g.add(Reshape((6, 1, 20, 1)), x))
        return g.add(Reshape((2, 3, 20)), y)

    assert ops(optimize_checked(build, SHAPE, rtol=0)[0]) == ["reshape"]


def test_removes_a_chain_that_cancels():
    def build(g, x):
        return shuffle(g, shuffle(g, x, 2), 3)

    graph, _ = optimize_checked(build, SHAPE, rtol=0)
    assert graph.outputs == graph.inputs


def test_keeps_nodes_with_other_users():
    def build(g, x):
        y = g.add(Permute((0, 2, 3, 1)), x)
        return g.add(Reshape((20, 6)), y), y

    graph, trace = optimize_checked(build, SHAPE, rtol=0)
    assert ops(graph) == ["permute", "reshape"]
    assert reasons(trace, RULE) == {"no cheaper form is known"}


def test_keeps_a_value_with_its_own_scale():
    def build(g, x):
        return g.add(Permute((0, 3, 1, 2)), annotate(g.add(Reshape((1, 4, 5, 6)), x)))

    graph = graph_of(build, SHAPE)
    optimize(graph)
    assert ops(graph) == ["reshape", "permute"]


def test_annotated_data_movement_keeps_its_scale():
    def build(g, x):
        annotate(x)
        split = annotate(g.add(Reshape((1, 2, 3, 4, 5)), x))
        return annotate(g.add(Reshape(SHAPE), annotate(g.add(Permute((0, 2, 1, 3, 4)), split))))

    graph = graph_of(build, SHAPE)
    optimize(graph)
    assert ops(graph) == ["channel_shuffle"]
    assert graph.outputs[0].quant == Q


def positions(view: View) -> np.ndarray:
    """The position of every element, by the definition of a view."""
    found = np.array([view.offset])
    for axis in view.axes:
        for extent, stride in axis:
            found = np.add.outer(found, np.arange(extent) * stride).reshape(-1)
    return found.reshape(view.shape)


@each("seed", range(150))
def test_view_gives_the_position_of_every_element(seed):
    draw = Draw(Graph(), np.random.default_rng(seed))
    shape = tuple(draw.one_of(1, 2, 3, 4, 6) for _ in range(draw.one_of(1, 2, 3, 4)))
    value = draw.g.input("x", TensorType(F32, shape))
    view: View | None = View.of(shape)
    elements = np.arange(math.prod(shape), dtype=np.float32).reshape(shape)
    for _ in range(4):
        value = draw.move(value)
        (elements,) = value.producer.op.reference(elements)
        view = None if view is None else view.after(value.producer)
        if view is not None:
            np.testing.assert_array_equal(positions(view), elements, err_msg=f"seed {seed}")


def test_a_requantized_slice_stays_a_slice_before_a_copy():
    """The copy rounds as the source's operator does; a merged node would be a slice that rounds."""

    def build(g, x):
        cut = annotate(g.add(Extract((0, 2, 0, 0), (1, 3, 4, 5), (1, 1, 1, 1)), annotate(x)))
        return annotate(g.add(Copy(), cut), OTHER_Q)

    graph = graph_of(build, SHAPE)
    optimize(graph)
    assert ops(graph) == ["extract", "copy"]
