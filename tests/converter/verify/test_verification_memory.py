"""Memory of a verification: large programs run one at a time, engines share their weights, tensors are read singly."""

import tracemalloc
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tpuconvert as tc
from tests.support.native_cases.random_graphs import needs_extension
from tests.support.networks.small_models import examples
from tpuconvert.conversion.options.options import Options
from tpuconvert.conversion.source import Source
from tpuconvert.runtime.native import plans
from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.graph.graph import Graph, Port
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul
from tpuconvert.schema.types import F32, TensorType
from tpuconvert.verify import comparer
from tpuconvert.verify.oracle import Oracle
from tpuconvert.verify.oracle_process import LARGE_BYTES, reference_weights
from tpuconvert.verify.source_comparison import verify_source

WEIGHT = np.random.default_rng(3).normal(size=(64, 512)).astype(np.float32)


def matmul_model() -> onnx.ModelProto:
    """``y = x @ weight + bias``."""
    port = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["product"]), helper.make_node("Add", ["product", "b"], ["y"])],
        "matmul",
        [port("x", TensorProto.FLOAT, [2, 64])],
        [port("y", TensorProto.FLOAT, [2, 512])],
        [numpy_helper.from_array(WEIGHT, "w"), numpy_helper.from_array(np.arange(512, dtype=np.float32), "b")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def test_large_programs_run_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    source = examples() / "digits.onnx"
    model = tc.convert(source)

    def run() -> tuple[str, int]:
        is_open: set[int] = set()
        largest = [0]

        class Counted(Session):
            def __enter__(self) -> "Counted":
                is_open.add(id(self))
                largest[0] = max(largest[0], len(is_open))
                return self

            def close(self) -> None:
                is_open.discard(id(self))
                super().close()

        monkeypatch.setattr(comparer, "Session", Counted)
        return str(verify_source(model, Source(source), Options(), samples=2)), largest[0]

    together, count = run()
    assert count == 3
    monkeypatch.setattr(comparer, "SEPARATE_BYTES", 0)
    separate, count = run()
    assert count == 1
    assert separate == together


@needs_extension
def test_observed_plans_share_their_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = Graph("matmul")
    x = graph.input("x", TensorType(F32, ("rows", 64)))
    graph.output(graph.add(MatrixMul(), x, graph.constant(WEIGHT, "w")))
    recorded: list[plans.NativePlan | None] = []

    class Recorded(plans.NativePlan):
        def __init__(self, *arguments: object, like: plans.NativePlan | None = None, **named: object) -> None:
            recorded.append(like)
            super().__init__(*arguments, like=like, **named)  # type: ignore[arg-type]  # passed on
            recorded[-1:] = [like, self]

    monkeypatch.setattr(plans, "NativePlan", Recorded)
    with Session(graph, backend="native", observed=True) as session:
        for rows in (2, 3):
            x_rows = np.ones((rows, 64), np.float32)
            (y,) = session.run({"x": x_rows}, observe=lambda value, array: None).values()
            np.testing.assert_allclose(y, x_rows @ WEIGHT, rtol=1e-4, atol=1e-4)
    first_like, first, second_like, _second = recorded
    assert first_like is None
    assert second_like is first


@pytest.mark.parametrize("is_external", [False, True])
def test_an_engine_gets_large_weights_by_reference(tmp_path: Path, is_external: bool) -> None:
    assert WEIGHT.nbytes > LARGE_BYTES
    path = tmp_path / "matmul.onnx"
    onnx.save(matmul_model(), path, save_as_external_data=is_external, location="weights.bin", size_threshold=4096)
    model = reference_weights(str(path))
    assert model.ByteSize() < LARGE_BYTES
    assert [node.op_type for node in model.graph.node] == ["MatMul", "Add"]
    (weight, bias) = model.graph.initializer
    assert (weight.name, list(weight.dims), len(weight.raw_data)) == ("w", [64, 512], 0)
    np.testing.assert_array_equal(numpy_helper.to_array(bias), np.arange(512))
    onnx.external_data_helper.load_external_data_for_tensor(weight, str(tmp_path))
    np.testing.assert_array_equal(numpy_helper.to_array(weight), WEIGHT)


@pytest.mark.parametrize("is_external", [False, True])
def test_an_engine_computes_with_these_weights(tmp_path: Path, is_external: bool) -> None:
    pytest.importorskip("onnxruntime")
    path = tmp_path / "matmul.onnx"
    onnx.save(matmul_model(), path, save_as_external_data=is_external, location="weights.bin", size_threshold=4096)
    x = np.random.default_rng(1).normal(size=(2, 64)).astype(np.float32)
    statements = Oracle("onnxruntime", str(path)).run([Port("x", "float32", (2, 64))], [{"x": x}])
    statement = next(statements)  # its files exist until the next one
    np.testing.assert_allclose(statement.tensors["product"], x @ WEIGHT, rtol=1e-4, atol=1e-4)
    assert statement.outputs == ("y",)


def test_tensors_of_an_engine_are_read_one_at_a_time(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    count, shape = 12, (1 << 18,)
    nodes = [helper.make_node("Neg", [f"t{index}"], [f"t{index + 1}"]) for index in range(count)]
    ports = [helper.make_tensor_value_info(name, 1, shape) for name in ("t0", f"t{count}")]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:])
    path = tmp_path / "chain.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    x = np.linspace(-1, 1, *shape, dtype=np.float32)
    statements = Oracle("onnxruntime", str(path)).run([Port("t0", "float32", shape)], [{"t0": x}, {"t0": -x}])
    for feed, statement in zip((x, -x), statements, strict=True):
        tracemalloc.start()
        try:
            for index in range(1, count + 1):
                assert np.array_equal(statement.tensors[f"t{index}"], feed * (-1) ** index)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 4 * x.nbytes, "operands of the comparison, but not the tensors of all nodes"
        assert len(statement.tensors) == count
        assert set(statement.tensors) == {f"t{index + 1}" for index in range(count)}
