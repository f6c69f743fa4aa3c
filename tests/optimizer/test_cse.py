"""Merging of equal constants and equal nodes."""

import dataclasses

import numpy as np
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
)
from tpuconvert.optimizer import optimize
from tpuconvert.optimizer.constant_folding import fold_constants
from tpuconvert.optimizer.cse import share_constants, share_nodes
from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.definition.op import OpKind
from tpuconvert.schema.graph.graph import Graph, Source
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.arithmetic import Add, Div, Max, Min, Mul, Sub
from tpuconvert.schema.ops.bit_logic import BitAnd, BitOr, BitXor
from tpuconvert.schema.ops.compare import Eq, Gt, Ne
from tpuconvert.schema.ops.concat import Split
from tpuconvert.schema.ops.customed_ops import CustomedOps
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul
from tpuconvert.schema.types import I8, U8, Arithmetic, TensorType

SHAPE = (2, 4)
RSQRT = Active(ActiveType.ACTIVE_RSQRT)
"""Gives an infinity with the sign of a zero."""


def constants(graph):
    return [value.name for value in graph.values if value.is_constant]


def test_merges_equal_constants():
    def build(g, x):
        return g.add(Max(), x, random_constant(g, *SHAPE)), g.add(Max(), g.add(TANH, x), random_constant(g, *SHAPE))

    graph, trace = optimize_checked(build, SHAPE, rtol=0)
    assert constants(graph) == ["w"] and trace.fired["share_constants"] == 1


def test_compares_bytes_not_values():
    negative = np.array([[-0.0, 1, 2, 3]], np.float32)
    graph = graph_of(
        lambda g, x: (
            g.add(Max(), x, g.constant(np.abs(negative))),
            g.add(Max(), g.add(TANH, x), g.constant(negative)),
        ),
        SHAPE,
    )
    assert share_constants(graph) == 0


def test_keeps_constants_that_differ_late():
    first = np.zeros((100, 100), np.float32)
    second = first.copy()
    second[77, 77] = 1
    graph = graph_of(
        lambda g, x: (g.add(Max(), x, g.constant(first)), g.add(Max(), g.add(TANH, x), g.constant(second))), (100, 100)
    )
    assert share_constants(graph) == 0


def test_keeps_constants_with_different_annotations_or_users():
    data = np.ones((4, 4), np.float32)

    def quantize_operands(g, x):
        pair = [g.constant(data, quant=quant, stored=quant.quantize(data)) for quant in (Q, OTHER_Q)]
        return g.add(Max(), x, pair[0]), g.add(Max(), g.add(TANH, x), pair[1])

    assert share_constants(graph_of(quantize_operands, (4, 4))) == 0

    def other_readers(g, x):
        return g.add(Max(), x, g.constant(data)), g.add(MatrixMul(), x, g.constant(data))

    assert share_constants(graph_of(other_readers, (4, 4))) == 0


def test_merges_equal_nodes_with_both_sources():
    def build(g, x):
        results = []
        for name in ("a", "b"):
            with g.source(Source("m", name, "Relu")):
                results.append(g.add(RELU, x))
        return g.add(Mul(), results[0], g.add(TANH, results[1]))

    graph, _ = optimize_checked(build, SHAPE, rtol=0)
    assert ops(graph) == ["active", "active", "mul"]
    assert [source.node for source in graph.nodes[0].sources] == ["a", "b"]


@pytest.mark.parametrize("op", [Add(), Eq(), Mul(), Ne()], ids=str)
def test_ignores_operand_order_of_commutative_operators(op):
    def build(g, x, y):
        return g.add(Sub(), g.add(TANH, g.add(op, x, y)), g.add(RELU, g.add(op, y, x)))

    graph, trace = optimize_checked(build, SHAPE, SHAPE, rtol=0)
    assert ops(graph).count(op.name) == 1 and trace.fired["share_nodes"] == 1


@pytest.mark.parametrize("op", [BitAnd(), BitOr(), BitXor(), Add(), Max(), Min(), Mul()], ids=str)
def test_ignores_operand_order_of_integer_extrema(op):
    graph = Graph("test")
    x, y = (graph.input(name, TensorType(U8, SHAPE)) for name in "xy")
    joined = graph.add(Gt(), graph.add(op, x, y), graph.add(op, y, x))
    graph.output(joined)
    assert share_nodes(graph) == 1


@pytest.mark.parametrize("op", [Max(), Min()], ids=str)
def test_keeps_operand_order_of_float_extrema(op):
    graphs = [graph_of(lambda g, x, y: (g.add(op, x, y), g.add(RSQRT, g.add(op, y, x))), (1,), (1,)) for _ in range(2)]
    assert share_nodes(graphs[1]) == 0
    optimize(graphs[1])
    feeds = {"x0": np.array([-0.0], np.float32), "x1": np.array([0.0], np.float32)}
    for first, second in zip(*(Session(graph).run(feeds).values() for graph in graphs), strict=True):
        assert first.tobytes() == second.tobytes()


@pytest.mark.parametrize("op", [Sub(), Div(), Gt()], ids=str)
def test_keeps_operand_order_of_other_operators(op):
    graph = graph_of(lambda g, x, y: g.add(Max(), g.add(op, x, y), g.add(op, y, x)), SHAPE, SHAPE)
    assert share_nodes(graph) == 0


def test_keeps_an_operand_order_that_decides_the_type():
    """By default, an integer add has the type of its first operand."""
    graph = Graph("test")
    x, y = graph.input("x", TensorType(I8, SHAPE)), graph.input("y", TensorType(U8, SHAPE))
    sums = [graph.add(Add(), *pair) for pair in ((x, y), (y, x))]
    graph.output(graph.add(Gt(), *sums))
    assert share_nodes(graph) == 0


def test_merges_equal_chains():
    def build(g, x):
        return g.add(Add(), *(g.add(TANH, g.add(RELU, x)) for _ in range(2)))

    assert ops(optimize_checked(build, SHAPE, rtol=0)[0]) == ["active", "active", "muls"], (
        "the sum of equals is twice one"
    )


def test_merges_nodes_with_several_results():
    def build(g, x):
        first, second = (g.add_all(Split(1, 2), x) for _ in range(2))
        return g.add(Add(), first[0], second[1]), g.add(Mul(), second[0], first[1])

    graph, _ = optimize_checked(build, SHAPE, rtol=0)
    assert ops(graph).count("split") == 1


def test_keeps_outputs_and_annotations():
    graph = graph_of(lambda g, x: (g.add(RELU, x, name="a"), g.add(RELU, x, name="b")), SHAPE)
    assert share_nodes(graph) == 0

    def requantize(g, x):
        return g.add(Add(), annotate(g.add(RELU, x)), annotate(g.add(RELU, x), OTHER_Q))

    graph = graph_of(requantize, SHAPE)
    optimize(graph)
    assert len(graph) == 3


def test_does_not_merge_custom_operators(monkeypatch):
    """A custom operator may have side effects."""
    monkeypatch.setattr(type(RELU), "kind", OpKind.CUSTOM)
    graph = graph_of(lambda g, x: g.add(Add(), g.add(RELU, x), g.add(RELU, x)), SHAPE)
    assert share_nodes(graph) == 0


def test_impure_operators_are_neither_merged_nor_folded(monkeypatch):
    """``customed_ops`` is a TPU operator, but it calls a function of the user."""
    monkeypatch.setattr(type(RELU), "is_pure", False)
    graph = graph_of(lambda g, x: g.add(Add(), g.add(RELU, x), g.add(RELU, x)), SHAPE)
    assert share_nodes(graph) == 0
    graph = graph_of(lambda g, x: g.add(Add(), x, g.add(RELU, random_constant(g, *SHAPE))), SHAPE)
    assert fold_constants(graph)[0] == 0
    assert not CustomedOps(op_type=1).is_pure


@pytest.mark.parametrize(("arithmetic", "left"), [(Arithmetic.OPERATOR, 1), (Arithmetic.SHIFT, 2)])
def test_nodes_of_different_kernels_stay(arithmetic, left):
    """A requantization by a shift rounds differently from one by a multiplier with equal parameters."""

    def requantize(g, x):
        quants = OTHER_Q, dataclasses.replace(OTHER_Q, arithmetic=arithmetic)
        values = [annotate(g.add(TANH, x), quant) for quant in quants]
        return annotate(g.add(Add(), *values))

    graph = graph_of(requantize, SHAPE)
    share_nodes(graph)
    assert ops(graph).count("active") == left
