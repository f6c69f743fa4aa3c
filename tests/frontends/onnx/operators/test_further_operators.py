"""Operators that ordinary networks do not have, against the reference evaluator of the onnx package."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, defs, helper

from tests.support.each import each
from tests.support.onnx.cases.case import Case, i64
from tests.support.onnx.cases.further import CASES
from tests.support.onnx.models import assert_converts, graph_of, model, one, ops, ours, ramp, save_model
from tpuconvert.frontends.onnx import load
from tpuconvert.schema.errors import UnsupportedError
from tpuconvert.schema.types import Array


@each("case", CASES)
def test_as_the_reference_evaluator(case: Case, tmp_path: Path) -> None:
    assert_converts(case.model(), case.feeds, tmp_path, atol=case.atol, rtol=2e-4)


def test_small_integers_wrap_around(tmp_path: Path) -> None:
    x = np.array([200, 100, 7], np.uint8)
    proto = model([one("Add", "x", "x")], {"x": x}, ["y"])
    assert ours(proto, {"x": x}, tmp_path)["y"].tolist() == [144, 200, 14]


def test_negative_amounts_leave_only_the_sign(tmp_path: Path) -> None:
    x = np.array([-8, 4, -1], np.int8)
    nodes = [one("BitShift", "x", "n", outputs=[d], direction=d) for d in ("LEFT", "RIGHT")]
    feeds = {"x": x, "n": np.array([-1, -8, 9], np.int8)}
    found = ours(model(nodes, feeds, ["LEFT", "RIGHT"], opset=28), feeds, tmp_path)
    assert found["LEFT"].tolist() == [0, 0, 0]
    assert found["RIGHT"].tolist() == [-1, 0, -1]


def test_modulo_of_infinity(tmp_path: Path) -> None:
    feeds = {"x": np.array([-3, 3, -1, 5], np.float32), "y": np.array([np.inf, np.inf, -np.inf, 4], np.float32)}
    nodes = [one("Mod", "x", "y", outputs=[name], fmod=fmod) for name, fmod in (("floor", 0), ("trunc", 1))]
    for name, function in (("floor", np.mod), ("trunc", np.fmod)):
        proto = model([node for node in nodes if node.output[0] == name], feeds, [name], opset=28)
        if name == "trunc":
            np.testing.assert_array_equal(ours(proto, feeds, tmp_path)[name], function(feeds["x"], feeds["y"]))
        else:
            assert ours(proto, feeds, tmp_path)[name].tolist() == [np.inf, 3, -1, 1]


def test_boxes_are_suppressed_per_batch_and_class(tmp_path: Path) -> None:
    boxes = np.array([[[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, 10, 1, 11]]], np.float32)
    scores = np.array([[[0.9, 0.75, 0.6], [0.2, 0.8, 0.3]]], np.float32)
    constants = {"most": i64(2), "iou": np.float32(0.5), "least": np.float32(0.25)}
    node = one("NonMaxSuppression", "boxes", "scores", "most", "iou", "least")
    proto = model([node], {"boxes": boxes, "scores": scores}, ["y"], constants)
    found = ours(proto, {"boxes": boxes, "scores": scores}, tmp_path)["y"]
    assert found.tolist() == [[0, 0, 0], [0, 0, 2], [0, 1, 1], [0, 1, 2]]
    assert found.dtype == np.int64


def test_statistics_of_layer_normalization(tmp_path: Path) -> None:
    x = ramp(2, 3, 4)
    node = one("LayerNormalization", "x", "s", outputs=["y", "mean", "factor"], axis=-1)
    found = ours(model([node], {"x": x}, ["mean", "factor"], {"s": ramp(4)}), {"x": x}, tmp_path)
    np.testing.assert_allclose(found["mean"], x.mean(-1, keepdims=True), atol=1e-6)
    np.testing.assert_allclose(found["factor"], 1 / np.sqrt(x.var(-1, keepdims=True) + 1e-5), rtol=1e-5)


def test_a_convolution_hands_its_state_on(tmp_path: Path) -> None:
    """Two runs over halves of a signal give what one run over the whole gives."""
    x, w, b = ramp(2, 3, 8), ramp(3, 1, 4, seed=1), ramp(3, seed=2)
    names = ["y", "state"]

    def run(part: Array, state: Array | None) -> dict[str, Array]:
        feeds = {"x": part} if state is None else {"x": part, "s": state}
        node = one("CausalConvWithState", "x", "w", "b", *(["s"] if state is not None else []), outputs=names)
        return ours(model([node], feeds, names, {"w": w, "b": b}, opset=27), feeds, tmp_path)

    whole, first = run(x, None), run(x[:, :, :5], None)
    second = run(x[:, :, 5:], first["state"])
    padded = np.concatenate([np.zeros((2, 3, 3), np.float32), x], 2)
    expected = sum(padded[:, :, k : k + 8] * w[:, :, k] for k in range(4)) + b[:, None]
    np.testing.assert_allclose(whole["y"], expected, atol=1e-5)
    np.testing.assert_allclose(np.concatenate([first["y"], second["y"]], 2), whole["y"], atol=1e-6)
    np.testing.assert_array_equal(second["state"], whole["state"])


def test_largest_pixels_of_regions(tmp_path: Path) -> None:
    x = np.arange(36, dtype=np.float32).reshape(1, 1, 6, 6)
    rois = np.array([[0, 0, 0, 3, 3], [0, 2, 2, 5, 5]], np.float32)
    proto = model([one("MaxRoiPool", "x", "r", pooled_shape=[2, 2])], {"x": x, "r": rois}, ["y"])
    found = ours(proto, {"x": x, "r": rois}, tmp_path)["y"]
    assert found.tolist() == [[[[7, 9], [19, 21]]], [[[21, 23], [33, 35]]]]


def test_sequences_are_resolved(tmp_path: Path) -> None:
    x = ramp(4, 3)
    nodes = [
        one("SplitToSequence", "x", "two", outputs=["parts"], axis=0),
        one("SequenceEmpty", outputs=["none"]),
        one("SequenceInsert", "none", "x", outputs=["some"]),
        one("SequenceInsert", "some", "x2", "zero", outputs=["more"]),
        one("SequenceErase", "more", outputs=["fewer"]),
        one("SequenceAt", "fewer", "zero", outputs=["at"]),
        one("SequenceLength", "parts", outputs=["count"]),
        one("ConcatFromSequence", "parts", outputs=["stacked"], axis=1, new_axis=1),
        one("SequenceConstruct", "x", "at", outputs=["both"]),
        one("ConcatFromSequence", "both", outputs=["joined"], axis=0),
        one("Neg", "x", outputs=["x2"]),
        one("Optional", "x", outputs=["perhaps"]),
        one("OptionalHasElement", "perhaps", outputs=["is_there"]),
        one("OptionalGetElement", "perhaps", outputs=["there"]),
    ]
    nodes.insert(0, nodes.pop(10))
    body = helper.make_graph(
        [helper.make_node("Add", ["item", "item"], ["double"])],
        "body",
        [helper.make_tensor_value_info("item", TensorProto.FLOAT, None)],
        [helper.make_tensor_value_info("double", TensorProto.FLOAT, None)],
    )
    nodes += [
        one("SequenceMap", "parts", outputs=["doubled"], body=body),
        one("SequenceAt", "doubled", "last", outputs=["d"]),
    ]
    names = ["at", "count", "stacked", "joined", "is_there", "there", "d"]
    constants = {"two": np.array(2), "zero": np.array(0), "last": np.array(-1)}
    found = ours(model(nodes, {"x": x}, names, constants, opset=18), {"x": x}, tmp_path)
    np.testing.assert_array_equal(found["at"], -x)
    assert found["count"] == 2
    assert found["is_there"]
    np.testing.assert_array_equal(found["stacked"], np.stack([x[:2], x[2:]], 1))
    np.testing.assert_array_equal(found["joined"], np.concatenate([x, -x]))
    np.testing.assert_array_equal(found["there"], x)
    np.testing.assert_array_equal(found["d"], 2 * x[2:])


def test_scan_of_the_first_meaning(tmp_path: Path) -> None:
    x = ramp(2, 3, 2)
    body = helper.make_graph(
        [helper.make_node("Add", ["sum", "item"], ["next"]), helper.make_node("Identity", ["next"], ["out"])],
        "body",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("sum", "item")],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("next", "out")],
    )
    node = one("Scan", "", "start", "x", outputs=["last", "sums"], body=body, num_scan_inputs=1)
    feeds = {"start": np.ones((2, 2), np.float32), "x": x}
    found = ours(model([node], feeds, ["last", "sums"], opset=8), feeds, tmp_path)
    np.testing.assert_allclose(found["sums"], 1 + np.cumsum(x, 1), atol=1e-6)
    np.testing.assert_allclose(found["last"], 1 + x.sum(1), atol=1e-6)


@pytest.mark.skipif(not defs.has("SwiGLU"), reason="this onnx has no SwiGLU")
def test_functions_of_the_standard_are_expanded(tmp_path: Path) -> None:
    feeds = {"a": ramp(2, 3), "b": ramp(2, 3, seed=1)}
    proto = model([one("SwiGLU", "a", "b", alpha=1.5)], feeds, ["y"], opset=28)
    expected = feeds["a"] / (1 + np.exp(-1.5 * feeds["a"])) * feeds["b"]
    np.testing.assert_allclose(ours(proto, feeds, tmp_path)["y"], expected, rtol=1e-5)
    assert ops(graph_of(proto, tmp_path)) == ["silu", "mul"]


@pytest.mark.parametrize(
    ("op", "attributes", "complaint"),
    [
        ("Bernoulli", {}, "random numbers"),
        ("StringNormalizer", {}, "string data"),
        ("Unique", {}, "data-dependent"),
        ("ImageDecoder", {}, "image decoding"),
        ("BitShift", {"direction": "UP"}, "LEFT or RIGHT"),
        ("Det", {}, "up to 3"),
    ],
)
def test_refused(op: str, attributes: dict[str, Any], complaint: str, tmp_path: Path) -> None:
    x = ramp(4, 4)
    proto = model([one(op, "x", *(["x"] if op == "BitShift" else []), **attributes)], {"x": x}, ["y"], opset=22)
    with pytest.raises(UnsupportedError, match=complaint):
        load(save_model(proto, tmp_path))


def test_a_sequence_is_no_output(tmp_path: Path) -> None:
    proto = model([one("SequenceConstruct", "x")], {"x": ramp(2)}, ["y"])
    with pytest.raises(UnsupportedError, match="its type is sequence"):
        load(save_model(proto, tmp_path))


def test_an_empty_axis_is_not_split_into_any_number_of_parts(tmp_path: Path) -> None:
    node = one("Split", "x", outputs=["a", "b"], axis=0, num_outputs=2**40)
    constants = {"x": np.zeros((0, 2), np.float32)}
    with pytest.raises(UnsupportedError, match="cannot be split into 1099511627776"):
        load(save_model(model([node], {"z": ramp(1)}, ["a", "b"], constants, opset=18), tmp_path))


@pytest.mark.parametrize(
    "values", [np.array([0, 1], np.float32), np.array([2, -5], np.int64), np.array([-np.inf, 3.3])]
)
@pytest.mark.parametrize("axis", [-1, 0])
def test_one_hot_of_a_symbolic_batch(values: Array, axis: int, tmp_path: Path) -> None:
    values = values.astype(np.float32) if values.dtype == np.float64 else values
    node = one("OneHot", "x", "depth", "values", axis=axis)
    proto = model([node], {"x": i64(0, 0)}, ["y"], {"depth": np.array(3), "values": values})
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    index = i64(0, -1, 2, 3, -3, -4)
    hot = np.where((index[:, None] % 3 == np.arange(3)) & (abs(index[:, None] + 0.5) < 3), values[1], values[0])
    np.testing.assert_array_equal(ours(proto, {"x": index}, tmp_path)["y"], hot if axis else hot.T)


@pytest.mark.parametrize(("dtype", "zero"), [("uint8", 3), ("int8", 0), ("int16", 0), ("uint16", 9)])
@pytest.mark.parametrize("op", ["Cast", "Equal", "Add", "ArgMax"])
def test_operators_take_the_integers_of_a_quantizer(op: str, dtype: str, zero: int, tmp_path: Path) -> None:
    x = np.linspace(-3, 3, 64, dtype=np.float32)
    operands, attributes = (
        ["q"] * (2 if op in ("Equal", "Add") else 1),
        {"to": TensorProto.INT8} if op == "Cast" else {},
    )
    nodes = [one("QuantizeLinear", "x", "s", "z", outputs=["q"]), one(op, *operands, **attributes)]
    params = {"s": np.float32(0.0173), "z": np.array(zero, dtype)}
    limits = np.iinfo(dtype)
    q = np.clip(np.rint(x / params["s"]) + zero, limits.min, limits.max).astype(dtype)
    expected = {"Cast": q.astype(np.int8), "Equal": q == q, "Add": q + q, "ArgMax": np.array([q.argmax()])}[op]
    np.testing.assert_array_equal(
        ours(model(nodes, {"x": x}, ["y"], params, opset=21), {"x": x}, tmp_path)["y"], expected
    )


def test_scatter_of_small_integers_wraps_around(tmp_path: Path) -> None:
    x, updates = np.array([100, 100], np.int8), np.array([100, 3], np.int8)
    constants = {"i": np.array([[0], [1]]), "u": updates}
    for reduction, expected in (("add", [-56, 103]), ("mul", [16, 44])):
        proto = model([one("ScatterND", "x", "i", "u", reduction=reduction)], {"x": x}, ["y"], constants, opset=18)
        assert ours(proto, {"x": x}, tmp_path)["y"].tolist() == expected
