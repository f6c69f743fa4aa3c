"""The graph: building, changing, and what it refuses."""

import copy
import pickle
from collections.abc import Callable

import numpy as np
import pytest

from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.graph.graph import Graph, Source
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.arithmetic import Add
from tpuconvert.schema.ops.concat import Split
from tpuconvert.schema.types import F32, TensorType

RELU = Active(ActiveType.ACTIVE_RELU)


def chain(length: int) -> Graph:
    graph = Graph("chain")
    value = graph.input("x", TensorType(F32, (1, 4)))
    for index in range(length):
        value = graph.add(RELU, value, name=f"y{index}")
    graph.output(value)
    return graph


def test_names_are_unique_and_numbered():
    graph = chain(1)
    again = graph.add(RELU, graph.inputs[0], name="y0")
    third = graph.add(RELU, graph.inputs[0], name="y0")
    assert (again.name, third.name) == ("y0.1", "y0.2")


def test_nodes_carry_the_source_of_the_surrounding_block():
    graph = chain(0)
    source = Source("m.onnx", "relu_7", "Relu")
    with graph.source(source):
        inside = graph.add(RELU, graph.inputs[0])
    outside = graph.add(RELU, graph.inputs[0])
    assert inside.producer.sources == (source,)
    assert outside.producer.sources == ()


def test_failed_source_block_restores_sources():
    graph = chain(0)
    first, second = Source("m.onnx", "a", "Relu"), Source("m.onnx", "b", "Relu")
    with graph.source(first):
        with pytest.raises(ShapeError), graph.source(second):
            graph.add(Add(), graph.inputs[0])
        assert graph.add(RELU, graph.inputs[0]).producer.sources == (first,)


def test_compares_uses_in_order():
    graph = chain(0)
    x = graph.inputs[0]
    total = graph.add(Add(), x, x).producer
    relu = graph.add(RELU, x).producer
    known = [(total, 0), (total, 1), (relu, 0)]
    assert (x.uses == known, x.uses != known) == (True, False)
    assert (x.uses == known[::-1], x.uses != known[::-1]) == (False, True)
    assert (relu, 0) in x.uses and (relu, 1) not in x.uses
    assert x.users == [total, relu]


def test_one_operator_object_on_other_types_gives_other_types():
    graph, split = Graph(), Split(axis=1, num=2)
    shapes = [(1, 4), (1, 6), (1, 4), (3, 4)]
    parts = [graph.add_all(split, graph.input("x", TensorType(F32, shape)))[1] for shape in shapes]
    assert [part.shape for part in parts] == [(1, 2), (1, 3), (1, 2), (3, 2)]
    with pytest.raises(ShapeError):
        graph.add_all(split, graph.input("x", TensorType(F32, (1, 5))))


def test_replace_uses_changes_operands_and_outputs():
    graph = chain(3)
    first, second = graph.find("y0"), graph.find("y1")
    graph.replace_uses(second, first)
    assert graph.find("y2").producer.inputs == (first,)
    assert second.uses == []
    graph.replace_uses(graph.find("y2"), first)
    assert graph.outputs == [first]


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda graph: pickle.loads(pickle.dumps(graph))])
def test_copies_know_their_outputs(copied: Callable[[Graph], Graph]) -> None:
    graph = chain(2)
    graph.output(graph.nodes[0].outputs[0])
    assert graph.is_output(graph.nodes[1].outputs[0])
    made = copied(graph)
    inner, last = (node.outputs[0] for node in made.nodes)
    assert made.is_output(inner) and made.is_output(last)
    assert not made.is_output(made.inputs[0])
    made.replace_uses(last, made.inputs[0])
    assert made.outputs == [made.inputs[0], inner]


def test_prune_keeps_what_outputs_need_and_all_inputs():
    graph = chain(2)
    unused = graph.input("unused", TensorType(F32, (1,)))
    graph.constant(np.zeros(3, np.float32), "lonely")
    graph.add(RELU, graph.find("y0"), name="dead")
    assert graph.prune() == 1
    assert graph.find("dead") is None
    assert graph.find("lonely") is None
    assert unused in graph.inputs and graph.find("unused") is unused


def test_nodes_added_out_of_order_are_sorted():
    graph = chain(2)
    new = graph.add(RELU, graph.inputs[0], name="late")
    graph.replace_uses(graph.find("y0"), new)
    with pytest.raises(ValueError, match="before it is computed"):
        graph.validate()
    graph.sort()
    graph.validate()


def test_a_cycle_is_named():
    graph = chain(2)
    first, second = graph.find("y0"), graph.find("y1")
    graph.set_input(first.producer, 0, second)
    with pytest.raises(ValueError, match="cycle through 'y"):
        graph.sorted_nodes()


def test_a_long_chain_does_not_recurse():
    assert len(chain(5000).sorted_nodes()) == 5000


def test_operand_counts_and_ranks_are_checked_before_infer():
    graph = chain(0)
    with pytest.raises(ShapeError, match="takes 1 operands, got 2"):
        graph.add(RELU, graph.inputs[0], graph.inputs[0])
    with pytest.raises(ShapeError, match="lacks its operand"):
        graph.add(Add(), graph.inputs[0])


def test_constants_of_rank_0_become_rank_1_and_unknown_types_are_refused():
    graph = Graph()
    assert graph.constant(np.float32(2)).shape == (1,)
    with pytest.raises(ValueError, match="no data type for int64"):
        graph.constant(np.arange(3))


def test_several_results_have_names_of_their_own():
    graph = chain(0)
    parts = graph.add_all(Split(axis=1, num=2), graph.inputs[0], names=("a", "b"))
    assert [part.name for part in parts] == ["a", "b"]
    assert [part.shape for part in parts] == [(1, 2), (1, 2)]


def test_rejects_removal_of_used_node():
    graph = chain(2)
    with pytest.raises(AssertionError, match="'y0' is still used"):
        graph.remove(graph.find("y0").producer)
