"""Regions of operators moved across a reshape."""

import pytest

from tests.support.paired import paired
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
from tpuconvert.optimizer.rules import reshaped_regions
from tpuconvert.optimizer.rules.reshape_axes import Regrouping
from tpuconvert.schema.ops.arithmetic import Add, Mul, Sub
from tpuconvert.schema.ops.batch_matmul import BatchMatmul
from tpuconvert.schema.ops.concat import Concat, Split
from tpuconvert.schema.ops.extract import Extract
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul
from tpuconvert.schema.ops.normalization import LayerNorm, RmsNorm
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.reduce import Reduce, ReduceMethodType
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.ops.smooth_activation import Gelu
from tpuconvert.schema.ops.softmax import Softmax
from tpuconvert.schema.types import I8, QuantParams

RULE = "move_region_across_reshape"
SHAPE, ROWS = (2, 5, 8), (10, 8)
TO_ROWS, BACK = Reshape(ROWS), Reshape(SHAPE)


def dense(g, x, width, name):
    """A matmul of all rows with a constant matrix, as sources write it."""
    return g.add(BatchMatmul(), x, random_constant(g, int(x.shape[-1]), width, name=name, seed=width), name=f"{name}_y")


def block(g, x, name):
    """A perceptron with a normalization before it and a residual add."""
    normalized = g.add(LayerNorm(-1), x, random_constant(g, 8, seed=3), random_constant(g, 8, seed=4))
    hidden = g.add(Gelu(), dense(g, normalized, 16, f"{name}_up"))
    return g.add(Add(), x, dense(g, hidden, 8, f"{name}_down"))


@pytest.mark.parametrize(("shape", "depth"), paired([(SHAPE,), ((1, 10, 8),), ((2, 1, 5, 8),)], [1, 3, 80]), ids=str)
def test_perceptrons_with_residual_sums_have_reshapes_at_their_ends_only(shape, depth):
    def build(g, x):
        for index in range(depth):
            x = block(g, x, f"b{index}")
        return x

    graph, trace = optimize_checked(build, shape, rtol=1e-5)
    assert ops(graph).count("reshape") == 2
    if depth > 1:  # a single one has no more reshapes than that anyhow
        assert trace.fired[RULE]
        assert [node.output.shape[0] for node in graph.nodes[:-1]] == [10] * (len(graph) - 1)


def rows(g, x, name):
    """A matmul with reshapes to rows before and after it."""
    return g.add(MatrixMul(), x, random_constant(g, 8, 8, name=name))


def around(function):
    """Two matmuls of rows, and a function of the 3-D tensor between them."""

    def build(g, x):
        return rows(g, g.add(TO_ROWS, function(g, g.add(BACK, rows(g, g.add(TO_ROWS, x), "v")))), "w")

    return build


@pytest.mark.parametrize(
    "function",
    [
        lambda g, y: g.add(Softmax(2), y),
        lambda g, y: g.add(LayerNorm(2), y, random_constant(g, 8)),
        lambda g, y: g.add(RmsNorm(-1), y, random_constant(g, 8)),
        lambda g, y: g.add(Mul(), y, random_constant(g, 1, 1, 8)),
        lambda g, y: g.add(Sub(), random_constant(g, 2, 5, 1), g.add(Softmax(-1), y)),
        lambda g, y: g.add(Sub(), y, g.add(Reduce((2,), ReduceMethodType.REDUCE_MEAN), y)),
        lambda g, y: g.add(Concat(2), *reversed(g.add_all(Split(2, 2), y))),
        lambda g, y: g.add(Concat(-1), *(g.add(Extract((0, 0, k), (2, 5, 8), (1, 1, 2)), y) for k in (0, 1))),
    ],
)
def test_operators_along_the_last_axis(function):
    graph, _ = optimize_checked(around(function), SHAPE)
    assert ops(graph).count("reshape") == 1


def test_moves_axes_that_only_gain_unit_neighbors():
    def build(g, x):
        y = g.add(Softmax(2), g.add(Reshape((4, 1, 6, 5)), g.add(TANH, x)))
        return g.add(Reshape((2, 4, 5)), g.add(Extract((1, 0, 2, 0), (3, 1, 6, 5), (1, 1, 1, 1)), y))

    assert ops(optimize_checked(build, (4, 6, 5))[0]) == ["active", "softmax", "extract"]


def test_reshapes_values_with_other_users_back_once():
    def build(g, x):
        z = g.add(LayerNorm(2), g.add(BACK, rows(g, g.add(TO_ROWS, x), "v")))
        others = (g.add(Permute((1, 0, 2)), z), g.add(Permute((2, 0, 1)), z))
        return *others, rows(g, g.add(TO_ROWS, z), "a"), rows(g, g.add(TO_ROWS, g.add(TANH, z)), "b")

    graph, _ = optimize_checked(build, SHAPE)
    assert ops(graph).count("reshape") == 2


def test_reuses_a_reshape_with_other_users():
    def build(g, x):
        flat = g.add(TO_ROWS, x)
        return g.add(TO_ROWS, g.add(Add(), x, g.add(BACK, rows(g, flat, "v"))))

    graph, _ = optimize_checked(build, SHAPE)
    assert ops(graph) == ["reshape", "matrix_mul", "add"]


def test_paths_back_into_the_region_form_no_cycle():
    def build(g, x):
        y = g.add(LayerNorm(2), g.add(BACK, g.add(TANH, g.add(TO_ROWS, x))))
        turned = g.add(Permute((1, 0, 2)), g.add(Softmax(0), g.add(Permute((1, 0, 2)), y)))
        z = g.add(TO_ROWS, g.add(Add(), y, turned))
        return g.add(TO_ROWS, g.add(Softmax(2), y)), z

    graph, _ = optimize_checked(build, SHAPE)
    graph.validate()


def test_names_and_annotations_stay():
    def build(g, x):
        y = annotate(g.add(BACK, annotate(rows(g, annotate(g.add(TO_ROWS, annotate(x))), "v"))))
        y = annotate(g.add(LayerNorm(2), y, name="norm"), OTHER_Q)
        flat = annotate(g.add(TO_ROWS, y, name="flat"), OTHER_Q)
        return rows(g, flat, "w"), annotate(g.add(Permute((1, 0, 2)), y), OTHER_Q)

    graph = graph_of(build, SHAPE)
    trace = optimize(graph)
    assert trace.fired[RULE] == 1
    assert graph.find("norm").shape == SHAPE and graph.find("flat").producer.op == LayerNorm(1)
    assert {graph.find(name).quant for name in ("norm", "flat")} == {OTHER_Q}
    assert graph.find("flat").producer.inputs[0].quant == Q


DECLINES = {
    "no gain": lambda g, x: rows(g, g.add(TO_ROWS, g.add(LayerNorm(2), g.add(Softmax(0), x))), "v"),
    "along a joined axis": around(lambda g, y: g.add(Softmax(1), y)),
    "normalized over several axes": around(lambda g, y: g.add(LayerNorm(1), y, random_constant(g, 5, 8))),
    "expanded along half of a run": around(lambda g, y: g.add(Add(), y, per_sample(g, y))),
}


def per_sample(g, y):
    """A computed per-sample value: rows have no sample axis."""
    return g.add(Softmax(0), g.add(Reduce((1, 2), ReduceMethodType.REDUCE_MAX), y))


@pytest.mark.parametrize("form", DECLINES)
def test_declines(form):
    graph = graph_of(DECLINES[form], SHAPE)
    before = ops(graph).count("reshape")
    found = reasons(optimize(graph), RULE)
    assert found == {"the number of reshapes would not decrease"} and ops(graph).count("reshape") == before


@pytest.mark.parametrize("count", [100, 400])
def test_examines_a_region_without_gain_once(count, monkeypatch):
    """Every matmul uses rows of an add, and a permute adds its result again: one reshape for another."""

    def build(g, x):
        for _ in range(count):
            y = g.add(Reshape((5, 2, 8)), rows(g, g.add(TO_ROWS, x), "w"))
            x = g.add(Add(), x, g.add(Permute((1, 0, 2)), y))
        return x

    looked = []
    whole = reshaped_regions._Region
    monkeypatch.setattr(reshaped_regions, "_Region", lambda *given: looked.append(given) or whole(*given))
    graph = graph_of(build, SHAPE)
    trace = optimize(graph)
    assert reasons(trace, RULE) == {"the number of reshapes would not decrease"} and not trace.fired[RULE]
    largest, rounds = reshaped_regions._LARGEST, 2
    assert len(looked) <= rounds * (2 + count // (largest // 2))


def test_declines_a_change_of_scale():
    def build(g, x):
        y = g.add(BACK, rows(g, g.add(TO_ROWS, x), "v"))
        return rows(g, annotate(g.add(TO_ROWS, annotate(g.add(LayerNorm(2), y), Q)), OTHER_Q), "w")

    graph = graph_of(build, SHAPE)
    optimize(graph)
    assert ops(graph).count("reshape") == 3


def test_declines_per_channel_scales():
    per_channel = QuantParams((0.1,) * 8, (0,) * 8, I8, axis=2)

    def build(g, x):
        y = annotate(g.add(Softmax(2), g.add(BACK, rows(g, g.add(TO_ROWS, x), "v"))), per_channel)
        return rows(g, g.add(TO_ROWS, y), "w")

    graph = graph_of(build, SHAPE)
    optimize(graph)
    assert ops(graph).count("reshape") == 3


def test_quantized_softmax_keeps_its_axis():
    def build(g, x):
        y = annotate(g.add(Reshape((2, 8, 1)), annotate(rows(g, x, "v"))))
        return rows(g, annotate(g.add(Reshape((2, 8)), annotate(g.add(Softmax(0), y), OTHER_Q)), OTHER_Q), "w")

    def build_other(g, x):
        y = annotate(g.add(Reshape((1, 8, 8)), annotate(rows(g, x, "v"))))
        return rows(g, annotate(g.add(Reshape((8, 8)), annotate(g.add(Softmax(1), y), OTHER_Q)), OTHER_Q), "w")

    for function, count, shape in ((build, 0, (2, 8)), (build_other, 2, (8, 8))):
        graph = graph_of(function, shape)
        optimize(graph)
        assert ops(graph).count("reshape") == count


@pytest.mark.parametrize(
    ("before", "after", "runs"),
    [
        ((2, 3, 4, 5), (6, 4, 5), (((0, 1), (0,)), ((2,), (1,)), ((3,), (2,)))),
        ((1, 7, 1, 4), (7, 4), (((1,), (0,)), ((3,), (1,)))),
        ((6, 4), (4, 6), (((0, 1), (0, 1)),)),
        ((2, 6), (2, 3, 2), (((0,), (0,)), ((1,), (1, 2)))),
        ((1, 1), (1,), ()),
    ],
)
def test_runs(before, after, runs):
    found = Regrouping.of(before, after)
    assert found is not None and found.runs == runs


def test_incompatible_shapes_have_no_runs():
    assert Regrouping.of((2, 3), (5,)) is None and Regrouping.of((4,), (2, 4)) is None


def test_shapes_after_the_reshape():
    found = Regrouping.of((2, 3, 1, 5), (6, 1, 5))
    assert found is not None
    assert found.shape((2, 3, 1, 9)) == (6, 1, 9)
    assert found.shape((1, 1, 1, 5)) == (1, 1, 5)
    assert found.shape((1, 3, 1, 5)) is None, "half of a run"
    assert found.shape((2, 3, 2, 5)) is None, "an axis that belongs to no run"
    assert found.shape((2, 3, 5)) is None
    assert [found.kept_axis(axis) for axis in range(4)] == [None, None, None, 2]
