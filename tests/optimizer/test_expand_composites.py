"""Expansion of composite operators into TPU operators."""

import numpy as np
import pytest

from tpuconvert.optimizer import expand_composites, expand_where_illegal, is_expandable
from tpuconvert.optimizer.constant_folding import fold_constants
from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.definition.op import OpKind
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.file.file_format import FileModel, read_model, write_model
from tpuconvert.schema.graph.graph import Graph, Source
from tpuconvert.schema.ops.arithmetic import Add
from tpuconvert.schema.ops.attention import Attention
from tpuconvert.schema.ops.batch_matmul import BatchMatmul
from tpuconvert.schema.ops.channel_shuffle import ChannelShuffle
from tpuconvert.schema.ops.normalization import GroupNorm, LayerNorm
from tpuconvert.schema.ops.recurrent.recurrent_cell import LstmCell
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.ops.smooth_activation import Gelu, GeluForm, Silu
from tpuconvert.schema.types import F32, I8, Chip, QuantParams, TensorType

SOURCES = (Source("m.onnx", "block/gelu", "Gelu"),)


def encoder():
    """A normalization, attention, a residual add and further composites, with a node of two results at the end."""
    rng = np.random.default_rng(3)
    g = Graph("encoder", "m.onnx")
    x = g.input("x", TensorType(F32, (2, 3, 4)))

    def constant(*shape):
        return g.constant(rng.normal(size=shape).astype(np.float32), "w")

    y = g.add(LayerNorm(), x, constant(4), constant(4), name="norm")
    q = g.add(BatchMatmul(), y, constant(4, 4), name="q")
    y = g.add(Attention(), q, y, y, name="attended")
    with g.source(*SOURCES):
        y = g.add(Gelu(GeluForm.TANH), y, name="gelu")
    y = g.add(GroupNorm(3), y, name="groups")
    rows = g.add(BatchMatmul(), y, constant(2, 4, 1), name="rows")
    hidden = g.constant(np.zeros((2, 5), np.float32), "h")
    flat = g.add(Reshape((2, 3)), rows, name="flat")
    state = g.add_all(
        LstmCell(), flat, hidden, hidden, constant(3, 20), constant(5, 20), constant(1, 20), names=("h1", "c1")
    )
    for value in state:
        g.output(value)
    g.output(y)
    return g


def results(graph):
    x = np.random.default_rng(1).normal(size=(2, 3, 4)).astype(np.float32)
    with Session(graph) as session:
        return session.run({"x": x})


def composites(graph):
    return [node.op.name for node in graph.nodes if node.op.kind is OpKind.COMPOSITE]


def test_expands_all_composites_with_equal_results():
    graph = encoder()
    expected = results(graph)
    count = len(composites(graph))
    assert expand_composites(graph) == count == 7
    graph.validate()
    assert composites(graph) == []
    found = results(graph)
    assert list(found) == list(expected) == ["h1", "c1", "groups"]
    for name, array in expected.items():
        # some hundred operators in binary32 instead of seven roundings
        np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-5)
    assert expand_composites(graph) == 0


def test_keeps_names_sources_and_annotations():
    graph = encoder()
    graph.find("gelu").quant = QuantParams.per_tensor(0.1, 0, I8)
    expand_composites(graph)
    for name in ("norm", "q", "attended", "gelu", "groups", "rows", "h1", "c1"):
        assert graph.find(name) is not None
    assert graph.find("gelu").quant == QuantParams.per_tensor(0.1, 0, I8)
    inside = [node for node in graph.nodes if node.name.startswith("gelu")]
    assert len(inside) > 5
    assert all(node.sources == SOURCES for node in inside)
    assert all(node.name.startswith("norm:") for node in graph.nodes[: graph.nodes.index(graph.find("norm").producer)])


def test_expands_only_selected_nodes():
    graph = encoder()
    assert expand_composites(graph, lambda node: node.op.name == "gelu") == 1
    assert "gelu" not in composites(graph)
    assert len(composites(graph)) == 6


def test_expands_where_the_chip_lacks_the_operator():
    graph = encoder()
    assert expand_where_illegal(graph, Chip.BM1684) == 0
    assert expand_where_illegal(graph, Chip.BM1682) == 1
    assert "attention" not in composites(graph)
    assert graph.find("attended").producer.op.name != "attention"


def test_rejects_symbolic_extents_that_an_expansion_needs():
    graph = Graph("g")
    x = graph.input("x", TensorType(F32, ("N", 2, 2)))
    graph.output(graph.add(BatchMatmul(), x, x))
    (node,) = graph.nodes
    assert not is_expandable(node)
    assert expand_composites(graph, is_expandable) == 0
    assert expand_where_illegal(graph, Chip.BM1684) == 0
    with pytest.raises(ShapeError, match="extents that are numbers"):
        expand_composites(graph)


def test_a_composite_of_constants():
    graph = Graph("g")
    x = graph.input("x", TensorType(F32, (1, 4)))
    c = graph.constant(np.arange(4, dtype=np.float32).reshape(1, 4), "c")
    graph.output(graph.add(ChannelShuffle(2), c, name="shuffled"))
    graph.output(graph.add(ChannelShuffle(1), x, name="same"))
    expand_composites(graph)
    graph.validate()
    with Session(graph) as session:
        found = session.run({"x": np.ones((1, 4), np.float32)})
    np.testing.assert_array_equal(found["shuffled"], [[0, 2, 1, 3]])
    np.testing.assert_array_equal(found["same"], np.ones((1, 4)))


def test_composites_of_constants_are_folded():
    graph = Graph("g")
    x = graph.input("x", TensorType(F32, (2,)))
    y = graph.add(Silu(), graph.constant(np.ones(2, np.float32)))
    graph.output(graph.add(Add(), x, y))
    assert fold_constants(graph)[0] == 1
    assert composites(graph) == []


def test_the_file_keeps_composites_whole(tmp_path):
    graph = encoder()
    write_model(tmp_path / "m.tpum", FileModel(graph, Chip.BM1686, "1.0"))
    read = read_model(tmp_path / "m.tpum").graph
    assert [node.op for node in read.nodes] == [node.op for node in graph.nodes]
    for name, array in results(graph).items():
        np.testing.assert_array_equal(results(read)[name], array)
