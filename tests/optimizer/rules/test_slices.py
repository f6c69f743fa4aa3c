"""Slices of concats and concats of slices."""

import pytest

from tests.support.rules.graphs import OTHER_Q, RELU, annotate, graph_of, ops, optimize_checked, reasons
from tpuconvert.optimizer import optimize
from tpuconvert.schema.ops.concat import Concat
from tpuconvert.schema.ops.extract import Extract

SHAPE = (2, 6, 4)


def take_slice(g, x, start, end, step=1):
    return g.add(Extract((0, start, 0), (2, end, 4), (1, step, 1)), x)


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        (((0, 2), (2, 6)), []),
        (((1, 2), (2, 5)), ["extract"]),
        (((0, 2), (2, 3), (3, 6)), []),
        (((0, 2), (3, 6)), ["concat", "extract", "extract"]),
        (((2, 6), (0, 2)), ["concat", "extract", "extract"]),
    ],
    ids=str,
)
def test_merges_adjacent_slices(parts, expected):
    graph, _ = optimize_checked(
        lambda g, x: g.add(Concat(1), *(take_slice(g, x, *part) for part in parts)), SHAPE, rtol=0
    )
    assert sorted(ops(graph)) == expected


def test_merges_adjacent_slices_with_steps():
    def build(g, x, first):
        return g.add(Concat(1), take_slice(g, x, 0, first, 2), take_slice(g, x, first, 6, 2))

    assert ops(optimize_checked(lambda g, x: build(g, x, 4), SHAPE, rtol=0)[0]) == ["extract"]
    assert len(optimize_checked(lambda g, x: build(g, x, 3), SHAPE, rtol=0)[0]) == 3


def test_keeps_slices_of_two_tensors():
    graph, _ = optimize_checked(
        lambda g, x, y: g.add(Concat(1), take_slice(g, x, 0, 2), take_slice(g, y, 2, 6)), SHAPE, SHAPE, rtol=0
    )
    assert len(graph) == 3


def test_hoists_a_slice_within_one_operand():
    def build(g, x, y):
        return take_slice(g, g.add(Concat(1), x, y), 7, 9)

    graph, _ = optimize_checked(build, SHAPE, SHAPE, rtol=0)
    assert [node.op for node in graph.nodes] == [Extract((0, 1, 0), (2, 3, 4), (1, 1, 1))]
    assert graph.nodes[0].inputs == (graph.inputs[1],)


def test_keeps_a_slice_of_two_operands():
    graph, trace = optimize_checked(lambda g, x, y: take_slice(g, g.add(Concat(1), x, y), 4, 9), SHAPE, SHAPE, rtol=0)
    assert ops(graph) == ["concat", "extract"]
    assert reasons(trace, "hoist_slice_above_concat") == {"it reads several operands"}


def test_declines_another_scale():
    def build(g, x):
        first, second = annotate(g.add(RELU, x)), annotate(g.add(RELU, x), OTHER_Q)
        return annotate(take_slice(g, annotate(g.add(Concat(1), first, second)), 6, 12))

    graph = graph_of(build, SHAPE)
    trace = optimize(graph)
    assert reasons(trace, "hoist_slice_above_concat") == {"the concat changes the quantization"}
