"""Reductions after reductions, of nothing, and with their axes dropped."""

import pytest
from optimizer.graphs import TANH, annotated, graph_of, ops, optimized, reasons

from tpuconvert.optimizer import optimize
from tpuconvert.schema.ops.reduce import Reduce, ReduceMethodType
from tpuconvert.schema.ops.shape_change import Reshape

SHAPE = (2, 3, 4, 5)
MEAN, SUM, MAX = (ReduceMethodType(k) for k in (0, 1, 2))


@pytest.mark.parametrize("method", list(ReduceMethodType))
@pytest.mark.parametrize(
    ("first", "second", "keeps", "expected"),
    [((3,), (2,), True, (2, 3)), ((1,), (1, 2), False, (1, 2, 3)), ((0, -1), (1,), True, (0, 1, 3))],
)
def test_two_are_one(method, first, second, keeps, expected):
    def build(g, x):
        return g.add(Reduce(second, method, keep_dims=keeps), g.add(Reduce(first, method, keep_dims=keeps), x))

    graph, _ = optimized(build, SHAPE)
    assert [node.op for node in graph.nodes] == [Reduce(expected, method, keep_dims=keeps)]


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        (Reduce((3,), MEAN), Reduce((2,), SUM), "the methods differ"),
        (Reduce((3,), MAX), Reduce((2,), MAX, keep_dims=False), "only one of them keeps its axes"),
        (Reduce((1, 2, 3), SUM, keep_dims=False), Reduce((0,), SUM, keep_dims=False), "no axis is left"),
    ],
)
def test_declines(first, second, reason):
    graph, trace = optimized(lambda g, x: g.add(second, g.add(first, x)), SHAPE)
    assert ops(graph) == ["reduce", "reduce"]
    assert reasons(trace, "merge_reduces") == {reason}


@pytest.mark.parametrize("keeps", [True, False])
def test_axes_of_one_element(keeps):
    graph, _ = optimized(lambda g, x: g.add(TANH, g.add(Reduce((1,), MAX, keep_dims=keeps), x)), (2, 1, 4), rtol=0)
    assert ops(graph) == (["active"] if keeps else ["active", "reshape"])


@pytest.mark.parametrize(("shape", "fires"), [((2, 3), True), ((2, 1, 3), False), ((6,), False)])
def test_a_reshape_that_drops_the_axes(shape, fires):
    graph, trace = optimized(lambda g, x: g.add(Reshape(shape), g.add(Reduce((2, 3), MEAN), x)), SHAPE)
    assert ops(graph) == (["reduce"] if fires else ["reduce", "reshape"])
    assert fires or reasons(trace, "fold_reshape_into_reduce") == {"the reshape does more than drop the axes"}


def test_a_grid_between_stays():
    graph = graph_of(lambda g, x: g.add(Reduce((2,)), annotated(g.add(Reduce((3,)), x))), SHAPE)
    trace = optimize(graph)
    assert reasons(trace, "merge_reduces") == {"the source file quantizes the result of inner"}
