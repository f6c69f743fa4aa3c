"""Nested reductions, unit axes, and dropped axes."""

import pytest

from tests.support.rules.graphs import TANH, annotate, graph_of, ops, optimize_checked, reasons
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
def test_merges_two_reductions(method, first, second, keeps, expected):
    def build(g, x):
        return g.add(Reduce(second, method, keep_dims=keeps), g.add(Reduce(first, method, keep_dims=keeps), x))

    graph, _ = optimize_checked(build, SHAPE)
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
    graph, trace = optimize_checked(lambda g, x: g.add(second, g.add(first, x)), SHAPE)
    assert ops(graph) == ["reduce", "reduce"]
    assert reasons(trace, "merge_reduces") == {reason}


@pytest.mark.parametrize("keeps", [True, False])
def test_removes_reductions_of_unit_axes(keeps):
    graph, _ = optimize_checked(
        lambda g, x: g.add(TANH, g.add(Reduce((1,), MAX, keep_dims=keeps), x)), (2, 1, 4), rtol=0
    )
    assert ops(graph) == (["active"] if keeps else ["active", "reshape"])


@pytest.mark.parametrize(("shape", "fires"), [((2, 3), True), ((2, 1, 3), False), ((6,), False)])
def test_folds_a_reshape_that_drops_the_axes(shape, fires):
    graph, trace = optimize_checked(lambda g, x: g.add(Reshape(shape), g.add(Reduce((2, 3), MEAN), x)), SHAPE)
    assert ops(graph) == (["reduce"] if fires else ["reduce", "reshape"])
    assert fires or reasons(trace, "fold_reshape_into_reduce") == {"the reshape does more than drop the axes"}


def test_declines_a_quantized_inner_value():
    graph = graph_of(lambda g, x: g.add(Reduce((2,)), annotate(g.add(Reduce((3,)), x))), SHAPE)
    trace = optimize(graph)
    assert reasons(trace, "merge_reduces") == {"the source file quantizes the result of inner"}
