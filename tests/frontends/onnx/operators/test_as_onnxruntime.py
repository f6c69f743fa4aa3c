"""Results for which random graphs showed a difference from ONNX Runtime."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

import tpuconvert as tc
from tests.support.onnx.models import model, one, ramp
from tests.support.onnx.oracles import assert_same

pytest.importorskip("onnxruntime", reason="needs onnxruntime: install tpuconvert[oracles]")


@pytest.mark.parametrize("align", [0, 1])
@pytest.mark.parametrize(("opset", "mode"), [(16, "bicubic"), (20, "cubic")])
def test_cubic_samples_beyond_the_border_repeat_the_edge(opset: int, mode: str, align: int, tmp_path: Path) -> None:
    """The taps are clamped, not the place between them, as in PyTorch."""
    feeds = {"x": ramp(1, 2, 4, 3), "grid": ramp(1, 5, 4, 2, seed=1, low=-1.6, high=1.6)}
    node = one("GridSample", "x", "grid", mode=mode, padding_mode="border", align_corners=align)
    assert_same(model([node], feeds, ["y"], opset=opset), feeds, tmp_path)


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("attributes", [{"axis": 1}, {"axis": 0, "keepdims": 0}])
def test_last_index_of_equal_constants(op: str, attributes: dict[str, Any], tmp_path: Path) -> None:
    constants = {"c": np.array([[1, 3, 3, 1], [2, 2, 2, 2]], np.float32)}
    nodes = [one(op, "c", outputs=["i"], select_last_index=1, **attributes), one("Add", "i", "x")]
    feeds = {"x": np.array([5], np.int64)}
    assert_same(model(nodes, feeds, ["y"], constants), feeds, tmp_path)


@pytest.mark.parametrize("pads", [[0, 1, 2, 3], [5, 2, 0, 7]])
def test_wraps_by_more_than_the_extent_of_several_axes(pads: list[int], tmp_path: Path) -> None:
    feeds = {"x": ramp(2, 3)}
    assert_same(
        model([one("Pad", "x", "pads", mode="wrap")], feeds, ["y"], {"pads": np.array(pads)}, opset=19), feeds, tmp_path
    )


@pytest.mark.parametrize("of_nodes", [["x_scale"], ["x_zero"], ["x_scale", "x_zero", "w", "y_zero"]])
def test_scales_of_constant_nodes_are_those_of_initializers(of_nodes: list[str], tmp_path: Path) -> None:
    """The operand keeps its integers, so that ties occur as in ONNX Runtime."""
    rng = np.random.default_rng(0)
    names = ["x_scale", "x_zero", "w", "w_scale", "w_zero", "y_scale", "y_zero"]
    weight = rng.integers(-50, 50, (8, 3)).astype(np.int8)
    numbers = [np.float32(0.02), np.int8(2), weight, np.float32(0.03), np.int8(3), np.float32(0.11), np.int8(3)]
    constants = dict(zip(names, numbers, strict=True))
    nodes = [
        helper.make_node("Constant", [], [name], value=numpy_helper.from_array(np.asarray(constants.pop(name)), name))
        for name in of_nodes
    ]
    nodes.append(one("QLinearMatMul", "x", *names))
    proto = model(nodes, feeds := {"x": rng.integers(-9, 9, (4, 8)).astype(np.int8)}, ["y"], constants)
    assert "matrix_mul_v2" in [node.op.name for node in tc.convert(proto).graph.nodes]
    assert_same(proto, feeds, tmp_path, atol=0, rtol=0)


@pytest.mark.parametrize("op", ["Expand", "Transpose"])
def test_moved_constants_of_rank_0_keep_their_rank(op: str, tmp_path: Path) -> None:
    constants = {"c": np.float32(3), "shape": np.zeros(0, np.int64)}
    operands = ["c", "shape"] if op == "Expand" else ["c"]
    feeds = {"x": np.float32(1.5)}
    proto = model([one(op, *operands, outputs=["t"]), one("Add", "x", "t")], feeds, ["y", "t"], constants)
    assert_same(proto, feeds, tmp_path)


@pytest.mark.parametrize("tokens", [0, 2])
def test_constants_are_repeated_per_sample_beside_an_empty_cache(tokens: int, tmp_path: Path) -> None:
    """The batch is taken from an input whose other symbolic axis may be empty."""
    feeds = {"cache": np.ones((3, tokens), np.float32), "a": ramp(3, 1), "b": ramp(3, 5)}
    nodes = [one("Relu", "cache", outputs=["t"]), one("Where", "c", "a", "b", outputs=["y"])]
    proto = model(nodes, feeds, ["t", "y"], {"c": np.array([[True]])})
    for value, names in zip(proto.graph.input, (["N", "P"], ["N"], ["N"]), strict=True):
        for extent, name in zip(value.type.tensor_type.shape.dim, names, strict=False):
            extent.dim_param = name
    assert_same(proto, feeds, tmp_path)


@pytest.mark.parametrize(("op", "attributes"), [("ThresholdedRelu", {"alpha": 0.5}), ("Shrink", {"bias": 0.25})])
def test_infinities_beside_a_threshold(op: str, attributes: dict[str, Any], tmp_path: Path) -> None:
    """Slices that are not selected do not count: infinity times 0 would be NaN."""
    feeds = {"x": np.array([np.inf, -np.inf, np.nan, -0.5, 0.5, 1], np.float32)}
    assert_same(model([one(op, "x", **attributes)], feeds, ["y"]), feeds, tmp_path)


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul"])
@pytest.mark.parametrize("linear", ["MatMul", "Conv"])
def test_constants_that_repeat_the_result_of_a_linear_operator(linear: str, op: str, tmp_path: Path) -> None:
    """The kernel of the linear operator computes as many elements as it has results."""
    image = (4, 4) if linear == "Conv" else ()
    feeds = {"x": ramp(1, 3, *image)}
    constants = {"w": ramp(3, 3, *[1] * len(image), seed=1), "c": ramp(2, 3, *image, seed=2)}
    nodes = [one(linear, "x", "w", outputs=["t"]), one(op, "t", "c")]
    assert_same(model(nodes, feeds, ["y"], constants), feeds, tmp_path)


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
def test_scattered_constants_are_combined(reduction: str, tmp_path: Path) -> None:
    rows = np.array([[1], [0]] if reduction == "none" else [[1], [1]])
    constants = {"data": ramp(3, 2), "rows": rows, "updates": ramp(2, 2, seed=1)}
    nodes = [one("ScatterND", "data", "rows", "updates", outputs=["t"], reduction=reduction), one("Add", "x", "t")]
    feeds = {"x": ramp(3, 2, seed=2)}
    assert_same(model(nodes, feeds, ["y"], constants, opset=18), feeds, tmp_path)


@pytest.mark.parametrize("reduction", ["max", "min"])
@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.int8, np.uint8])
@pytest.mark.parametrize("op", ["ScatterND", "ScatterElements"])
def test_extremes_of_scattered_integers(op: str, dtype: Any, reduction: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    low = 0 if dtype == np.uint8 else -100
    feeds = {"x": rng.integers(low, 100, (4, 3)).astype(dtype), "u": rng.integers(low, 100, (3, 3)).astype(dtype)}
    rows = np.array([[2], [0], [2]]) if op == "ScatterND" else np.array([[2, 1, 0], [0, 1, 3], [2, 0, 0]])
    proto = model([one(op, "x", "rows", "u", reduction=reduction)], feeds, ["y"], {"rows": rows}, opset=18)
    assert_same(proto, feeds, tmp_path)


@pytest.mark.parametrize(
    ("shape", "indices", "batch"),
    [
        ((3, 2), [[[-2], [1]], [[0], [0]], [[1], [-1]]], 1),
        ((2, 3, 4), [[[[1, 3]], [[-1, 0]]], [[[0, 0]], [[2, -4]]]], 1),
        ((2, 3, 4), [[[-1], [0], [2]], [[3], [3], [1]]], 2),
        ((2, 3, 4, 2), [[1], [-1]], 1),
    ],
)
@pytest.mark.parametrize("is_folded", [False, True])
def test_gather_nd_with_batch_axes(shape: Any, indices: Any, batch: int, is_folded: bool, tmp_path: Path) -> None:
    data, rows = ramp(*shape), np.array(indices)
    nodes = [one("GatherND", "data", "rows", outputs=["t"], batch_dims=batch), one("Mul", "t", "x")]
    feeds = {"x": np.float32([2]), **({} if is_folded else {"data": data})}
    assert_same(model(nodes, feeds, ["y"], {"rows": rows, **({"data": data} if is_folded else {})}), feeds, tmp_path)


def test_acosh_below_one_and_of_large_numbers(tmp_path: Path) -> None:
    numbers = [1, 1.0001, 1.5, 0.999, 0, -0.5, -1, -7e3, -3e5, -1e19, -3e38, 3e38, -np.inf, np.inf, np.nan]
    feeds = {"x": np.array(numbers, np.float32)}
    assert_same(model([one("Acosh", "x")], feeds, ["y"]), feeds, tmp_path)


@pytest.mark.parametrize("rounding", ["round_prefer_floor", "round_prefer_ceil"])
@pytest.mark.parametrize("mode", ["asymmetric", "half_pixel"])
@pytest.mark.parametrize(("extent", "size"), [(7, 2), (7, 4), (14, 1), (14, 19), (9, 6), (25, 10)])
def test_positions_that_rounding_moves_off_a_tie_are_ties(
    extent: int, size: int, mode: str, rounding: str, tmp_path: Path
) -> None:
    feeds = {"x": np.arange(extent, dtype=np.float32).reshape(1, 1, 1, extent)}
    node = one(
        "Resize", "x", "", "", "sizes", mode="nearest", coordinate_transformation_mode=mode, nearest_mode=rounding
    )
    assert_same(model([node], feeds, ["y"], {"sizes": np.array([1, 1, 1, size])}), feeds, tmp_path, atol=0, rtol=0)
