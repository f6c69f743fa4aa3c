"""Operators that only mean something together with others, against the reference kernels of LiteRT."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.tflite.cases import numbers
from tests.support.tflite.models import O, S, Sparsity, T, run, serialize
from tests.support.tflite.reference import reference_runner, run_interpreter
from tpuconvert.frontends.tflite import load
from tpuconvert.optimizer import optimize
from tpuconvert.schema.graph.graph import Graph

pytest.importorskip("ai_edge_litert")


def load_model(folder: Path, model: bytes, **arguments: Any) -> Graph:
    path = folder / "model.tflite"
    path.write_bytes(model)
    graph = load(path, **arguments)
    graph.validate()
    return graph


def assert_same(
    folder: Path, *subgraphs: S, inputs: Sequence[Any], atol: float = 1e-5, optimized: bool = False
) -> Graph:
    """Results of the graph, before and after optimization, and of the kernels."""
    model = serialize(*subgraphs)
    expected = run_interpreter(reference_runner(model, optimized=optimized), inputs)
    graph = load_model(folder, model)
    for _ in range(2):
        for result, want in zip(run(graph, *inputs), expected, strict=True):
            assert (result.dtype, result.shape) == (want.dtype, want.shape)
            np.testing.assert_allclose(result, want, rtol=0, atol=atol)
        optimize(graph)
    return graph


@pytest.mark.parametrize("lengths", [(4, 8), (8, 4), (2, 16), (1, 8)])
@pytest.mark.parametrize("part", ["REAL", "IMAG", "COMPLEX_ABS"])
def test_spectrum(tmp_path: Path, lengths: tuple[int, int], part: str) -> None:
    """The signal is filled up with zeros or cut where the transform has another length."""
    shape = (3, 4, 8)
    spectrum = (3, lengths[0], lengths[1] // 2 + 1)
    tensors = [
        T("x", shape),
        T("n", data=np.asarray(lengths, np.int32)),
        T("s", spectrum, "COMPLEX64"),
        T("y", spectrum),
    ]
    operators = [O("RFFT2D", [0, 1], [2]), O(part, [2], [3])]
    assert_same(tmp_path, S(tensors, operators, [0], [3]), inputs=[numbers("signal", shape)])


def test_another_operator_on_complex_numbers(tmp_path: Path) -> None:
    from tpuconvert.schema.errors import UnsupportedError

    tensors = [T("x", (4, 8)), T("n", data=np.asarray((4, 8), np.int32)), T("s", (4, 5), "COMPLEX64"), T("y", (4, 5))]
    model = serialize(S(tensors, [O("RFFT2D", [0, 1], [2]), O("NEG", [2], [3])], [0], [3]))
    with pytest.raises(UnsupportedError, match="'s' has the type COMPLEX64"):
        load_model(tmp_path, model)


def counter(*, initialized: bool = True) -> bytes:
    """y = x + v, then v = y; v begins with 1, 2."""
    main = S(
        [T("x", (2,)), T("h", (), "RESOURCE"), T("v", (2,)), T("y", (2,))],
        [
            *([O("CALL_ONCE", [], [], "CallOnceOptions", {"init_subgraph_index": 1})] if initialized else []),
            O("VAR_HANDLE", [], [1], "VarHandleOptions", {"shared_name": "total"}),
            O("READ_VARIABLE", [1], [2]),
            O("ADD", [0, 2], [3], "AddOptions"),
            O("ASSIGN_VARIABLE", [1, 3], []),
        ],
        [0],
        [3],
    )
    first = S(
        [T("h", (), "RESOURCE"), T("c", data=np.asarray([1, 2], np.float32))],
        [
            O("VAR_HANDLE", [], [0], "VarHandleOptions", {"shared_name": "total"}),
            O("ASSIGN_VARIABLE", [0, 1], []),
        ],
        [],
        [],
        "init",
    )
    return serialize(main, first)


def test_a_resource_variable_starts_anew(tmp_path: Path) -> None:
    model = counter()
    x = np.asarray([10, 20], np.float32)
    expected = run_interpreter(reference_runner(model), [x])
    graph = load_model(tmp_path, model)
    np.testing.assert_array_equal(run(graph, x)[0], expected[0])
    assert any("starts at its first value in every run" in note for note in graph.notes)


def test_a_resource_variable_as_ports(tmp_path: Path) -> None:
    """The state after one run goes into the next, as in the interpreter."""
    model = counter()
    interpreter = reference_runner(model)
    graph = load_model(tmp_path, model, state="ports")
    assert [port.name for port in graph.input_ports] == ["x", "total"]
    assert [port.name for port in graph.output_ports] == ["y", "total:next"]
    state = np.asarray([1, 2], np.float32)
    for step in range(3):
        x = numbers(f"step {step}", (2,))
        y, state = run(graph, x, state)
        np.testing.assert_allclose(y, run_interpreter(interpreter, [x])[0], rtol=1e-6)


def test_a_variable_that_no_run_changes_is_a_constant(tmp_path: Path) -> None:
    main = S(
        [T("x", (2,)), T("h", (), "RESOURCE"), T("v", (2,)), T("y", (2,))],
        [
            O("CALL_ONCE", [], [], "CallOnceOptions", {"init_subgraph_index": 1}),
            O("VAR_HANDLE", [], [1], "VarHandleOptions", {"shared_name": "table"}),
            O("READ_VARIABLE", [1], [2]),
            O("MUL", [0, 2], [3], "MulOptions"),
        ],
        [0],
        [3],
    )
    first = S(
        [T("h", (), "RESOURCE"), T("c", data=np.asarray([3, 4], np.float32))],
        [O("VAR_HANDLE", [], [0], "VarHandleOptions", {"shared_name": "table"}), O("ASSIGN_VARIABLE", [0, 1], [])],
        [],
        [],
        "init",
    )
    graph = assert_same(tmp_path, main, first, inputs=[np.asarray([5, 6], np.float32)])
    assert not graph.notes


def test_a_variable_that_nothing_was_assigned_to(tmp_path: Path) -> None:
    from tpuconvert.schema.errors import UnsupportedError

    with pytest.raises(UnsupportedError, match="'total' is read before anything is assigned"):
        load_model(tmp_path, counter(initialized=False))


def test_state_of_a_cell_as_ports(tmp_path: Path) -> None:
    weights = [
        T("w", data=numbers("w", (3, 2), -1, 1)),
        T("r", data=numbers("r", (3, 3), -1, 1)),
        T("b", data=numbers("b", (3,))),
    ]
    tensors = [T("x", (1, 2)), *weights, T("h", (1, 3), variable=True), T("y", (1, 3))]
    cell = O("RNN", [0, 1, 2, 3, 4], [5], "RNNOptions", {"fused_activation_function": 4})
    model = serialize(S(tensors, [cell], [0], [5]))
    interpreter = reference_runner(model)
    graph = load_model(tmp_path, model, state="ports")
    assert [port.name for port in graph.input_ports] == ["x", "h"]
    state = np.zeros((1, 3), np.float32)
    for step in range(3):
        x = numbers(f"step {step}", (1, 2))
        y, state = run(graph, x, state)
        np.testing.assert_allclose(y, run_interpreter(interpreter, [x])[0], atol=1e-6)
    assert any("starts at zero" in note for note in load_model(tmp_path, model).notes)


@pytest.mark.parametrize("memory", [1, 4])
def test_memory_of_a_filter_as_ports(tmp_path: Path, memory: int) -> None:
    parts = [numbers("wf", (4, 3), -1, 1), numbers("wt", (4, memory), -1, 1), numbers("b", (2,))]
    names = zip(("wf", "wt", "b"), parts, strict=True)
    tensors = [T("x", (2, 3)), *(T(name, data=part) for name, part in names)]
    tensors += [T("s", (2, 4 * memory), variable=True), T("y", (2, 2))]
    model = serialize(S(tensors, [O("SVDF", [0, 1, 2, 3, 4], [5], "SVDFOptions", {"rank": 2})], [0], [5]))
    interpreter = reference_runner(model)
    graph = load_model(tmp_path, model, state="ports")
    state = np.zeros((2, 4 * memory), np.float32)
    for step in range(6):
        x = numbers(f"step {step}", (2, 3))
        y, state = run(graph, x, state)
        np.testing.assert_allclose(y, run_interpreter(interpreter, [x])[0], atol=1e-5)


def sparse_rows() -> tuple[Any, Sparsity, Any]:
    """[4, 6], rows dense, columns sparse: dense, how it is stored, stored elements."""
    dense = numbers("dense", (4, 6), -1, 1)
    dense[numbers("holes", (4, 6), dtype="bool")] = 0
    dense[2] = 0
    counts = (dense != 0).sum(1)
    indices = np.concatenate([np.flatnonzero(row) for row in dense])
    level = ([0, *np.cumsum(counts).tolist()], indices.tolist())
    return dense, Sparsity([0, 1], [], [4, 0], [None, level]), dense[dense != 0]


def sparse_blocks() -> tuple[Any, Sparsity, Any]:
    """[4, 8] in blocks of 1 x 4, of which two are stored."""
    dense = np.zeros((4, 8), np.float32)
    stored = numbers("blocks", (2, 4), 0.1, 1)
    dense[0, 4:], dense[3, :4] = stored
    sparsity = Sparsity([0, 1, 2], [1], [4, 0, 4], [None, ([0, 1, 1, 1, 2], [1, 0]), None])
    return dense, sparsity, stored.reshape(-1)


@pytest.mark.parametrize("make", [sparse_rows, sparse_blocks])
def test_sparse_weights(tmp_path: Path, make: Any) -> None:
    dense, sparsity, stored = make()
    raw = stored.astype(np.float32).tobytes()
    tensors = [T("x", (3, dense.shape[1])), T("s", dense.shape, "FLOAT32", raw=raw, sparsity=sparsity)]
    tensors += [T("w", dense.shape), T("y", (3, 4))]
    operators = [O("DENSIFY", [1], [2]), O("FULLY_CONNECTED", [0, 2, -1], [3], "FullyConnectedOptions")]
    x = numbers("x", (3, dense.shape[1]))
    graph = assert_same(tmp_path, S(tensors, operators, [0], [3]), inputs=[x])
    np.testing.assert_allclose(run(graph, x)[0], x @ dense.T, atol=1e-6)


def test_sparse_weights_without_a_densify(tmp_path: Path) -> None:
    dense, sparsity, stored = sparse_rows()
    raw = stored.astype(np.float32).tobytes()
    tensors = [T("x", (3, 6)), T("w", dense.shape, "FLOAT32", raw=raw, sparsity=sparsity), T("y", (3, 4))]
    subgraph = S(tensors, [O("FULLY_CONNECTED", [0, 1, -1], [2], "FullyConnectedOptions")], [0], [2])
    x = numbers("x", (3, 6))
    np.testing.assert_allclose(run(load_model(tmp_path, serialize(subgraph)), x)[0], x @ dense.T, atol=1e-6)


def test_half_precision_weights(tmp_path: Path) -> None:
    weights = numbers("half", (4, 6), -1, 1, "float16")
    tensors = [T("x", (3, 6)), T("h", data=weights), T("w", weights.shape), T("y", (3, 4))]
    operators = [O("DEQUANTIZE", [1], [2]), O("FULLY_CONNECTED", [0, 2, -1], [3], "FullyConnectedOptions")]
    assert_same(tmp_path, S(tensors, operators, [0], [3]), inputs=[numbers("x", (3, 6))])


@pytest.mark.parametrize("passes", [0, 3])
def test_loop(tmp_path: Path, passes: int) -> None:
    state = [T("i", (), "INT32"), T("x", (2,))]
    condition = S(
        [*state, T("n", data=np.asarray(passes, np.int32)), T("c", (), "BOOL")], [O("LESS", [0, 2], [3])], [0, 1], [3]
    )
    body = S(
        [*state, T("one", data=np.asarray(1, np.int32)), T("next", (), "INT32"), T("twice", (2,))],
        [O("ADD", [0, 2], [3], "AddOptions"), O("ADD", [1, 1], [4], "AddOptions")],
        [0, 1],
        [3, 4],
    )
    tensors = [T("zero", data=np.asarray(0, np.int32)), T("x", (2,)), T("steps", (), "INT32"), T("y", (2,))]
    loop = O("WHILE", [0, 1], [2, 3], "WhileOptions", {"cond_subgraph_index": 1, "body_subgraph_index": 2})
    assert_same(tmp_path, S(tensors, [loop], [1], [3]), condition, body, inputs=[numbers("x", (2,))])
