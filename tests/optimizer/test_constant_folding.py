"""Constant folding."""

import numpy as np
import pytest

from tests.support.rules.graphs import OTHER_Q, RELU, Q, annotate, graph_of, ops, optimize_checked, random_constant
from tpuconvert.optimizer import optimize
from tpuconvert.optimizer.constant_folding import fold_constants
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.ops.arithmetic import Add, Mul
from tpuconvert.schema.ops.concat import Split
from tpuconvert.schema.ops.copy import Copy
from tpuconvert.schema.ops.index_select import IndexSelect
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.shape_change import ExpandDims, Reshape, Squeeze
from tpuconvert.schema.system.constant_budget import constant_budget
from tpuconvert.schema.system.limits import limited
from tpuconvert.schema.types import F32, I8, QuantParams, TensorType

SHAPE = (3, 4)


def test_a_chain_is_folded_and_keeps_its_names():
    def build(g, x):
        c = g.add(RELU, random_constant(g, *SHAPE), name="positive")
        c = g.add(Add(), c, g.constant(np.full((1, 1), 2, np.float32)), name="moved")
        return g.add(Mul(), x, c)

    graph, trace = optimize_checked(build, SHAPE)
    assert ops(graph) == ["mul"] and trace.fired["fold_constants"] == 2
    assert [value.name for value in graph.values if value.is_constant] == ["moved"]


def test_several_results():
    def build(g, x):
        first, second = g.add_all(Split(0, 2), random_constant(g, 6, 4), names=("a", "b"))
        return g.add(Add(), g.add(Mul(), x, first), second)

    graph, _ = optimize_checked(build, SHAPE)
    assert ops(graph) == ["mul", "add"] and {"a", "b"} <= {value.name for value in graph.values}


def test_reports_the_size_limit():
    graph = graph_of(lambda g, x: g.add(Mul(), x, g.add(RELU, random_constant(g, *SHAPE), name="big")), SHAPE)
    with limited(folded_bytes=47):
        assert fold_constants(graph) == (0, ["'big' would be a constant of 48 bytes, the cap is 47"])
    with limited(folded_bytes=48):
        assert fold_constants(graph) == (1, [])


def test_stays_within_the_budget_of_all_constants():
    with limited(computed_bytes=100), constant_budget("m.onnx", 0):
        graph = Graph()
    x = graph.input("x", TensorType(F32, SHAPE))
    for index in range(2):
        graph.output(graph.add(Mul(), x, graph.add(RELU, random_constant(graph, *SHAPE), name=f"c{index}")))
    folded, left = fold_constants(graph)
    assert folded == 0 and left[0] == "'c0' would be a constant of 48 bytes, more than all constants may still have"


def test_size_limit_is_in_the_trace():
    graph = graph_of(lambda g, x: g.add(Mul(), x, g.add(RELU, random_constant(g, *SHAPE), name="big")), SHAPE)
    lines = []
    with limited(folded_bytes=47):
        optimize(graph, trace=lines.append)
    assert lines == ["fold_constants: skipped 1: 'big' would be a constant of 48 bytes, the cap is 47"]


def test_keeps_nodes_of_graph_outputs():
    graph = graph_of(lambda g, x: (g.add(RELU, random_constant(g, *SHAPE)), g.add(RELU, x)), SHAPE)
    optimize(graph)
    assert ops(graph) == ["active", "active"]


def test_keeps_and_reports_nodes_that_cannot_be_evaluated():
    def build(g, x):
        picked = g.add(IndexSelect(0), random_constant(g, *SHAPE), g.constant(np.array([0, 1, 7], np.int32)), name="p")
        return g.add(Mul(), x, picked)

    folded, (line,) = fold_constants(graph_of(build, SHAPE))
    assert folded == 0 and line.startswith("'p' cannot be evaluated: ") and "7" in line


PER_ROW = QuantParams((0.5, 0.25, 2.0), (0, 1, 2), I8, axis=0)
STORED = np.arange(12, dtype=np.int8).reshape(SHAPE)


def move_constant(g, op, params=PER_ROW, result=None):
    c = g.constant(params.dequantize(STORED), "c", params, STORED)
    y = g.add(op, c, name="y")
    y.quant = result
    return y


@pytest.mark.parametrize(
    ("op", "axis"),
    [
        (Permute((1, 0)), 1),
        (Reshape((3, 2, 2)), 0),
        (Reshape((1, 3, 4)), 1),
        (ExpandDims(0), 1),
        (ExpandDims(1), 0),
        (Copy(), 0),
    ],
    ids=str,
)
@pytest.mark.parametrize("stated", [True, False], ids=["result annotated", "result bare"])
def test_moves_stored_integers_with_the_values(op, axis, stated):
    expected = QuantParams(PER_ROW.scale, PER_ROW.zero_point, I8, axis)
    graph = graph_of(
        lambda g, x: (
            g.add(Add(), g.add(Reshape((1,) * y.rank), x), y)
            if (y := move_constant(g, op, result=expected if stated else None))
            else None
        ),
        (1, 1),
    )
    assert fold_constants(graph) == (1, [])
    y = graph.find("y")
    assert y.is_constant and y.quant == expected
    np.testing.assert_array_equal(y.quant.dequantize(y.stored), y.array)


@pytest.mark.parametrize(
    ("build", "line"),
    [
        (
            lambda g, x: g.add(Mul(), x, g.add(RELU, move_constant(g, Copy()), name="y2")),
            "'y2' (active) would lose the quantization of its operand or result",
        ),
        (
            lambda g, x: g.add(Mul(), x, annotate(g.add(RELU, random_constant(g, *SHAPE), name="y"))),
            "'y' (active) would lose the quantization of its operand or result",
        ),
        (
            lambda g, x: g.add(Mul(), x, move_constant(g, Copy(), Q, OTHER_Q)),
            "'y' changes the quantization of its operand",
        ),
        (
            lambda g, x: g.add(Mul(), g.add(Reshape((2, 6)), x), move_constant(g, Reshape((2, 6)))),
            "'y' (reshape) mixes the axis that has one scale per index",
        ),
    ],
)
def test_keeps_annotated_constants(build, line):
    graph = graph_of(build, SHAPE)
    _, left = fold_constants(graph)
    assert left == [line] and len(graph) >= 2


def test_squeezed_integers():
    graph = graph_of(
        lambda g, x: g.add(Add(), x, g.add(Squeeze((0,)), g.add(ExpandDims(0), move_constant(g, Copy())))), SHAPE
    )
    assert fold_constants(graph)[0] == 3
    (constant,) = [value for value in graph.values if value.is_constant]
    assert constant.quant == PER_ROW and np.array_equal(constant.stored, STORED)
