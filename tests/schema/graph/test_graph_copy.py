"""Copies of parts of a graph."""

import pickle

import numpy as np
import pytest

from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.graph.graph_copy import FlatGraph, copy_graph, copy_subgraph, specialize
from tpuconvert.schema.ops.arithmetic import Add, Mul
from tpuconvert.schema.ops.resize import ResizeWeighted
from tpuconvert.schema.types import DType, QuantParams, TensorType


def two_branches() -> Graph:
    """``y = (x * 2) + (x * 2) * x``; the intermediate values are called ``double`` and ``square``."""
    g = Graph("branches")
    x = g.input("x", TensorType(DType.FLOAT32, (2,)))
    double = g.add(Mul(), x, g.constant(np.full(2, 2, np.float32), "two"), name="double")
    square = g.add(Mul(), double, x, name="square")
    g.output(g.add(Add(), double, square, name="y"))
    return g


def test_a_subgraph_begins_and_ends_at_the_given_values() -> None:
    graph = two_branches()
    values = {value.name: value for value in graph.values}
    part = copy_subgraph(graph, [values["double"], values["x"]], [values["square"], values["y"]])
    assert [node.name for node in part.nodes] == ["square", "y"]
    with Session(part) as session:
        found = session.run({"double": np.float32([10, 20]), "x": np.float32([3, 4])})
    assert {name: array.tolist() for name, array in found.items()} == {"square": [30, 80], "y": [40, 100]}
    assert len(graph) == 3


def test_a_subgraph_has_only_the_constants_that_it_needs() -> None:
    graph = two_branches()
    values = {value.name: value for value in graph.values}
    first = copy_subgraph(graph, [values["x"]], [values["double"]])
    last = copy_subgraph(graph, [values["double"], values["square"]], [values["y"]])
    assert first.find("two") is not None
    assert last.find("two") is None


def test_an_output_of_a_subgraph_may_be_a_constant() -> None:
    graph = two_branches()
    values = {value.name: value for value in graph.values}
    part = copy_subgraph(graph, [values["x"]], [values["two"], values["x"]])
    with Session(part) as session:
        found = session.run({"x": np.float32([3, 4])})
    assert {name: array.tolist() for name, array in found.items()} == {"two": [2, 2], "x": [3, 4]}


def test_a_subgraph_without_one_of_its_inputs_is_refused() -> None:
    graph = two_branches()
    values = {value.name: value for value in graph.values}
    with pytest.raises(ValueError, match="'y' depends on 'x', which is not among the inputs"):
        copy_subgraph(graph, [values["double"]], [values["y"]])


def test_a_flat_graph_is_pickled_and_built_again() -> None:
    graph = two_branches()
    graph.outputs[0].quant = QuantParams((0.5,), (3,), DType.INT8)
    built = pickle.loads(pickle.dumps(FlatGraph.of(graph))).build()
    assert [str(node) for node in built.nodes] == [str(node) for node in graph.nodes]
    assert [(value.name, value.type, value.quant) for value in built.values if not value.is_constant] == [
        (value.name, value.type, value.quant) for value in graph.values if not value.is_constant
    ]
    assert (built.input_ports, built.output_ports) == (graph.input_ports, graph.output_ports)
    feeds = {"x": np.float32([3, 4])}
    with Session(graph) as first, Session(built) as second:
        assert first.run(feeds)["y"].tolist() == second.run(feeds)["y"].tolist()


def test_a_deep_graph_is_pickled() -> None:
    graph = Graph("deep")
    x = graph.input("x", TensorType(DType.FLOAT32, (2,)))
    value = x
    for _ in range(5000):
        value = graph.add(Add(), value, x)
    graph.output(value)
    assert len(pickle.loads(pickle.dumps(FlatGraph.of(graph))).build()) == 5000


def test_expansions_leave_the_names_of_later_values_to_them() -> None:
    resize = ResizeWeighted(scales=(1.0, 2.0), sizes=(0, 0), has_interpolate=False)
    parts = Graph()
    parts.output(parts.add(resize, parts.input("x", TensorType(DType.FLOAT32, (1, 1, 2, 3))), name="resized"))
    inner = [node.name for node in copy_graph(parts, {}).nodes if node.name != "resized"]
    assert inner, "the operator expands to several nodes"
    g = Graph()
    x = g.input("x", TensorType(DType.FLOAT32, ("N", 1, 2, 3)))
    g.output(g.add(resize, x, name="resized"))
    for name in inner:
        g.output(g.add(Mul(), x, x, name=name))
    for copy in (specialize(g, [(4, 1, 2, 3)]), copy_graph(g, {"N": 4})):
        for node in g.nodes[1:]:
            twin = copy.find(node.name)
            assert twin is not None and twin.producer is not None
            assert twin.producer.op == node.op
