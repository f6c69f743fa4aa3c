"""Sessions: conversion of inputs and outputs, plan, threads, errors."""

import threading

import numpy as np
import pytest

from tpuconvert.runtime.native.builder import loader
from tpuconvert.runtime.reference.plan import make_plan
from tpuconvert.runtime.session import session as session_module
from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.errors import MissingExtraError, RunError, UsageError
from tpuconvert.schema.file.file_format import FileModel, write_model
from tpuconvert.schema.graph.graph import Graph, Port
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.arithmetic import Add
from tpuconvert.schema.ops.arithmetic_with_scalar import Adds
from tpuconvert.schema.ops.compare import Gts
from tpuconvert.schema.ops.convolution.conv import Conv
from tpuconvert.schema.ops.index_select import IndexSelect
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.reduce import Reduce, ReduceMethodType
from tpuconvert.schema.ops.selection import MaskedSelect
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.types import F32, I8, I32, Chip, QuantParams, Scalar, TensorType

RELU = Active(ActiveType.ACTIVE_RELU)


def adder(shape=(2, 3), dtype=F32, ports=None) -> Graph:
    graph = Graph("adder")
    a = graph.input("a", TensorType(dtype, shape), port=ports and ports[0])
    b = graph.input("b", TensorType(dtype, shape), port=ports and ports[1])
    graph.output(graph.add(Add(), a, b, name="sum"), port=ports and ports[2])
    return graph


def test_runs_and_keeps_names_order_and_types():
    with Session(adder()) as session:
        assert [item.name for item in session.inputs] == ["a", "b"]
        out = session.run({"b": np.ones((2, 3), np.float32), "a": np.full((2, 3), 2, np.float32)})
    assert list(out) == ["sum"]
    assert out["sum"].dtype == np.float32 and (out["sum"] == 3).all()


def test_ports_keep_64_bit_rank_0_bool_and_quantized_types():
    ports = (Port("a", "int64", ()), Port("b", "int64", ()), Port("sum", "int64", ()))
    with Session(adder((1,), I32, ports)) as session:
        out = session.run({"a": np.int64(5), "b": np.int64(-7)})
    assert out["sum"].shape == () and out["sum"].dtype == np.int64 and out["sum"] == -2
    quant = QuantParams.per_tensor(0.5, 10, I8)
    ports = (Port("a", "int8", (2,), quant), Port("b", "bool", (2,)), Port("sum", "int8", (2,), quant))
    with Session(adder((2,), F32, ports)) as session:
        out = session.run({"a": np.array([12, 8], np.int8), "b": np.array([True, False])})
    assert out["sum"].tolist() == [14, 8]  # (1 + 1) / 0.5 + 10, (-1 + 0) / 0.5 + 10


def test_symbolic_extents_agree_within_a_run():
    with Session(adder(("N", 3))) as session:
        for batch in (1, 4):
            ones = np.ones((batch, 3), np.float32)
            assert session.run({"a": ones, "b": ones})["sum"].shape == (batch, 3)
        with pytest.raises(UsageError, match=r"input 'b' has shape \[2, 3\], the model takes \[N=4, 3\]"):
            session.run({"a": np.ones((4, 3), np.float32), "b": np.ones((2, 3), np.float32)})


@pytest.mark.parametrize(
    ("feeds", "text"),
    [
        ({"a": 1.0}, r"missing inputs \['b'\]"),
        ({"a": 1.0, "b": 1.0, "c": 1.0}, r"unknown inputs \['c'\]; the model takes \['a', 'b'\]"),
        ({"a": np.ones((2, 3), complex), "b": np.ones((2, 3))}, "type complex128, the model takes float32"),
        ({"a": np.ones((3, 2)), "b": np.ones((2, 3))}, r"shape \[3, 2\], the model takes \[2, 3\]"),
    ],
)
def test_feeds_that_do_not_fit(feeds, text):
    with Session(adder()) as session, pytest.raises(UsageError, match=text):
        session.run(feeds)


def test_integers_outside_int32_are_refused():
    ports = (Port("a", "int64", (1,)), Port("b", "int64", (1,)), Port("sum", "int64", (1,)))
    with Session(adder((1,), I32, ports)) as session, pytest.raises(UsageError, match="outside int32"):
        session.run({"a": np.array([2**40]), "b": np.array([0])})


def test_an_operator_that_fails_names_its_node():
    graph = Graph("g", "g.onnx")
    x = graph.input("x", TensorType(F32, (3,)))
    index = graph.input("index", TensorType(I32, (1,)))
    graph.output(graph.add(IndexSelect(dim=0), x, index, name="picked"))
    with Session(graph) as session, pytest.raises(RunError, match=r"g\.onnx: node 'picked': index_select failed"):
        session.run({"x": np.zeros(3, np.float32), "index": np.array([7], np.int32)})


def test_memory_is_released_after_the_last_reader():
    graph = Graph()
    value = graph.input("x", TensorType(F32, (1,)))
    for index in range(4):
        value = graph.add(RELU, value, name=f"y{index}")
    graph.output(value)
    plan = make_plan(graph)
    released = [slot for step in plan.steps for slot in step.release]
    assert len(released) == len(set(released)) == 4  # x and all results but the output
    assert plan.outputs[0] not in released


def test_outputs_belong_to_the_caller():
    graph = Graph()
    x = graph.input("x", TensorType(F32, (2,)))
    graph.output(x, Port("same", "float32", (2,)))
    given = np.zeros(2, np.float32)
    with Session(graph) as session:
        out = session.run({"x": given})["same"]
    out[0] = 5
    assert given[0] == 0


def test_threads_share_a_session():
    results = {}
    with Session(adder()) as session:

        def work(number):
            full = np.full((2, 3), number, np.float32)
            results[number] = [session.run({"a": full, "b": full})["sum"] for _ in range(50)]

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert all((out == 2 * number).all() for number, outs in results.items() for out in outs)
    assert len(results) == 4


def test_options_that_do_not_exist():
    with pytest.raises(UsageError, match="auto, native and reference"):
        Session(adder(), backend="gpu")
    with pytest.raises(UsageError, match="at least one thread"):
        Session(adder(), threads=0)


def test_without_the_extension_auto_runs_on_numpy_and_native_says_what_is_missing(monkeypatch):
    monkeypatch.setattr(loader, "extension", lambda: None)
    monkeypatch.setattr(session_module, "extension", lambda: None)
    with pytest.raises(MissingExtraError, match="no native engine"):
        Session(adder(), backend="native")
    with Session(adder()) as session:
        assert session.backend == "reference"
        assert session.memory == {}


def test_an_instruction_set_that_is_not_there_is_named(monkeypatch):
    if loader.extension() is None:
        pytest.skip("the native engine is not built")
    monkeypatch.setenv("TPUCONVERT_ISA", "sse9")
    with pytest.raises(UsageError, match="sse9"):
        Session(adder())


def classifier() -> Graph:
    """Convolution, pooling, flattening and a product, with open numbers of samples and rows."""
    rng = np.random.default_rng(3)
    graph = Graph("classifier")
    x = graph.input("x", TensorType(F32, ("N", 2, "H", 6)))
    w = graph.constant(rng.normal(size=(4, 2, 3, 3)).astype(np.float32))
    y = graph.add(RELU, graph.add(Conv(pad_h_t=1, pad_h_b=1), x, w, name="features"))
    y = graph.add(Reduce((2, 3), ReduceMethodType.REDUCE_MEAN, keep_dims=False), y)
    graph.output(graph.add(MatrixMul(), y, graph.constant(rng.normal(size=(4, 3)).astype(np.float32)), name="y"))
    return graph


SHAPES = [(1, 2, 5, 6), (4, 2, 5, 6), (1, 2, 9, 6), (2, 2, 7, 6), (3, 2, 7, 6), (1, 2, 5, 6)]


def test_open_extents_get_a_plan_per_set_of_numbers():
    graph = classifier()
    with Session(graph, backend="reference") as reference, Session(graph) as session:
        assert session.memory == {}
        for seed, shape in enumerate(SHAPES):
            x = np.random.default_rng(seed).normal(size=shape).astype(np.float32)
            found, wanted = session.run({"x": x})["y"], reference.run({"x": x})["y"]
            assert found.shape == (shape[0], 3)
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)  # sums in another order
        if loader.extension() is not None:
            assert session.backend == "native"
            assert session.memory["arena"] > 0
            assert session.reference_nodes == []
            assert [step.is_reference for step in session.profile({"x": x})].count(True) == 0


def test_open_extents_are_observed_as_values_of_the_model():
    graph, seen = classifier(), {}
    with Session(graph) as session:
        x = np.ones((3, 2, 4, 6), np.float32)
        session.run({"x": x}, observe=lambda value, array: seen.update({value: array.shape}))
    assert seen[graph.inputs[0]] == x.shape
    assert seen[graph.find("features")] == (3, 4, 4, 4)
    assert seen[graph.outputs[0]] == (3, 3)


def test_borrowed_arrays_have_the_values_of_copies():
    graph, copies, borrowed = classifier(), {}, {}
    x = np.random.default_rng(0).normal(size=(3, 2, 4, 6)).astype(np.float32)
    with Session(graph) as session:
        session.run({"x": x}, observe=lambda value, array: copies.update({value.name: array}))
        session.run({"x": x}, observe=lambda value, array: borrowed.update({value.name: array.copy()}), borrow=True)
    assert list(borrowed) == list(copies) and len(copies) > 3
    for name, array in copies.items():
        np.testing.assert_array_equal(borrowed[name], array)


@pytest.mark.parametrize("backend", ["native", "reference"])
def test_int8_inputs_that_are_only_moved_are_observed_as_int8(backend):
    if backend == "native" and loader.extension() is None:
        pytest.skip("no native engine")
    g, seen = Graph("g"), {}
    x = g.input("x", TensorType(I8, (1, 2, 3)))
    moved = g.add(Permute(order=(0, 2, 1)), x, name="moved")
    g.output(g.add(Reshape((6,)), moved, name="y"))
    numbers = np.array([[[-128, -1, 0], [1, 2, 127]]], np.int8)
    with Session(g, backend=backend) as session:
        session.run({"x": numbers}, observe=lambda value, array: seen.update({value.name: array}))
    assert {name: array.dtype.name for name, array in seen.items()} == dict.fromkeys(("x", "moved", "y"), "int8")
    np.testing.assert_array_equal(seen["moved"], numbers.transpose(0, 2, 1))


def test_numbers_that_the_model_cannot_take():
    with Session(classifier()) as session, pytest.raises((UsageError, RunError)) as caught:
        session.run({"x": np.ones((1, 2, 0, 6), np.float32)})
    if loader.extension() is not None:
        assert "the model cannot take inputs with N=1, H=0" in str(caught.value)


def test_parts_between_data_dependent_extents_are_native():
    graph = Graph()
    x = graph.input("x", TensorType(F32, (5,)))
    doubled = graph.add(Adds(Scalar.f32(1)), x, name="before")
    chosen = graph.add(MaskedSelect(), doubled, graph.add(Gts(Scalar.f32(1)), doubled), name="chosen")
    graph.output(graph.add(Adds(Scalar.f32(2)), chosen, name="y"))
    with Session(graph) as session:
        assert session.run({"x": np.array([1, -1, 2, 0, 3], np.float32)})["y"].tolist() == [4, 5, 6]
        assert session.run({"x": np.array([-1, -1, 0, 0, 3], np.float32)})["y"].tolist() == [6]
        assert session.run({"x": np.full(5, -1, np.float32)})["y"].shape == (0,)
        if loader.extension() is not None:
            assert session.backend == "native"
            assert session.reference_nodes == ["chosen", "y"]
            kinds = {step.name: step.is_reference for step in session.profile({"x": np.ones(5, np.float32)})}
            assert kinds["chosen"] and not kinds["before"]
        observed = []
        session.run({"x": np.zeros(5, np.float32)}, observe=lambda value, _: observed.append(value.name))
        assert observed[0] == "x" and observed[-1] == "y"


def test_sessions_of_one_file_share_its_plan(tmp_path):
    if loader.extension() is None:
        pytest.skip("the native engine is not built")
    path = tmp_path / "sum.tpum"
    write_model(path, FileModel(adder(), Chip.BM1686, "0.1"))
    with Session(path, threads=1) as first, Session(path, threads=1) as second, Session(path, threads=2) as third:
        assert first._native is second._native
        assert first._native is not third._native
        assert first._graph is third._graph


def test_a_closed_session_says_so():
    session = Session(adder())
    session.close()
    with pytest.raises(UsageError, match="closed"):
        session.run({})


def test_a_result_without_elements_has_its_shape():
    graph = Graph()
    x = graph.input("x", TensorType(F32, (0, 3)))
    graph.output(graph.add(RELU, x, name="y"))
    with Session(graph) as session:
        assert session.run({"x": np.empty((0, 3), np.float32)})["y"].shape == (0, 3)
