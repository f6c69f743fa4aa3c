"""Shape-and-constant subgraphs are evaluated in 64 bits and never reach the graph."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.support.onnx.models import graph_of, model, one, ops, ours, ramp, save_model
from tests.support.onnx.reference import evaluate
from tpuconvert.frontends.onnx import load
from tpuconvert.frontends.onnx.node import folds
from tpuconvert.frontends.registry import registry
from tpuconvert.schema.errors import UnsupportedError
from tpuconvert.schema.system.limits import Limits
from tpuconvert.schema.types import Array


def test_shape_arithmetic_leaves_one_reshape(tmp_path: Path) -> None:
    nodes = [
        one("Shape", "x", outputs=["shape"]),
        one("Gather", "shape", "zero", outputs=["batch"]),
        one("Unsqueeze", "batch", "axis0", outputs=["batch1"]),
        one("Mul", "batch1", "two", outputs=["doubled"]),
        one("Concat", "doubled", "minus1", outputs=["target"], axis=0),
        one("Reshape", "x", "target"),
    ]
    constants = {"zero": np.array(0), "axis0": np.array([0]), "two": np.array([2]), "minus1": np.array([-1])}
    proto = model(nodes, {"x": ramp(3, 4, 2)}, ["y"], constants)
    graph = graph_of(proto, tmp_path)
    assert ops(graph) == ["reshape"]
    assert graph.outputs[0].shape == (6, 4)


def test_64_bits_are_kept(tmp_path: Path) -> None:
    big = np.array([3_000_000_000], np.int64)
    nodes = [
        one("Mul", "big", "big", outputs=["square"]),
        one("Div", "square", "big", outputs=["back"]),
        one("Sub", "back", "offset", outputs=["small"]),
        one("Reshape", "x", "small"),
    ]
    proto = model(nodes, {"x": ramp(2, 3)}, ["y"], {"big": big, "offset": big - 6})
    assert graph_of(proto, tmp_path).outputs[0].shape == (6,)


def test_64_bit_constant_that_reaches_the_graph_is_refused(tmp_path: Path) -> None:
    proto = model([one("Add", "x", "big")], {"x": np.array([1])}, ["y"], {"big": np.array([1 << 40])})
    with pytest.raises(UnsupportedError, match="1099511627776 does not fit int32"):
        load(save_model(proto, tmp_path))


def i64(*numbers: int) -> Array:
    return np.array(numbers, np.int64)


T = np.arange(-6, 6).reshape(3, 4)
F = ramp(3, 4)
CASES: list[tuple[str, list[Array | None], dict[str, Any], int]] = [
    *((op, [T, T[:1] + 7], {}, 17) for op in ("Add", "Sub", "Mul", "Div", "Mod", "Max", "Min", "Equal", "Less",
                                              "Greater", "LessOrEqual", "GreaterOrEqual")),
    *((op, [T > 0, T > -3], {}, 17) for op in ("And", "Or", "Xor")),
    *((op, [T, T + 3], {}, 18) for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")),
    *((op, [F], {}, 17) for op in ("Neg", "Abs", "Sign", "Floor", "Ceil", "Round", "Exp", "Sin", "Cos", "Reciprocal")),
    ("Not", [T > 0], {}, 17), ("BitwiseNot", [T], {}, 18),
    ("Sqrt", [abs(F)], {}, 17), ("Log", [abs(F)], {}, 17), ("Sum", [F, F, F], {}, 17),
    ("Mod", [T, T[:1] + 7], {"fmod": 1}, 17), ("Pow", [T, i64(2)], {}, 17), ("Pow", [abs(F), np.float32(0.5)], {}, 17),
    ("Cast", [F * 9], {"to": TensorProto.INT64}, 17), ("Cast", [T], {"to": TensorProto.BOOL}, 17),
    ("Clip", [F, np.float32(-1), np.float32(1)], {}, 17), ("Clip", [F], {"min": -1.0, "max": 0.5}, 6),
    *((op, [T], {"axes": [1], "keepdims": 0}, 11) for op in ("ReduceSum", "ReduceProd", "ReduceMax", "ReduceMin")),
    ("ReduceMean", [F], {}, 11), ("ReduceSum", [T, i64(0)], {}, 13), ("ArgMax", [T], {"axis": 1}, 13),
    ("ArgMin", [T], {"axis": 0, "keepdims": 0}, 13),
    ("Size", [T], {}, 17), ("Shape", [T], {"start": -1}, 17), ("ConstantOfShape", [i64(2, 3)], {}, 17),
    ("ConstantOfShape", [i64(2)], {"value": helper.make_tensor("v", TensorProto.INT64, [1], [7])}, 17),
    ("Identity", [T], {}, 17), ("Reshape", [T, i64(-1, 2)], {}, 17), ("Flatten", [T], {}, 17),
    ("Squeeze", [T[None]], {}, 17), ("Unsqueeze", [T, i64(1)], {}, 17), ("Transpose", [T], {}, 17),
    ("Concat", [T, T], {"axis": 1}, 17), ("Slice", [T, i64(-1), i64(-9), i64(1), i64(-2)], {}, 17),
    ("Gather", [T, i64(-1, 0)], {"axis": 1}, 17), ("GatherElements", [T, T % 3], {}, 17),
    ("GatherND", [T, np.array([[0, 1], [2, 3]])], {}, 17), ("Expand", [T[:1], i64(2, 1, 1)], {}, 17),
    ("Tile", [T, i64(1, 2)], {}, 17), ("Range", [np.array(7), np.array(0), np.array(-2)], {}, 17),
    ("Range", [np.float32(0), np.float32(1), np.float32(0.3)], {}, 17), ("EyeLike", [F], {"k": 1}, 17),
    ("Where", [T > 0, T, T[:, :1]], {}, 17), ("NonZero", [T], {}, 17),
    ("OneHot", [i64(1, -1), np.array(3), i64(5, 6)], {}, 17), ("Trilu", [T], {"upper": 0}, 17),
    ("ScatterND", [T, i64(0, 2).reshape(2, 1), T[:2]], {}, 17), ("CumSum", [T, np.array(1)], {"reverse": 1}, 17),
    ("BitShift", [np.array([1, -8, 5], np.int8), np.array([1, 1, 9], np.int8)], {"direction": "LEFT"}, 28),
    ("BitShift", [np.array([1, 80, 5], np.uint8), np.array([1, 2, 7], np.uint8)], {"direction": "RIGHT"}, 11),
    ("BitCast", [F], {"to": TensorProto.INT32}, 26), ("Relu", [F], {}, 17),
    ("ReduceLogSumExp", [F * 400], {"axes": [1]}, 13),
    ("MelWeightMatrix", [np.array(n) for n in (8, 16, 8192)] + [np.float32(0), np.float32(4096)], {}, 17),
    ("CumSum", [T, np.array(0)], {"exclusive": 1}, 17), ("QuantizeLinear", [F, np.float32(0.1), np.uint8(9)], {}, 17),
]  # fmt: skip


def constant_model(op: str, constants: list[Array | None], attributes: dict[str, Any], opset: int) -> onnx.ModelProto:
    given = {f"c{k}": np.asarray(c) for k, c in enumerate(constants) if c is not None}
    return model([one(op, *given, **attributes)], {"x": ramp(1)}, ["y"], given, opset=opset, ir_version=10)


@pytest.mark.parametrize(
    ("op", "constants", "attributes", "opset"), CASES, ids=[f"{c[0]}-{n}" for n, c in enumerate(CASES)]
)
def test_evaluator(
    op: str, constants: list[Array | None], attributes: dict[str, Any], opset: int, tmp_path: Path
) -> None:
    proto = constant_model(op, constants, attributes, opset)
    (expected,) = evaluate(proto, ["y"], {"x": ramp(1)})
    graph = graph_of(proto, tmp_path)
    assert len(graph) == 0
    found = ours(proto, {"x": ramp(1)}, tmp_path)["y"]
    assert found.shape == np.shape(expected)
    assert found.dtype == np.asarray(expected).dtype
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_every_evaluator_has_a_case() -> None:
    registry("onnx").discover()
    covered = {case[0] for case in CASES} | {"Constant", "CastLike", "Split", "DequantizeLinear", "Loop", "If"}
    assert set(folds.names()) <= covered


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({"value_float": 1.5}, np.float32(1.5)),
        ({"value_ints": [1, 2]}, i64(1, 2)),
        ({"value": helper.make_tensor("t", TensorProto.DOUBLE, [1], [0.5])}, np.array([0.5])),
        (
            {
                "sparse_value": helper.make_sparse_tensor(
                    helper.make_tensor("s", TensorProto.FLOAT, [1], [3.0]),
                    helper.make_tensor("i", TensorProto.INT64, [1], [1]),
                    [3],
                )
            },
            np.array([0, 3, 0], np.float32),
        ),
    ],
)
def test_constant_nodes(attributes: dict[str, Any], expected: Array, tmp_path: Path) -> None:
    proto = model([one("Constant", **attributes)], {"x": ramp(1)}, ["y"])
    found = ours(proto, {"x": ramp(1)}, tmp_path)["y"]
    assert found.dtype == expected.dtype
    assert np.array_equal(found, expected)


def test_text_is_refused(tmp_path: Path) -> None:
    proto = model([one("Constant", value_string="hello")], {"x": ramp(1)}, ["y"])
    with pytest.raises(UnsupportedError, match="value_string contains text"):
        load(save_model(proto, tmp_path))


def test_brain_floats_round_to_even(tmp_path: Path) -> None:
    x = np.array([1.00390625, 1.01171875, -3.0], np.float32)  # two ties between neighboring bfloat16 values
    nodes = [one("Cast", "c", outputs=["b"], to=TensorProto.BFLOAT16), one("Cast", "b", to=TensorProto.FLOAT)]
    found = ours(model(nodes, {"x": ramp(1)}, ["y"], {"c": x}), {"x": ramp(1)}, tmp_path)["y"]
    assert found.tolist() == [1.0, 1.015625, -3.0]


def test_only_the_type_of_castlike_matters(tmp_path: Path) -> None:
    nodes = [one("CastLike", "three", "x", outputs=["exponent"]), one("Pow", "x", "exponent")]
    graph = graph_of(model(nodes, {"x": ramp(2)}, ["y"], {"three": np.array([3])}), tmp_path)
    assert "active" not in [op for op in ops(graph) if op == "exp"]
    found = ours(
        model(nodes, {"x": ramp(2)}, ["y"], {"three": np.array([3])}), {"x": np.array([-2, 3], np.float32)}, tmp_path
    )
    assert found["y"].tolist() == [-8, 27]


@pytest.mark.parametrize(
    ("op", "constants"),
    [
        ("ConstantOfShape", [i64(1 << 20, 1 << 20)]),
        ("Expand", [F[:1, :1], i64(1 << 20, 1 << 20)]),
        ("Tile", [F, i64(1 << 20, 1 << 20)]),
        ("Range", [np.array(0), np.array(1 << 50), np.array(1)]),
        ("OneHot", [i64(1), np.array(1 << 50), i64(0, 1)]),
        ("Add", [np.zeros((1 << 12, 1), np.float32), np.zeros((1, 1 << 12), np.float32)]),
    ],
)
def test_byte_cap_before_anything_is_made(op: str, constants: list[Array | None], tmp_path: Path) -> None:
    proto = constant_model(op, constants, {}, 17)
    with pytest.raises(UnsupportedError, match="constants made at conversion time may have 1048576"):
        load(save_model(proto, tmp_path), limits=Limits(max_folded_bytes=1 << 20))
