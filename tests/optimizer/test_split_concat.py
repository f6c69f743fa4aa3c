"""Splits and concatenations."""

import pytest
from optimizer.graphs import OTHER_Q, RELU, TANH, Q, annotated, graph_of, ops, optimized, reasons

from tpuconvert.optimizer import optimize
from tpuconvert.schema.graph import Graph
from tpuconvert.schema.ops.concat import Concat, Split
from tpuconvert.schema.ops.extract import Extract
from tpuconvert.schema.types import F32, TensorType

SHAPE = (2, 6, 3)


@pytest.mark.parametrize(("part", "start", "end"), [(0, 0, 1), (1, 1, 3), (2, 3, 6)])
def test_one_part_is_an_extract(part, start, end):
    graph, _ = optimized(lambda g, x: g.add(RELU, g.add_all(Split(-2, 3, (1, 2, 3)), x)[part]), SHAPE, rtol=0)
    assert [node.op for node in graph.nodes] == [Extract((0, start, 0), (2, end, 3), (1, 1, 1)), RELU]


def test_a_part_that_leaves_the_graph():
    graph, _ = optimized(lambda g, x: g.add_all(Split(1, 2), x)[1], SHAPE, rtol=0)
    assert ops(graph) == ["extract"]


def test_a_split_into_one_is_nothing():
    assert ops(optimized(lambda g, x: g.add(RELU, g.add_all(Split(1, 1), x)[0]), SHAPE, rtol=0)[0]) == ["active"]


def test_parts_that_are_read_stay():
    def build(g, x):
        first, _, third = g.add_all(Split(1, 3), x)
        return g.add(RELU, first), third

    assert ops(optimized(build, SHAPE, rtol=0)[0]) == ["split", "active"]


def test_a_symbolic_split_stays():
    graph = Graph()
    x = graph.input("x", TensorType(F32, ("N", 6)))
    graph.output(graph.add_all(Split(1, 2), x)[0])
    trace = optimize(graph)
    assert reasons(trace, "convert_split_to_extract") == {"its shape is dynamic"}


def test_cut_and_joined_is_nothing():
    def build(g, x):
        return g.add(RELU, g.add(Concat(1), *g.add_all(Split(-2, 3), x)))

    assert ops(optimized(build, SHAPE, rtol=0)[0]) == ["active"]


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda g, x: g.add(Concat(0), *g.add_all(Split(1, 2), x)), "the split and concat axes differ"),
        (
            lambda g, x: annotated(g.add(Concat(1), *g.add_all(Split(1, 2), x)), OTHER_Q),
            "it changes the quantization",
        ),
    ],
)
def test_joining_declines(build, reason):
    graph, trace = optimized(build, SHAPE, rtol=0)
    assert len(graph) == 2 and reasons(trace, "remove_concat_of_split") == {reason}


def test_another_order_is_something():
    graph, trace = optimized(lambda g, x: g.add(Concat(1), *reversed(g.add_all(Split(1, 2), x))), SHAPE, rtol=0)
    assert ops(graph) == ["split", "concat"] and not trace.skipped


def nested(axis=1, quant=None, outer=None):
    def build(g, x):
        inner = g.add(Concat(1), x, g.add(RELU, x), name="inner")
        inner.quant = quant
        y = g.add(Concat(axis), g.add(TANH, x) if axis == 1 else inner, inner)
        y.quant = outer
        return y

    return build


@pytest.mark.parametrize("quant", [None, Q], ids=["float", "one scale"])
def test_concatenations_are_one(quant):
    graph = graph_of(nested(quant=quant, outer=quant), SHAPE)
    optimize(graph)
    assert ops(graph) == ["active", "active", "concat"]
    assert len(graph.nodes[-1].inputs) == 3 and graph.outputs[0].quant == quant


def test_concatenations_are_one_in_numbers():
    assert ops(optimized(nested(), SHAPE, rtol=0)[0]).count("concat") == 1


@pytest.mark.parametrize("build", [nested(axis=2), nested(quant=Q, outer=OTHER_Q)], ids=["axis", "scales"])
def test_concatenations_decline(build):
    graph = graph_of(build, SHAPE)
    trace = optimize(graph)
    assert ops(graph).count("concat") == 2
    reason = "the inner concat has other users, another axis or another scale"
    assert reasons(trace, "merge_concats") == {reason}
