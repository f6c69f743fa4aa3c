"""Splits and concats."""

import pytest

from tests.support.rules.graphs import OTHER_Q, RELU, TANH, Q, annotate, graph_of, ops, optimize_checked, reasons
from tpuconvert.optimizer import optimize
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.ops.concat import Concat, Split
from tpuconvert.schema.ops.extract import Extract
from tpuconvert.schema.types import F32, TensorType

SHAPE = (2, 6, 3)


@pytest.mark.parametrize(("part", "start", "end"), [(0, 0, 1), (1, 1, 3), (2, 3, 6)])
def test_converts_a_split_with_one_used_result(part, start, end):
    graph, _ = optimize_checked(lambda g, x: g.add(RELU, g.add_all(Split(-2, 3, (1, 2, 3)), x)[part]), SHAPE, rtol=0)
    assert [node.op for node in graph.nodes] == [Extract((0, start, 0), (2, end, 3), (1, 1, 1)), RELU]


def test_converts_a_split_with_one_output():
    graph, _ = optimize_checked(lambda g, x: g.add_all(Split(1, 2), x)[1], SHAPE, rtol=0)
    assert ops(graph) == ["extract"]


def test_removes_a_split_into_one_result():
    assert ops(optimize_checked(lambda g, x: g.add(RELU, g.add_all(Split(1, 1), x)[0]), SHAPE, rtol=0)[0]) == ["active"]


def test_keeps_a_split_with_several_used_results():
    def build(g, x):
        first, _, third = g.add_all(Split(1, 3), x)
        return g.add(RELU, first), third

    assert ops(optimize_checked(build, SHAPE, rtol=0)[0]) == ["split", "active"]


def test_keeps_a_symbolic_split():
    graph = Graph()
    x = graph.input("x", TensorType(F32, ("N", 6)))
    graph.output(graph.add_all(Split(1, 2), x)[0])
    trace = optimize(graph)
    assert reasons(trace, "convert_split_to_extract") == {"its shape is dynamic"}


def test_removes_a_concat_of_all_results():
    def build(g, x):
        return g.add(RELU, g.add(Concat(1), *g.add_all(Split(-2, 3), x)))

    assert ops(optimize_checked(build, SHAPE, rtol=0)[0]) == ["active"]


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda g, x: g.add(Concat(0), *g.add_all(Split(1, 2), x)), "the split and concat axes differ"),
        (
            lambda g, x: annotate(g.add(Concat(1), *g.add_all(Split(1, 2), x)), OTHER_Q),
            "it changes the quantization",
        ),
    ],
)
def test_concat_of_split_declines(build, reason):
    graph, trace = optimize_checked(build, SHAPE, rtol=0)
    assert len(graph) == 2 and reasons(trace, "remove_concat_of_split") == {reason}


def test_keeps_a_concat_in_another_order():
    graph, trace = optimize_checked(lambda g, x: g.add(Concat(1), *reversed(g.add_all(Split(1, 2), x))), SHAPE, rtol=0)
    assert ops(graph) == ["split", "concat"] and not trace.skip_counts


def nested_concat(axis=1, quant=None, outer=None):
    def build(g, x):
        inner = g.add(Concat(1), x, g.add(RELU, x), name="inner")
        inner.quant = quant
        y = g.add(Concat(axis), g.add(TANH, x) if axis == 1 else inner, inner)
        y.quant = outer
        return y

    return build


@pytest.mark.parametrize("quant", [None, Q], ids=["float", "one scale"])
def test_merges_nested_concats(quant):
    graph = graph_of(nested_concat(quant=quant, outer=quant), SHAPE)
    optimize(graph)
    assert ops(graph) == ["active", "active", "concat"]
    assert len(graph.nodes[-1].inputs) == 3 and graph.outputs[0].quant == quant


def test_merged_concats_compute_the_same():
    assert ops(optimize_checked(nested_concat(), SHAPE, rtol=0)[0]).count("concat") == 1


@pytest.mark.parametrize(
    "build", [nested_concat(axis=2), nested_concat(quant=Q, outer=OTHER_Q)], ids=["axis", "scales"]
)
def test_nested_concats_decline(build):
    graph = graph_of(build, SHAPE)
    trace = optimize(graph)
    assert ops(graph).count("concat") == 2
    reason = "the inner concat has other users, another axis or another scale"
    assert reasons(trace, "merge_concats") == {reason}
