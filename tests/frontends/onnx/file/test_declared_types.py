"""Inputs and outputs have the types that the source declares, whatever the graph computes with."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tpuconvert as tc
from tests.support.onnx.models import save_model
from tpuconvert.schema.errors import MissingExtraError, UsageError
from tpuconvert.schema.types import Array, DType

ml_dtypes = pytest.importorskip("ml_dtypes")
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def adder(code: int, op: str = "Add", shape: tuple[int, ...] = (2, 3)) -> onnx.ModelProto:
    graph = helper.make_graph(
        [helper.make_node(op, ["x", "z"], ["y"])],
        "g",
        [helper.make_tensor_value_info(name, code, shape) for name in ("x", "z")],
        [helper.make_tensor_value_info("y", code, shape)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def save_and_reopen(proto: onnx.ModelProto, folder: Path) -> tc.Session:
    """A session of the converted model after saving and loading."""
    tc.convert(save_model(proto, folder)).save(folder / "net.tpum")
    return tc.Session(tc.load(folder / "net.tpum"))


X, Z = np.array([[1, 2, 3], [4, 5, 6]]), np.array([[3, 2, 1], [0, 1, 2]])
TYPES: list[tuple[int, Any]] = [
    (TensorProto.INT64, np.int64), (TensorProto.INT32, np.int32), (TensorProto.UINT64, np.uint64),
    (TensorProto.UINT32, np.uint32), (TensorProto.INT16, np.int16), (TensorProto.UINT16, np.uint16),
    (TensorProto.INT8, np.int8), (TensorProto.UINT8, np.uint8), (TensorProto.DOUBLE, np.float64),
    (TensorProto.FLOAT, np.float32), (TensorProto.FLOAT16, np.float16), (TensorProto.BFLOAT16, BFLOAT16),
]  # fmt: skip


@pytest.mark.parametrize(("code", "kind"), TYPES, ids=[str(np.dtype(kind)) for _, kind in TYPES])
@pytest.mark.parametrize("shape", [(2, 3), (6,)])
def test_numbers(code: int, kind: Any, shape: tuple[int, ...], tmp_path: Path) -> None:
    with save_and_reopen(adder(code, shape=shape), tmp_path) as session:
        name = np.dtype(kind).name
        assert [(item.name, item.dtype, item.shape) for item in session.inputs] == [(n, name, shape) for n in "xz"]
        assert [(item.name, item.dtype) for item in session.outputs] == [("y", name)]
        x, z = X.reshape(shape).astype(kind), Z.reshape(shape).astype(kind)
        found = session.run({"x": x, "z": z})["y"]
    assert found.dtype == kind
    assert np.array_equal(found, x + z)


@pytest.mark.parametrize("code", [TensorProto.INT64, TensorProto.DOUBLE, TensorProto.BOOL, TensorProto.BFLOAT16])
def test_rank_0(code: int, tmp_path: Path) -> None:
    kind = helper.tensor_dtype_to_np_dtype(code)
    with save_and_reopen(adder(code, "And" if code == TensorProto.BOOL else "Mul", ()), tmp_path) as session:
        found = session.run({"x": np.array(1, kind), "z": np.array(1, kind)})["y"]
    assert found.dtype == kind and found.shape == () and found == 1


def test_truth_values(tmp_path: Path) -> None:
    with save_and_reopen(adder(TensorProto.BOOL, "Xor"), tmp_path) as session:
        assert [item.dtype for item in (*session.inputs, *session.outputs)] == ["bool"] * 3
        found = session.run({"x": X > 3, "z": Z > 1})["y"]
        assert found.dtype == bool and np.array_equal(found, (X > 3) ^ (Z > 1))
        with pytest.raises(UsageError, match="type float32, the model takes bool"):
            session.run({"x": X.astype(np.float32), "z": Z > 1})


def test_narrow_floating_point_is_rounded_at_the_border_only(tmp_path: Path) -> None:
    """Sums are computed in FLOAT32 and rounded once: float16 has 2050 and 2052, and 2051 goes to the even one."""
    with save_and_reopen(adder(TensorProto.FLOAT16, shape=(1,)), tmp_path) as session:
        assert session.run({"x": np.array([2050], np.float16), "z": np.array([1], np.float16)})["y"] == 2052
        assert session.run({"x": np.array([65504], np.float16), "z": np.array([65504], np.float16)})["y"] == np.inf
    with save_and_reopen(adder(TensorProto.BFLOAT16, shape=(1,)), tmp_path) as session:
        found = session.run({"x": np.array([256], BFLOAT16), "z": np.array([1], BFLOAT16)})["y"]
        assert found.dtype == BFLOAT16 and found == 256  # a tie, to even
        assert session.run({"x": np.float32([1.01]), "z": np.float32([0])})["y"] == np.float32(1.01).astype(BFLOAT16)


def test_what_a_type_cannot_hold_is_refused(tmp_path: Path) -> None:
    with save_and_reopen(adder(TensorProto.INT64, shape=(1,)), tmp_path) as session:
        with pytest.raises(UsageError, match="values outside int32"):
            session.run({"x": np.array([2**31]), "z": np.array([0])})
        with pytest.raises(UsageError, match="type float64, the model takes int64"):
            session.run({"x": np.array([0.5]), "z": np.array([0])})


def test_types_between_are_those_of_the_operator_set(tmp_path: Path) -> None:
    kinds = {TensorProto.INT64: DType.INT32, TensorProto.DOUBLE: DType.FLOAT32, TensorProto.BFLOAT16: DType.FLOAT32}
    for code, inside in kinds.items():
        graph = tc.convert(save_model(adder(code), tmp_path)).graph
        assert {value.dtype for value in graph.values} == {inside}


def test_without_the_package_for_bfloat16_the_error_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with save_and_reopen(adder(TensorProto.BFLOAT16), tmp_path) as session:
        monkeypatch.setitem(sys.modules, "ml_dtypes", None)
        with pytest.raises(MissingExtraError, match="bfloat16") as caught:
            session.run({"x": X.astype(np.float32), "z": Z.astype(np.float32)})
    assert "pip install ml_dtypes" in caught.value.hint


def test_doubles_beyond_float32(tmp_path: Path) -> None:
    with save_and_reopen(adder(TensorProto.DOUBLE, shape=(1,)), tmp_path) as session:
        found: Array = session.run({"x": np.array([0.1]), "z": np.array([0.2])})["y"]
    assert found.dtype == np.float64 and found == np.float64(np.float32(0.1) + np.float32(0.2))
