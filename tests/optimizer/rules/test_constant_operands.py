"""Constants at operands that do not accept them: rejected by the legality check, folded or converted to tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tpuconvert as tc
from tpuconvert.optimizer import provide_tensors
from tpuconvert.optimizer.grouping.planner import plan_groups
from tpuconvert.runtime.native.builder.loader import extension
from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.errors import ProblemList
from tpuconvert.schema.file.file_model import FileModel
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.graph.legality import check_graph
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.arithmetic import Add
from tpuconvert.schema.ops.concat import Concat
from tpuconvert.schema.ops.index_select import IndexSelect
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.quantization.requant_int32 import RequantInt32, RequantMode
from tpuconvert.schema.ops.selection import ConditionSelect, Select, SelectType
from tpuconvert.schema.types import F16, F32, I8, I32, U32, Array, Chip, QuantParams, TensorType

Build = Callable[[Graph, Value], Value]


def constant(g: Graph, shape: tuple[int, ...], dtype: Any = np.float32) -> Value:
    return g.constant(np.arange(np.prod(shape)).reshape(shape).astype(dtype), "table")


def graph_of(build: Build, shape: tuple[int, ...], dtype: Any = F32) -> Graph:
    graph = Graph("constants")
    graph.output(build(graph, graph.input("x", TensorType(dtype, shape))))
    return graph


def refusals(graph: Graph, chip: Chip = Chip.BM1686) -> list[str]:
    problems = ProblemList("constants", chip.value)
    check_graph(graph, chip, problems)
    return [problem.message for problem in problems]


def ops(graph: Graph) -> list[str]:
    return [node.op.name for node in graph.nodes]


def one(g: Graph) -> Value:
    return g.constant(np.ones(1, np.float32))


REFUSED: dict[str, tuple[Build, str]] = {
    "index_select data": (
        lambda g, x: g.add(IndexSelect(0), constant(g, (4, 3)), g.constant(np.array([1, 1], np.int32))),
        "tensor_i must not be constant",
    ),
    "condition": (
        lambda g, x: g.add(ConditionSelect(), constant(g, (2, 3)), x, one(g)),
        "tensor_cond must not be constant",
    ),
    "selection with several elements": (
        lambda g, x: g.add(ConditionSelect(), x, constant(g, (2, 3)), one(g)),
        "a constant tensor_sel0 must have one element, found [2, 3]",
    ),
    "both compared tensors": (
        lambda g, x: g.add(Select(SelectType.GREATER_THAN), constant(g, (2, 3)), constant(g, (2, 3)), x, one(g)),
        "at most one of tensor_a and tensor_b may be constant",
    ),
    "concat": (
        lambda g, x: g.add(Concat(0), x, constant(g, (1, 3)), constant(g, (4, 3))),
        "tensor_i must not be constant",
    ),
}


@pytest.mark.parametrize(("build", "reason"), REFUSED.values(), ids=REFUSED)
def test_legality_check_rejects_constants_at_tensor_operands(build: Build, reason: str) -> None:
    assert refusals(graph_of(build, (2, 3))) == [reason]


@pytest.mark.parametrize("backend", ["reference", "native"])
@pytest.mark.parametrize(("build", "reason"), REFUSED.values(), ids=REFUSED)
def test_constants_are_provided_as_tensors(build: Build, reason: str, backend: Any) -> None:
    """The graph becomes legal and computes the same bytes."""
    if backend == "native" and extension() is None:
        pytest.skip("the native engine was not built")
    feeds = {"x": np.array([[1, -1, 0], [0, 2, -3]], np.float32)}
    before, after = graph_of(build, (2, 3)), graph_of(build, (2, 3))
    assert provide_tensors(after, Chip.BM1686)
    after.validate()
    assert refusals(after) == []
    assert "constdata" in ops(after)
    unchanged = Session(before, backend=backend)
    (wanted,) = unchanged.run(feeds).values()
    seen: dict[str, Array] = {}
    with Session(after, backend=backend) as session:
        (found,) = session.run(feeds).values()
        session.run(feeds, observe=lambda value, array: seen.update({value.name: array}))
        if backend == "native":
            assert session.reference_nodes == unchanged.reference_nodes, "constdata costs nothing"
    assert found.tobytes() == wanted.tobytes()
    assert any(name.endswith(":tensor") for name in seen), "an observer sees the tensors too"


def test_one_tensor_serves_all_users() -> None:
    def build(g: Graph, x: Value) -> Value:
        table = constant(g, (4, 3))
        first = g.add(Concat(0), x, table)
        return g.add(Concat(0), first, g.add(Add(), table, table), table)

    graph = graph_of(build, (2, 3))
    assert provide_tensors(graph, Chip.BM1686) == 3
    assert ops(graph).count("constdata") == 2  # the sum of constants was folded into another constant
    assert "add" not in ops(graph)


def test_disabled_folding_folds_nothing() -> None:
    graph = graph_of(lambda g, x: g.add(Add(), x, g.add(Permute((1, 0)), constant(g, (3, 2)))), (2, 3))
    assert provide_tensors(graph, Chip.BM1686, disabled=("fold_constants",)) == 1
    assert ops(graph) == ["constdata", "permute", "add"]
    graph = graph_of(lambda g, x: g.add(Add(), x, g.add(Permute((1, 0)), constant(g, (3, 2)))), (2, 3))
    assert provide_tensors(graph, Chip.BM1686) == 0
    assert ops(graph) == ["add"]


@pytest.mark.parametrize(
    ("chip", "dtype", "wanted"),
    [
        (Chip.BM1686, F32, ["constdata", "concat"]),
        (Chip.BM1684, I32, ["constdata", "concat"]),
        (Chip.BM1686, F16, ["constdata", "cast", "concat"]),
    ],
    ids=str,
)
def test_casts_types_that_constdata_does_not_support(chip: Chip, dtype: Any, wanted: list[str]) -> None:
    graph = graph_of(lambda g, x: g.add(Concat(0), x, constant(g, (4, 3), dtype.numpy)), (2, 3), dtype)
    assert provide_tensors(graph, chip) == 1
    assert ops(graph) == wanted
    assert refusals(graph, chip) == []
    x = np.ones((2, 3), dtype.numpy)
    with Session(FileModel(graph, chip, "0")) as session:
        (found,) = session.run({"x": x}).values()
    assert found.tobytes() == x.tobytes() + np.arange(12).astype(dtype.numpy).tobytes()


def test_rejects_integers_without_constdata_or_cast() -> None:
    """BM1682 has tensors from FLOAT32 constants only, and FLOAT32 cannot represent 2^24 + 1."""

    def build(g: Graph, x: Value) -> Value:
        return g.add(Concat(0), x, g.constant(np.array([2**24 + 1], np.int32)))

    graph = graph_of(build, (1,), I32)
    assert provide_tensors(graph, Chip.BM1682) == 0
    assert len(refusals(graph, Chip.BM1682)) == 1
    graph = graph_of(lambda g, x: g.add(Concat(0), x, constant(g, (1,), np.uint32)), (1,), U32)
    assert provide_tensors(graph, Chip.BM1686) == 0


def test_a_tensor_from_a_constant_splits_no_group() -> None:
    """``constdata`` is free and global: where it runs first, the five other nodes share on-chip memory as before."""
    relu = Active(ActiveType.ACTIVE_RELU)

    def build(g: Graph, x: Value) -> Value:
        joined = g.add(Concat(2), g.add(relu, g.add(relu, x)), constant(g, (1, 8, 16, 16)))
        return g.add(relu, g.add(relu, joined))

    graph = graph_of(build, (1, 8, 16, 16))
    provide_tensors(graph, Chip.BM1686)
    graph.reorder(sorted(graph.nodes, key=lambda node: node.op.name != "constdata"))
    (group,) = plan_groups(graph, Chip.BM1686).groups
    assert group.count == 5
    assert len(graph) == 6


def test_quantized_integers_are_folded_after_legalization() -> None:
    """Values contain their integers then; the result keeps its scale."""
    params = QuantParams.per_tensor(0.5, 3, I8)
    graph = Graph("integers")
    x = graph.input("x", TensorType(I8, (1, 2)), quant=params)
    op = RequantInt32(multiplier_val=3, shift_val=-1, mode=RequantMode.MULTIPLIER_SHIFT, out_dtype=I8)
    rescaled = graph.add(op, graph.constant(np.array([[10, 11]], np.int32)))
    rescaled.quant = params
    graph.output(graph.add(Concat(0), x, rescaled))
    provide_tensors(graph, Chip.BM1686)
    assert ops(graph) == ["constdata", "concat"]
    (table,) = (value for value in graph.values if value.is_constant)
    assert table.array.tolist() == [[15, 17]]  # 15 and 16.5, half up
    assert table.quant == params


# --- through the public interface ---------------------------------------------------------------------------------


def onnx_model(path: Any, nodes: list[Any], constants: dict[str, Array], shape: list[int], dtype: int) -> Any:
    tensors = [onnx.numpy_helper.from_array(array, name) for name, array in constants.items()]
    x = helper.make_tensor_value_info("x", dtype, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [x], [y], tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    return path


MASK = np.array([[True, False, True]])
TABLE = np.arange(12, dtype=np.float32).reshape(4, 3)
X = np.array([[1, 2, 3], [4, 5, 6]], np.float32)


@pytest.mark.parametrize("chip", ["bm1682", "bm1684", "bm1686"])
def test_where_with_a_constant_mask_converts_to_a_legal_model(chip: str, tmp_path: Any) -> None:
    nodes = [helper.make_node("Where", ["mask", "x", "other"], ["y"])]
    mask = np.broadcast_to(MASK, (2, 3)).copy()
    path = onnx_model(tmp_path / "m.onnx", nodes, {"mask": mask, "other": TABLE[:2]}, [2, 3], TensorProto.FLOAT)
    model = tc.convert(path, chip=chip)
    assert refusals(model.graph, model.chip) == []
    with tc.Session(model) as session:
        (found,) = session.run({"x": X}).values()
    np.testing.assert_array_equal(found, np.where(mask, X, TABLE[:2]))


@pytest.mark.parametrize("chip", ["bm1682", "bm1684", "bm1686"])
def test_gather_from_a_constant_table_converts_to_a_legal_model(chip: str, tmp_path: Any) -> None:
    nodes = [helper.make_node("Gather", ["table", "x"], ["y"])]
    path = onnx_model(tmp_path / "m.onnx", nodes, {"table": TABLE}, [2], TensorProto.INT32)
    model = tc.convert(path, chip=chip)
    assert refusals(model.graph, model.chip) == []
    assert "constdata" in ops(model.graph)
    with tc.Session(model) as session:
        (found,) = session.run({"x": np.array([3, 0], np.int32)}).values()
    np.testing.assert_array_equal(found, TABLE[[3, 0]])
