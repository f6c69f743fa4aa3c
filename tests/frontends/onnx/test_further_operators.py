"""Operators beyond those of ordinary networks, against the reference evaluator of the onnx package."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx_models import assert_converts, graph_of, model, one, ops, ours, ramp, saved

from tpuconvert.frontends.onnx import load
from tpuconvert.schema.errors import UnsupportedError
from tpuconvert.schema.types import Array

Given = tuple[str, Sequence[Array | None], Sequence[Array | None], dict[str, Any], int]
"""Operator, inputs, constants behind them (None leaves an input out), attributes, opset."""

IMAGE = ramp(2, 4, 5, 6, seed=5)
GRID = ramp(2, 3, 4, 2, seed=6, low=-1.4, high=1.4)
TOKENS = ramp(2, 3, 8)
CACHE = (ramp(5, 2, seed=1), ramp(5, 2, seed=2))
POSITIONS = np.array([[0, 2, 4], [1, 3, 4]])
SMALL_INTS = {kind: np.random.default_rng(2).integers(np.iinfo(kind).min, np.iinfo(kind).max, (2, 9)).astype(kind)
              for kind in ("int8", "uint8", "int16", "uint16")}  # fmt: skip


def i64(*numbers: int) -> Array:
    return np.array(numbers, np.int64)


def scatter(reduction: str) -> list[Given]:
    places = np.array([[0, 1, 2], [2, 0, 2]])
    return [
        ("ScatterElements", [ramp(3, 3)], [places, ramp(2, 3, seed=1)], {"reduction": reduction, "axis": 0}, 18),
        ("ScatterND", [ramp(4, 3)], [i64(1, 3, 1).reshape(3, 1), ramp(3, 3, seed=1)], {"reduction": reduction}, 18),
    ]


CASES: list[Given] = [
    *((op, [x], [np.roll(x, 1)], {}, 14) for op in ("Add", "Sub", "Mul") for x in SMALL_INTS.values()),
    *((op, [x, x[:, ::-1].copy()], [], {}, 14) for op in ("Mul", "Max", "Min") for x in SMALL_INTS.values()),
    *(("BitShift", [x, np.abs(x % 12).astype(x.dtype)], [], {"direction": d}, 11)
      for d in ("LEFT", "RIGHT") for x in (SMALL_INTS["uint8"], SMALL_INTS["uint16"])),
    ("Pow", [np.array([1, -2, 3], np.int32)], [np.array([0, 3, 4], np.int32)], {}, 15),
    ("Pow", [ramp(2, 3)], [np.array([2, 3, 0], np.float32)], {}, 15),
    *(("GridSample", [IMAGE, GRID], [], {"mode": mode, "padding_mode": padding, "align_corners": align}, 20)
      for mode in ("nearest", "linear", "cubic") for padding in ("zeros", "border", "reflection") for align in (0, 1)),
    ("GridSample", [ramp(1, 2, 3, 4, 5), ramp(1, 2, 2, 2, 3, seed=7)], [], {"mode": "linear"}, 20),
    ("GridSample", [IMAGE], [GRID], {}, 20),
    ("DFT", [ramp(1, 7, 3, 1)], [], {}, 17), ("DFT", [ramp(1, 7, 3, 2)], [], {"axis": 2, "inverse": 1}, 17),
    ("DFT", [ramp(1, 7, 3, 1)], [], {"onesided": 1}, 17), ("DFT", [ramp(1, 7, 1)], [np.array(9)], {}, 20),
    ("DFT", [ramp(2, 8, 2)], [None, np.array(1)], {}, 20),
    ("STFT", [ramp(2, 40, 1)], [np.array(8), None, np.array(16)], {}, 17),
    ("STFT", [ramp(2, 40, 1)], [np.array(8), np.hanning(16).astype(np.float32), np.array(16)], {"onesided": 0}, 17),
    *(("RotaryEmbedding", [TOKENS, *CACHE], [POSITIONS], {"num_heads": 2, "interleaved": n}, 23) for n in (0, 1)),
    ("RotaryEmbedding", [TOKENS, *CACHE, POSITIONS], [], {"num_heads": 2}, 23),
    ("RotaryEmbedding", [ramp(1, 2, 3, 6), ramp(1, 3, 2), ramp(1, 3, 2, seed=1)], [], {"rotary_embedding_dim": 4}, 23),
    ("CumProd", [ramp(3, 5)], [np.array(1)], {}, 26), ("CumProd", [ramp(3, 5)], [np.array(0)], {"reverse": 1}, 26),
    ("CumProd", [ramp(3, 5)], [np.array(1)], {"exclusive": 1, "reverse": 1}, 26),
    *(("Det", [ramp(2, size, size)], [], {}, 11) for size in (1, 2, 3)),
    ("Col2Im", [ramp(1, 12, 6)], [i64(5, 4), i64(2, 3)], {"pads": [0, 0, 0, 1], "strides": [2, 1]}, 18),
    ("Col2Im", [ramp(2, 8, 12)], [i64(5, 5), i64(2, 2)], {"dilations": [2, 1], "pads": [0, 0, 0, 0]}, 18),
    ("Einsum", [ramp(2, 3, 3)], [], {"equation": "bii->bi"}, 12), ("Einsum", [ramp(3, 3)], [], {"equation": "ii"}, 12),
    *(case for reduction in ("add", "mul", "max", "min") for case in scatter(reduction)),
    ("TensorScatter", [ramp(2, 3, 6, 2), ramp(2, 3, 2, 2, seed=1)], [i64(1, 4)], {}, 24),
    ("TensorScatter", [ramp(2, 6, 2), ramp(2, 3, 2, seed=1)], [i64(4, 1)], {"mode": "circular", "axis": 1}, 24),
    ("ReverseSequence", [ramp(4, 3, 2)], [i64(1, 4, 0)], {}, 10),
    ("ReverseSequence", [ramp(3, 4)], [i64(1, 4, 2)], {"batch_axis": 0, "time_axis": 1}, 10),
    *((op, [ramp(2, 3, low=-1, high=1)], [], {}, 7) for op in ("Acos", "Asin", "Atan")),
    ("DeformConv", [ramp(1, 4, 5, 5), ramp(2, 4, 2, 2), ramp(1, 16, 4, 4, seed=3)], [ramp(2)], {"offset_group": 2}, 19),
    ("DeformConv", [ramp(2, 2, 5, 5), ramp(2, 1, 2, 2), ramp(2, 8, 3, 3, seed=3)], [None, ramp(2, 4, 3, 3, seed=4)],
     {"group": 2, "pads": [1, 1, 0, 0], "strides": [2, 2]}, 19),
    ("RoiAlign", [ramp(2, 3, 8, 8)], [np.array([[0, 0, 4, 5], [1.5, 2, 7, 6]], np.float32), i64(0, 1)],
     {"output_height": 2, "output_width": 3, "sampling_ratio": 2}, 16),
    ("RoiAlign", [ramp(1, 3, 8, 8), np.array([[0, 0, 4, 5]], np.float32)], [i64(0)],
     {"output_height": 2, "output_width": 2, "mode": "max", "spatial_scale": 0.5}, 16),
    ("MaxUnpool", [ramp(1, 1, 2, 2)], [i64(5, 7, 13, 15).reshape(1, 1, 2, 2)],
     {"kernel_shape": [2, 2], "strides": [2, 2]}, 11),
    ("AveragePool", [IMAGE], [], {"kernel_shape": [2, 3], "dilations": [2, 1], "strides": [2, 2], "ceil_mode": 1}, 19),
    ("LpPool", [IMAGE], [], {"kernel_shape": [2, 2], "dilations": [2, 2]}, 18),
    ("MaxPool", [SMALL_INTS["uint8"].reshape(1, 1, 3, 6)], [], {"kernel_shape": [2, 2]}, 12),
    ("SpaceToDepth", [IMAGE[:, :, :4]], [], {"blocksize": 2}, 13),
    *(("Resize", [IMAGE], [None, np.array([1, 1, 0.6, 0.5], np.float32)], {"mode": mode, "antialias": 1}, 18)
      for mode in ("linear", "cubic")),
    ("Resize", [IMAGE], [np.array([0, 0, -0.2, 0.2, 1, 1, 0.9, 1.3], np.float32), None, i64(2, 4, 4, 7)],
     {"mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 7.0}, 18),
    ("QuantizeLinear", [ramp(2, 3, 4)], [ramp(3, low=0.05, high=0.2), np.array([3, 128, 9], np.uint8)], {}, 13),
    ("QuantizeLinear", [ramp(2, 4)], [ramp(2, 2, low=0.1, high=0.2)], {"block_size": 2, "output_dtype": 3}, 21),
    ("DequantizeLinear", [SMALL_INTS["int8"]], [ramp(2, low=0.1), np.array([1, -2], np.int8)], {"axis": 0}, 19),
    ("DequantizeLinear", [SMALL_INTS["uint8"][:, :8]], [ramp(2, 2, low=0.1)], {"block_size": 4}, 21),
    ("ConvInteger", [SMALL_INTS["uint8"].reshape(1, 1, 3, 6), SMALL_INTS["uint8"][:1, :8].reshape(2, 1, 2, 2)],
     [np.uint8(3), np.array([5, 9], np.uint8)], {}, 10),
    ("LinearAttention", [TOKENS, ramp(2, 3, 4, seed=1), ramp(2, 3, 6, seed=2)], [],
     {"q_num_heads": 4, "kv_num_heads": 2, "update_rule": "linear"}, 27),
    ("NonZero", [np.array([[1, 0], [0, 2]], np.float32)], [], {}, 13),
    ("Compress", [ramp(3, 4)], [np.array([True, False, True])], {"axis": 0}, 11),
    ("Compress", [ramp(3, 4), np.array([False, True, True])], [], {}, 11),
    ("HannWindow", [], [np.array(10)], {}, 17), ("HammingWindow", [], [np.array(9)], {"periodic": 0}, 17),
    ("BlackmanWindow", [], [np.array(9)], {}, 17),
    ("AffineGrid", [ramp(2, 2, 3)], [i64(2, 3, 4, 5)], {"align_corners": 1}, 20),
]  # fmt: skip
OUTPUTS = {"LinearAttention": ("y", "s")}


def as_model(given: Given) -> tuple[onnx.ModelProto, Mapping[str, Array]]:
    op, inputs, constants, attributes, opset = given
    arrays = {f"x{k}": np.asarray(array) for k, array in enumerate(inputs) if array is not None}
    names = [f"x{k}" for k in range(len(inputs))] + [f"c{k}" if c is not None else "" for k, c in enumerate(constants)]
    known = {f"c{k}": np.asarray(c) for k, c in enumerate(constants) if c is not None}
    outputs = OUTPUTS.get(op, ("y",))
    node = one(op, *names, outputs=outputs, **attributes)
    return model([node], arrays, outputs, known, opset=opset, ir_version=10), arrays


@pytest.mark.parametrize("given", CASES, ids=[f"{case[0]}-{n}" for n, case in enumerate(CASES)])
def test_as_the_reference_evaluator(given: Given, tmp_path: Path) -> None:
    proto, arrays = as_model(given)
    assert_converts(proto, arrays, tmp_path, atol=2e-5, rtol=2e-4)


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


def test_functions_of_the_standard_are_expanded(tmp_path: Path) -> None:
    feeds = {"a": ramp(2, 3), "b": ramp(2, 3, seed=1)}
    proto = model([one("SwiGLU", "a", "b", alpha=1.5)], feeds, ["y"], opset=28)
    expected = feeds["a"] / (1 + np.exp(-1.5 * feeds["a"])) * feeds["b"]
    np.testing.assert_allclose(ours(proto, feeds, tmp_path)["y"], expected, rtol=1e-5)
    assert "active" in ops(graph_of(proto, tmp_path))


@pytest.mark.parametrize(
    ("op", "attributes", "complaint"),
    [
        ("RandomNormalLike", {}, "random numbers"),
        ("StringNormalizer", {}, "string data"),
        ("Unique", {}, "depends on the data"),
        ("ImageDecoder", {}, "image decoding"),
        ("BitShift", {"direction": "UP"}, "LEFT or RIGHT"),
        ("Det", {}, "up to 3"),
    ],
)
def test_refused(op: str, attributes: dict[str, Any], complaint: str, tmp_path: Path) -> None:
    x = ramp(4, 4)
    proto = model([one(op, "x", *(["x"] if op == "BitShift" else []), **attributes)], {"x": x}, ["y"], opset=22)
    with pytest.raises(UnsupportedError, match=complaint):
        load(saved(proto, tmp_path))


def test_a_sequence_is_no_output(tmp_path: Path) -> None:
    proto = model([one("SequenceConstruct", "x")], {"x": ramp(2)}, ["y"])
    with pytest.raises(UnsupportedError, match="its type is sequence"):
        load(saved(proto, tmp_path))
