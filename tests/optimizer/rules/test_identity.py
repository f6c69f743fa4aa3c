"""Removal of no-ops."""

import numpy as np
import pytest

from tests.support.rules.graphs import OTHER_Q, RELU, TANH, Q, annotate, graph_of, ops, optimize_checked, reasons
from tpuconvert.optimizer import optimize
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.ops.arithmetic_with_scalar import Adds, Divs, Muls, Subs
from tpuconvert.schema.ops.concat import Concat
from tpuconvert.schema.ops.copy import Copy
from tpuconvert.schema.ops.extract import Extract
from tpuconvert.schema.ops.pad import Pad
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.shape_change import ExpandDims, Reshape, Squeeze
from tpuconvert.schema.ops.tile import Broadcast, Repeat, Tile
from tpuconvert.schema.types import F32, Scalar, TensorType

SHAPE = (2, 3, 4)


def scalar(value):
    return Scalar.f32(value)


@pytest.mark.parametrize(
    ("rule", "op"),
    [
        ("remove_copy", Copy()),
        ("remove_neutral_scalar", Adds(scalar(0))),
        ("remove_neutral_scalar", Subs(scalar(0))),
        ("remove_neutral_scalar", Muls(scalar(1))),
        ("remove_neutral_scalar", Divs(scalar(1))),
        ("remove_shape_noop", Pad(scalar(0), (0,) * 6)),
        ("remove_shape_noop", Extract((0, 0, 0), SHAPE, (1, 1, 1))),
        ("remove_shape_noop", Tile((1, 1, 1))),
        ("remove_shape_noop", Broadcast((1, 1, 1))),
        ("remove_shape_noop", Repeat((1, 1, 1))),
        ("remove_shape_noop", Reshape((2, -1, 4))),
        ("remove_single_concat", Concat(1)),
        ("convert_unit_permute_to_reshape", Permute((0, 1, 2))),
    ],
    ids=str,
)
def test_fires(rule, op):
    graph, trace = optimize_checked(lambda g, x: g.add(RELU, g.add(op, x), name="y"), SHAPE, rtol=0)
    assert ops(graph) == ["active"] and graph.outputs[0].name == "y"
    assert trace.fired[rule] == 1


@pytest.mark.parametrize("op", [Copy(), Adds(scalar(0)), Reshape(SHAPE), Concat(0), Tile((1, 1, 1))], ids=str)
def test_declines_to_remove_a_requantization(op):
    graph = graph_of(lambda g, x: annotate(g.add(op, annotate(g.add(TANH, x))), OTHER_Q), SHAPE)
    trace = optimize(graph)
    assert len(graph) == 2
    assert {reason for _, reason in trace.skip_counts} == {"it changes the quantization"}


@pytest.mark.parametrize(
    "op",
    [
        Adds(scalar(1)),
        Muls(scalar(-1)),
        Pad(scalar(0), (0, 0, 0, 1, 0, 0)),
        Extract((0, 1, 0), SHAPE, (1, 1, 1)),
        Tile((1, 2, 1)),
        Permute((1, 0, 2)),
    ],
    ids=str,
)
def test_keeps_nodes_that_have_an_effect(op):
    graph, trace = optimize_checked(lambda g, x: g.add(op, x), SHAPE, rtol=0)
    assert ops(graph) == [op.name]
    assert not any(trace.fired.values())


@pytest.mark.parametrize(
    ("chain", "shape"),
    [
        ((ExpandDims(1), Squeeze((1,))), SHAPE),
        ((Squeeze(), ExpandDims(0, 2)), (1, 1, 5)),
        ((Reshape((6, 4)), Reshape((4, 6)), Reshape(SHAPE)), SHAPE),
    ],
    ids=["expand, squeeze", "squeeze, expand", "reshapes"],
)
def test_shape_changes_cancel(chain, shape):
    def build(g, x):
        for op in chain:
            x = g.add(op, x)
        return g.add(RELU, x)

    assert ops(optimize_checked(build, shape, rtol=0)[0]) == ["active"]


def test_merges_several_shape_changes():
    def build(g, x):
        return g.add(Reshape((3, 8)), g.add(Squeeze((0,)), g.add(ExpandDims(0), x)))

    graph, _ = optimize_checked(build, SHAPE, rtol=0)
    assert [node.op for node in graph.nodes] == [Reshape((3, 8))]


def test_converts_a_permute_of_unit_axes_to_reshape():
    graph, _ = optimize_checked(lambda g, x: g.add(Permute((0, 2, 3, 1)), x), (2, 5, 1, 1), rtol=0)
    assert [node.op for node in graph.nodes] == [Reshape((2, 1, 1, 5))]


def test_copies_or_infers_one_symbolic_extent():
    graph = Graph()
    x = graph.input("x", TensorType(F32, (1, "N", 4)))
    graph.output(graph.add(RELU, graph.add(Reshape((-1, 2, 2)), graph.add(Squeeze((0,)), x))))
    graph.output(graph.add(RELU, graph.add(ExpandDims(0), x)))
    optimize(graph)
    assert [node.op for node in graph.nodes] == [Reshape((-1, 2, 2)), RELU, Reshape((1, 1, -1, 4)), RELU]
    assert [value.shape for value in graph.outputs] == [("N", 2, 2), (1, 1, "N", 4)]


def test_keeps_shapes_that_a_reshape_cannot_express():
    graph = Graph()
    x = graph.input("x", TensorType(F32, (1, "H", "W")))
    graph.output(graph.add(Squeeze((0,)), x))
    trace = optimize(graph)
    assert ops(graph) == ["squeeze"]
    assert "its shape is dynamic" in reasons(trace, "convert_squeeze_to_reshape")


def test_keeps_shape_changes_of_empty_tensors():
    graph = graph_of(lambda g, x: g.add(RELU, g.add(ExpandDims(1), x)), (0, 3))
    trace = optimize(graph)
    assert reasons(trace, "convert_squeeze_to_reshape") == {"it has no elements"}


def test_two_outputs_may_be_one_tensor():
    def build(g, x):
        y = g.add(RELU, x, name="y")
        return y, g.add(Copy(), y, name="z")

    graph, _ = optimize_checked(build, SHAPE, rtol=0)
    assert [port.name for port in graph.output_ports] == ["y", "z"]
    assert graph.outputs[0] is graph.outputs[1]


def test_keeps_equal_annotations():
    def build(g, x):
        y = annotate(g.add(TANH, x, name="y"))
        return annotate(g.add(Copy(), y, name="z"))

    graph = graph_of(build, SHAPE)
    optimize(graph)
    assert ops(graph) == ["active"] and graph.outputs[0].quant == Q
    assert np.isfinite(graph.outputs[0].quant.scale[0])
